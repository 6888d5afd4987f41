//! Fuzzy checkpoints: a durable record of where redo begins, taken while all transactions continue.
//!
//! The order of the steps makes the record true; each step says what it relies on. Fuzzy checkpoints come from ARIES.
//! Redo begins at the oldest group that a dirty page needs, and not at the checkpoint: ARIES' dirty page table reduced
//! to one number, the **redo start**. The **scan start** is the first group of the oldest transaction, if that is
//! older: from there to the redo start the log is read for the analysis only.

mod copies;
mod record;
mod request;
mod restarted;
mod retained;
mod stamped;
mod stats;

pub use retained::RetainedLog;
pub use stats::CheckpointStats;

use crate::budget::{RestartBudget, behind};
use crate::format::{BODY_ENTRY, BODY_HEADER, CheckpointBody};
use crate::pace::{Mark, PORTIONS, Pace, limits};
use crate::redo::OpenRedo;
use crate::unended::MAX_LOSERS;
use copies::Copies;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_buffer::Pool;
use foreshore_buffer::format::change_header_len;
use foreshore_io::File;
use foreshore_space::{BackupMark, Space, SuperBlock};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex, NextWake, Signal, Step, pause};
use foreshore_txn::TxnManager;
use foreshore_wal::{Log, Session, SpaceServer};
use stats::Taken;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// When the step retries a failure.
const RETRY: Duration = Duration::from_millis(100);

/// Most transactions that a checkpoint record can list besides losers of a restart. The smallest log segment takes as
/// many in one record.
pub const MAX_ACTIVE: usize = 1024;

const _: () = assert!(change_header_len(0) + BODY_HEADER + (MAX_ACTIVE + MAX_LOSERS) * BODY_ENTRY <= 20 << 10);

/// Most log that a checkpoint takes: its record, in its own group.
const MOST_LOG: u64 = 24 << 10;

/// The parts that a checkpointer works on.
#[allow(missing_debug_implementations)]
pub struct CheckpointParts {
    /// The log that it notes its checkpoints in and truncates.
    pub log: Log,
    /// The pool whose dirty pages it has written.
    pub pool: Pool,
    /// The transactions that it lists, at most [`MAX_ACTIVE`].
    pub txns: Arc<TxnManager>,
    /// Knows how long the data file must be.
    pub space: Arc<Space>,
    /// The data file, for the superblock.
    pub data: Arc<dyn File>,
    /// The newest superblock.
    pub superblock: SuperBlock,
    /// What the next one says of backups.
    pub backups: BackupMark,
    /// How much log to keep, except for what old transactions need.
    pub budget: RestartBudget,
    /// The redo that goes on. Checkpoints that write pages wait for its end.
    pub redo: OpenRedo,
}

/// Takes checkpoints: on request, and as a step whenever the log has grown by a quarter of its budget.
///
/// An explicit checkpoint has every page written that is dirty when it begins, at once or with rests. The step writes
/// pages continuously instead, so that no burst delays other work. After each thirty-second of the budget it writes the
/// oldest sixteenth of the dirty pages, and those that have been dirty for half the budget. Its checkpoints write no
/// pages. If the disk does not keep up, it writes without a pause and tells the log after each batch where redo would
/// begin; the log then slows the writers.
///
/// A writer that finds the disk full is answered by two checkpoints, if they let log be truncated: the older
/// superblock slot counts too.
///
/// Falling back to the older superblock slot must find its log, so the log of the last two checkpoints is kept. That
/// is half the budget for the age of pages (three quarters if the disk does not keep up), and two quarters for the
/// checkpoints. Three things come on top: log appended while a checkpoint is being written, log for older
/// transactions, and the rest of the first segment.
pub struct Checkpointer {
    log: Log,
    pool: Pool,
    txns: Arc<TxnManager>,
    space: Arc<Space>,
    data: Arc<dyn File>,
    state: Mutex<State>,
    /// Bytes of log that pages may need.
    budget: AtomicU64,
    /// Group from which on a page was last known to need the log.
    page_start: AtomicU64,
    taken: Taken,
    /// Copies of the database that log is retained for.
    copies: Copies,
    /// The redo of pages that the restart has left.
    redo: OpenRedo,
}

struct State {
    /// Held permanently, so that a checkpoint never lacks one.
    session: Session,
    newest: SuperBlock,
    /// The redo start of the superblock before it.
    older_redo: GroupNo,
    /// What the budget follows from.
    restarts: RestartBudget,
    /// Bytes of log that the restart has redone.
    redone_bytes: u64,
    /// Whether writers are slowed down for pages.
    is_served: bool,
    pace: Pace,
    /// The end of the restart, until all pages that it has changed are known to be home.
    restarted: Option<GroupNo>,
    /// Whether the last checkpoint is taken. The next one would undo the close.
    is_closed: bool,
}

/// The pages that a checkpoint writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// None: they are written continuously.
    None,
    /// All that are dirty when it begins.
    All,
    /// Like `All`, when nothing runs any more.
    Last,
}

impl Checkpointer {
    /// Returns a checkpointer that continues from the superblock in `parts`, behind a restart that may have changed
    /// pages. The first checkpoint that finds all of them home ends the reads of the data file past the page cache.
    ///
    /// # Errors
    /// `TooManyTransactions` if the log has no session for it.
    pub fn new(parts: CheckpointParts) -> Result<Self> {
        let CheckpointParts { log, pool, txns, space, data, superblock: newest, backups, budget: restarts, redo } =
            parts;
        let session = log.session()?;
        let redone_bytes = log.bytes_since(newest.redo_start);
        let budget = restarts.bytes(newest.restart_speed).max(behind(redone_bytes));
        let pace = Pace::new(budget, log.written_bytes(), redone_bytes);
        let (older_redo, restarted, is_served, is_closed) = (GroupNo::ZERO, Some(log.next_group()), false, false);
        Ok(Self {
            copies: Copies::new(backups),
            taken: Taken::new(&newest),
            budget: AtomicU64::new(budget),
            page_start: AtomicU64::new(newest.redo_start.0),
            state: Mutex::new(
                LockRank::Checkpoint,
                State { session, older_redo, newest, restarts, redone_bytes, is_served, pace, restarted, is_closed },
            ),
            redo,
            log,
            pool,
            txns,
            space,
            data,
        })
    }

    /// Returns the signal of the thread that drives the step: that of the log's growth.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.log.growth_signal()
    }

    /// Starts to slow writers down and to answer their requests for space. A thread drives the step, or without one
    /// the writers.
    pub fn serve(self: &Arc<Self>, has_thread: bool) {
        let server = if has_thread {
            self.state.lock().is_served = true;
            self.log.limit_backlog(Some(limits(self.budget())));
            SpaceServer::Thread(self.signal())
        } else {
            let step: Weak<Self> = Arc::downgrade(self);
            SpaceServer::Inline(step)
        };
        self.log.serve_space(server);
    }

    /// Ends what [`Checkpointer::serve`] started, before the thread ends. Waiting writers continue.
    pub fn retire(&self) {
        self.log.serve_space(SpaceServer::None);
        self.state.lock().is_served = false;
        self.log.limit_backlog(None);
    }

    /// Takes a checkpoint, or waits for the one in progress and takes the next.
    ///
    /// # Errors
    /// `Poisoned`, `DiskFull`, `Io`, `Closed`. The newest checkpoint is then the one before, and nothing is lost. On a
    /// full disk it takes no log that rollbacks may need, unless log is truncated after it.
    pub fn checkpoint(&self) -> Result<()> {
        self.redo_rest()?;
        let mut state = self.state.lock();
        self.admit(&mut state).and_then(|()| self.take(&mut state, Reach::All))
    }

    /// Takes the last checkpoint of a run, with no transaction running, and notes that the database was closed.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn close(&self) -> Result<()> {
        self.redo_rest().and_then(|()| self.take(&mut self.state.lock(), Reach::Last))
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> CheckpointStats {
        let page_start = self.page_start();
        let page_log_bytes = self.log.bytes_since(page_start);
        let oldest = self.txns.xids().oldest_group().filter(|&oldest| oldest < page_start);
        let transaction_log_bytes =
            oldest.map_or(0, |oldest| self.log.bytes_since(oldest).saturating_sub(page_log_bytes));
        let taken = self.taken.stats();
        let (redo_log_bytes, budget) = (self.log.bytes_since(taken.redo_start), self.budget());
        CheckpointStats { redo_log_bytes, budget, page_log_bytes, transaction_log_bytes, ..taken }
    }

    fn take(&self, state: &mut State, reach: Reach) -> Result<()> {
        if state.is_closed {
            return Err(Error::Closed);
        }
        let taken = self.take_counted(state, reach);
        state.is_closed = reach == Reach::Last && taken.is_ok();
        self.end_restart(state);
        self.taken.count(taken.is_ok());
        #[cfg(feature = "tracing")]
        match &taken {
            Ok(()) => tracing::debug!(target: "foreshore", redo_start = state.newest.redo_start.0, "checkpoint"),
            Err(error) => tracing::warn!(target: "foreshore", ?error, "a checkpoint failed"),
        }
        taken
    }

    fn take_counted(&self, state: &mut State, reach: Reach) -> Result<()> {
        // The group number is loaded first. A page that becomes dirty or a transaction that begins after this load has
        // all its records in this group or later.
        let Mark { at, group: begin } = self.mark();
        if reach != Reach::None {
            self.write_pages(begin)?;
        }
        let view = self.txns.checkpoint_view();
        assert!(view.active.len() <= MAX_ACTIVE + MAX_LOSERS, "{} transactions at a checkpoint", view.active.len());
        let forgets = mutant("sabotage: a checkpoint forgets its dirty pages");
        let oldest_page = self.pool.min_rec_group().filter(|_| !forgets).unwrap_or(begin);
        // One without a record has none before `begin`.
        let active: Vec<_> = view.active.iter().map(|&(xid, group)| (xid, group.unwrap_or(begin))).collect();
        let oldest_transaction = active.iter().map(|&(_, group)| group).min().unwrap_or(begin);
        assert!(oldest_transaction >= state.newest.scan_start, "transaction in log before {}", state.newest.scan_start);
        // A page may name a group before the last redo start. Its thread read the next group before that checkpoint
        // began, and marked the page only after the checkpoint had found it clean. So the record was appended later,
        // and is not in the truncated log.
        let redo_start = begin.min(oldest_page).max(state.newest.redo_start);
        // Older log is read only for the transactions: no page lacks a change of it, see `replay`.
        let scan_start = redo_start.min(oldest_transaction);

        let is_clean = reach == Reach::Last && active.is_empty() && scan_start == begin;
        let body = CheckpointBody { next_xid: view.next_xid, ceiling: view.ceiling, clock: view.clock, active };
        // The newest backup is read before the record is appended: so the log of the backup ends before the checkpoint.
        let (group, backups) = (self.log.next_group(), self.copies.mark());
        let appended = record::append(&mut state.session, &body);
        // Its session stays and its lane does not: other sessions may wait for the lane.
        state.session.release();
        let lsn = appended?;
        record::assert_follows(&state.newest, lsn, &body);
        // Only now: the record depends on every commit that it calls finished, so when it is durable they are.
        if !mutant("sabotage: a superblock names a checkpoint that is not durable") {
            self.log.force(lsn)?;
            assert!(self.log.durable() >= lsn, "a forced record is durable");
        }
        pause::point("checkpoint: the record is durable");
        let (older, older_redo) = (self.copies.scan_start(state.newest.scan_start), state.newest.redo_start);
        let next = SuperBlock {
            checkpoint_lsn: lsn,
            checkpoint_group: group,
            scan_start,
            redo_start,
            data_pages: self.space.file_pages(),
            xid_ceiling: body.ceiling,
            clean: is_clean,
            backups,
            quarantined: self.quarantined(&state.newest),
            ..state.newest.clone()
        };
        match stamped::write_superblock(&self.pool, &*self.data, &next) {
            Ok(written) => (state.newest, state.older_redo) = (written, older_redo),
            Err(error) => {
                // The slot may hold the old superblock, the new one or neither, and a second attempt would write the
                // other, sound one.
                self.log.poison(&error);
                return Err(error);
            }
        }
        self.copies.written(&state.newest);
        pause::point("checkpoint: the superblock is durable");
        state.pace.taken(at);
        self.taken.set_starts(&state.newest);
        // The slot that is now the older one is the fallback, and keeps its log, as copies do.
        self.truncate(older)
    }

    /// Returns the current place in the log.
    fn mark(&self) -> Mark {
        Mark { at: self.log.written_bytes(), group: self.log.next_group() }
    }

    /// Returns the bytes of log that pages may need.
    fn budget(&self) -> u64 {
        // ORDERING: hint, a measure.
        self.budget.load(Ordering::Relaxed)
    }

    /// Returns the group from which on a page was last known to need the log. A page may need less by now.
    fn page_start(&self) -> GroupNo {
        // ORDERING: hint, a measure.
        GroupNo(self.page_start.load(Ordering::Relaxed))
    }

    /// Notes that no dirty page needs the log before `oldest`. One that waits for its redo may.
    fn pages_from(&self, oldest: GroupNo) {
        let oldest = self.pool.pending_from().map_or(oldest, |pending| pending.min(oldest));
        // ORDERING: hint, a measure.
        self.page_start.store(oldest.0, Ordering::Relaxed);
        self.log.redo_from(oldest);
    }

    /// Whether writers are slowed, or were if the log grew a little more.
    fn is_behind(&self) -> bool {
        self.log.bytes_since(self.page_start()) > limits(self.budget()).soft
    }

    /// Runs one round: answers writers' requests, writes a portion of the dirty pages if the log has grown or the
    /// pages are behind, and takes a due checkpoint. Returns how many bytes of log are written when the next round is
    /// due.
    fn look(&self) -> Result<u64> {
        let redone = self.redo_rest();
        let mut state = self.state.lock();
        self.answer_request(&mut state)?;
        let finished = redone.and_then(|()| self.finish_restart(&mut state));
        let now = self.mark();
        if state.pace.has_grown(now) || self.is_behind() {
            let old = state.pace.old(now);
            self.pool.flush_some(old, PORTIONS, |oldest| {
                self.pages_from(oldest);
                // A failed one is counted and stays due, and page writes continue: nothing else lets the writers
                // continue.
                let _ = self.take_due(&mut state);
                Ok(())
            })?;
        }
        self.take_due(&mut state)?;
        // Like a due checkpoint, it is tried again, and page writes continue.
        finished.map(|()| state.pace.next_look())
    }

    fn take_due(&self, state: &mut State) -> Result<()> {
        if !state.pace.is_due(self.mark()) {
            return Ok(());
        }
        // A parked rollback may stay for long. What pages need stays anyway.
        let pages = self.page_start();
        let let_go = |group: GroupNo| self.log.truncatable(self.copies.scan_start(group.min(pages)));
        self.txns.copy_forward(|group, copies| state.pace.lets_go(let_go(group), copies));
        self.take(state, Reach::None)
    }
}

impl Step for Checkpointer {
    fn step(&self) -> NextWake {
        if self.log.poisoned().is_some() {
            return NextWake::OnSignal;
        }
        // A failed checkpoint is counted. It leaves the database as it was, or has stopped the log. The checkpoint
        // stays due; a portion that was not written is left to the next round.
        match self.look() {
            Ok(next) if !self.is_behind() && self.log.set_growth_mark(next) => {
                self.unanswered().unwrap_or(NextWake::OnSignal)
            }
            Ok(_) => NextWake::Now,
            Err(_) => NextWake::After(RETRY),
        }
    }
}
