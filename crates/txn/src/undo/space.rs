//! Waits for undo memory.
//!
//! A session that finds no chunk joins the queue (`undo::arena::queue`). The first session of the queue removes what
//! keeps it from a chunk, in this order:
//!
//! | obstacle | remedy |
//! |---|---|
//! | a session keeps the chunk for a transaction that has ended or changed nothing | the chunk is taken from it |
//! | the commits in the chunk are not durable | the log is forced |
//! | older snapshots need the chunk | full chunks are moved to the spill file, or the oldest snapshot is cancelled |
//! | a writer is linking a version, or a reader is taking its snapshot | a short wait |
//!
//! Chunks in the spill file are freed in the same way, since they too take a part of the memory. If running
//! transactions hold all memory, their full chunks are moved to the spill file.
//!
//! If no remedy helps, the session waits. Besides a disk error or a halt, its transaction fails only in these cases:
//!
//! | case | error |
//! |---|---|
//! | no other session holds memory | `TransactionTooLarge`: it does not fit alone |
//! | the same, but ended transactions left entries among its own | `UndoMemory`: its end frees them, and then it fits |
//! | the request may not wait for transactions (`Request::waits`), and only they hold memory | `UndoMemory` |
//! | the session joined last, and no holder can continue | `UndoMemory`: the rollback lets the others continue |
//! | the time limit of the wait or of the transaction has passed | `UndoMemory` |
//!
//! A holder cannot continue if it waits for memory, waits by way of locks for an owner that does, or is a parked
//! rollback.
//!
//! **Invariant:** no deadlock. When the last running holder begins to wait, for a lock or for memory, all sessions in
//! the queue check again. Then the one that joined last fails. That is the first one only if it is alone in the queue.

use super::arena::{Arena, Queued};
use super::session::{SeveralUndo, Undo};
use crate::halt::Halt;
use crate::visibility::Visibility;
use crate::visibility::view::KeptView;
use foreshore_base::{Error, Result};
use foreshore_lock::LockManager;
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, EventCount, EventKey, Nanos, SystemClock, pause};
use foreshore_wal::Log;
use std::sync::Arc;
use std::time::Duration;

/// The undo arena, and the waits of transactions that find it full.
pub(crate) struct UndoSpace {
    arena: Arc<Arena>,
    visibility: Arc<Visibility>,
    halt: Arc<Halt>,
    log: Log,
    locks: Arc<LockManager>,
    time: SystemClock,
    /// The longest time that a transaction waits.
    timeout: Duration,
}

/// What a wait has to know about the transactions that hold undo memory.
pub(crate) trait Holders {
    /// Returns whether one of the lock owners `holders` can continue, now that `waiters` wait for memory.
    fn can_any_continue(&self, holders: &[usize], waiters: Vec<usize>) -> bool;

    /// Returns whether some commit keeps its undo until it is durable.
    fn has_held_commit(&self) -> bool;
}

/// A request for undo memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The bytes of one entry.
    pub(crate) bytes: usize,
    /// Whether full chunks of the transaction may be moved to the file.
    pub(crate) may_spill: bool,
    /// Whether to wait for running transactions.
    pub(crate) waits: bool,
    /// The longest time to wait, if the transaction's waits are limited.
    pub(crate) max_wait: Option<Duration>,
}

/// The search for memory for one entry.
struct Search<'a> {
    request: Request,
    holders: &'a dyn Holders,
    /// The end of the wait. `None` without a limit, which is [`Duration::MAX`].
    until: Option<Nanos>,
    /// Whether the log has been forced. Some commits keep their undo until they are durable.
    forced: bool,
    /// The error of the last attempt to move undo to the file.
    spill_error: Option<Error>,
}

/// A registration for a wait. Its drop cancels the registration.
struct Wait<'a> {
    event: &'a EventCount,
    key: Option<EventKey>,
}

impl<'a> Wait<'a> {
    fn prepare(event: &'a EventCount) -> Self {
        Self { event, key: Some(event.prepare()) }
    }

    fn wait(mut self, max_wait: Option<Duration>) {
        if let Some(key) = self.key.take() {
            // WAIT: park - see the caller.
            self.event.wait(key, max_wait);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.event.cancel(key);
        }
    }
}

impl UndoSpace {
    /// Returns the waits for memory in `arena`. A transaction waits at most `timeout`; [`Duration::MAX`] is no limit.
    pub(crate) fn new(
        arena: Arc<Arena>,
        visibility: Arc<Visibility>,
        halt: Arc<Halt>,
        log: Log,
        locks: Arc<LockManager>,
        timeout: Duration,
    ) -> Self {
        Self { arena, visibility, halt, log, locks, time: SystemClock::new(), timeout }
    }

    /// Returns the arena.
    #[inline]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Reserves space for one entry of `bytes`. Returns false if there is none.
    pub(crate) fn try_reserve(&self, undo: &mut Undo, view: &mut KeptView, bytes: usize) -> bool {
        let has_old_readers = view.newest_reader().is_some();
        let reserved = undo.reserve(bytes, has_old_readers, || {
            *view = self.visibility.refresh_view();
            view.horizon()
        });
        reserved.is_ok()
    }

    /// Reserves space for several entries. Returns false if there is none without a wait.
    pub(crate) fn try_reserve_several(&self, undo: &mut Undo, view: &mut KeptView, several: &SeveralUndo) -> bool {
        undo.try_reserve_several(several, || {
            *view = self.visibility.refresh_view();
            view.horizon()
        })
    }

    /// Waits in the queue until the requested space is reserved. The caller has returned its log space before, because
    /// the holders may need log space to end.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`; the error of the last attempt to move undo to the file; the error that has
    /// halted all transactions.
    #[cold]
    pub(crate) fn wait(
        &self,
        request: Request,
        undo: &mut Undo,
        view: &mut KeptView,
        holders: &dyn Holders,
    ) -> Result<()> {
        undo.join_queue();
        let max_wait = request.max_wait.map_or(self.timeout, |max_wait| max_wait.min(self.timeout));
        let until = (max_wait < Duration::MAX).then(|| self.time.now() + max_wait);
        let mut search = Search { request, holders, until, forced: false, spill_error: None };
        let outcome = self.search(&mut search, undo, view);
        undo.leave_queue();
        outcome
    }

    fn search(&self, search: &mut Search<'_>, undo: &mut Undo, view: &mut KeptView) -> Result<()> {
        let Request { bytes, may_spill, .. } = search.request;
        loop {
            self.halt.check()?;
            undo.return_unneeded(may_spill);
            let mut wait = Wait::prepare(self.arena.changed());
            let before = undo.begin_search(bytes);
            if before.is_first {
                undo.clear_shelves();
            }
            if self.try_reserve(undo, view, bytes) {
                return Ok(());
            }
            pause::point("txn: found no space for undo");
            if before.is_first {
                if !self.is_over(search.until) && self.make_space(search, undo)? {
                    continue;
                }
                // Or `end_search` would wake the caller itself.
                drop(wait);
                undo.end_search();
                wait = Wait::prepare(self.arena.changed());
            }
            if self.may_wait(search, undo, &before)? {
                // After the registration: a later halt wakes this session.
                self.halt.check()?;
                // WAIT: park - for a session that returns memory, and not if each holder waits for this one.
                wait.wait(search.until.map(|until| until.since(self.time.now())));
            }
        }
    }

    /// Returns whether to wait for other sessions; if not, the caller searches again. `before`: the queue when the
    /// search began.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`; the error of the last attempt to move undo to the file.
    fn may_wait(&self, search: &mut Search<'_>, undo: &Undo, before: &Queued) -> Result<bool> {
        let now = undo.queued(search.request.bytes);
        let (can_be_freed, is_over) = (now.soonest.is_some(), self.is_over(search.until));
        if (can_be_freed || now.first_searches) && !is_over {
            return Ok(!now.is_first);
        }
        let max = self.arena.limit_bytes();
        if now.is_first && !can_be_freed && now.none_has_held_since(before) {
            let has_entries_of_others =
                undo.fits_alone() && !mutant("undo: entries of others make a transaction too large");
            let refused = match has_entries_of_others {
                true => Error::UndoMemory { max, holder: "" },
                false => Error::TransactionTooLarge { max },
            };
            return Err(search.spill_error.take().unwrap_or(refused));
        }
        let waits_behind = mutant("undo: a session that holds all memory waits behind others");
        if now.holders.is_empty() && (now.is_first || waits_behind) && !is_over && search.request.waits {
            // No other session holds memory any more, so the first session searches again. Another session must not
            // wait here: it may hold all memory itself, while the sessions before it wait for that memory.
            return Ok(!now.is_first);
        }
        let is_stuck = || {
            let can_continue = search.holders.can_any_continue(&now.holders, now.waiters.clone());
            // The state has changed if one of the waiters has got memory meanwhile.
            now.is_last && !can_continue && undo.queued(search.request.bytes) == now
        };
        if is_over || !search.request.waits || is_stuck() && !mutant("undo: a deadlock over memory is not detected") {
            let running = now.holders.iter().find_map(|&holder| self.locks.running(holder));
            return Err(Error::UndoMemory { max, holder: running.map_or("", |(label, _)| label) });
        }
        Ok(true)
    }

    /// Tries to make space, as the first session of the queue. Returns `false` if the session can only wait.
    fn make_space(&self, search: &mut Search<'_>, undo: &Undo) -> Result<bool> {
        let until = search.until;
        match undo.queued(search.request.bytes).soonest {
            None if self.spill(search) => {}
            None if search.forced => {
                if search.holders.has_held_commit() && !mutant("undo: a commit that holds its undo is not made durable")
                {
                    // WAIT: help - or park behind the leader. The commit may have come since the log was forced.
                    self.log.force(self.log.current())?;
                }
                return Ok(false);
            }
            Some(horizon) if horizon <= self.log.durable().csn() => match self.visibility.oldest_csn() {
                Some(csn) if csn < horizon && self.spill(search) => {}
                Some(csn) if csn < horizon || mutant("undo: a snapshot is cancelled where a pin ends soon") => {
                    // Only the snapshot at `csn`: it may have ended meanwhile, which may be enough.
                    self.visibility.cancel_at(csn);
                }
                _ => self.visibility.wait_for_pins(horizon, || self.is_over(until)),
            },
            _ => {
                // WAIT: help - or park behind the leader.
                self.log.force(self.log.current())?;
                search.forced = true;
            }
        }
        Ok(true)
    }

    fn is_over(&self, until: Option<Nanos>) -> bool {
        until.is_some_and(|until| self.time.now() >= until)
    }

    /// Moves undo to the file. Returns whether there is space in memory then, perhaps because another session moved
    /// some.
    fn spill(&self, search: &mut Search<'_>) -> bool {
        let until = search.until;
        let unpinned = || self.visibility.have_all_unpinned(|| !self.is_over(until));
        let (has_space, error) = match self.arena.spill(self.log.durable().csn(), unpinned) {
            Ok(has_space) => (has_space, None),
            Err(error) => (false, Some(error)),
        };
        search.spill_error = error;
        has_space
    }
}
