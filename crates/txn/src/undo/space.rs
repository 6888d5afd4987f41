//! Waits for undo memory.
//!
//! A session that finds no chunk joins the queue (`undo::queue`). The first in the queue does what stands in the way of
//! a chunk, in this order:
//!
//! | in the way | |
//! |---|---|
//! | a session has the chunk, and its transaction has ended or not changed anything | it is taken from that session |
//! | the commits in it are not durable | they are made durable |
//! | older snapshots | full chunks are moved to the file for undo, or the oldest snapshot is cancelled |
//! | a writer that links a version, a reader that takes its snapshot | passes soon |
//!
//! What lies in the file counts as well, since it takes a part of the memory. Where running transactions hold all
//! memory, full chunks of theirs are moved to the file. If that is not possible either, the session waits, and the
//! transaction ends only in these cases:
//!
//! | no other session holds memory | `TransactionTooLarge`: it does not fit alone |
//! | no other session holds memory, and transactions that have ended left their entries between its own | `UndoMemory`: its end frees them, and it fits alone |
//! | it joined last, and each holder waits for memory, or by way of locks for an owner that does, or is a parked rollback | `UndoMemory`: its rollback lets the others go on |
//! | the time is over, that of each wait or that of the transaction | `UndoMemory` |
//!
//! **No deadlock.** When the last running holder begins to wait, for a lock or for memory, all sessions in the queue
//! look again, and the one that joined last ends. The first in the queue ends only if no other session waits for
//! memory.

use super::arena::{Arena, Queued};
use super::session::Undo;
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

/// Undo space: the arena, and the waits of transactions that find it full.
pub(crate) struct UndoSpace {
    arena: Arc<Arena>,
    visibility: Arc<Visibility>,
    halt: Arc<Halt>,
    log: Log,
    locks: Arc<LockManager>,
    time: SystemClock,
    /// How long a transaction waits at most.
    timeout: Duration,
}

/// What a wait has to know of the transactions that hold undo space.
pub(crate) trait Holders {
    /// Returns whether one of the lock owners `holders` goes on, now that `waiters` wait for space.
    fn any_goes_on(&self, holders: &[usize], waiters: Vec<usize>) -> bool;

    /// Returns whether a commit holds its undo until it is durable.
    fn is_any_held(&self) -> bool;
}

/// What a transaction needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Bytes of one entry.
    pub(crate) bytes: usize,
    /// Whether its full chunks may be moved to the file.
    pub(crate) may_spill: bool,
    /// Whether it waits for transactions that run.
    pub(crate) waits: bool,
    /// How long it may wait, if its waits are limited.
    pub(crate) most: Option<Duration>,
}

/// The search for space for one entry.
struct Search<'a> {
    request: Request,
    holders: &'a dyn Holders,
    /// `None` without a limit, which is [`Duration::MAX`].
    until: Option<Nanos>,
    /// Whether the log has been forced: a commit may keep all that it has entered until it is durable.
    forced: bool,
    /// Why nothing was moved to the file.
    not_moved: Option<Error>,
}

/// A registration for a wait, which ends without one when it is dropped.
struct Wait<'a> {
    event: &'a EventCount,
    key: Option<EventKey>,
}

impl<'a> Wait<'a> {
    fn prepare(event: &'a EventCount) -> Self {
        Self { event, key: Some(event.prepare()) }
    }

    fn wait(mut self, most: Option<Duration>) {
        if let Some(key) = self.key.take() {
            // WAIT: park - see the caller.
            self.event.wait(key, most);
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
    /// Returns the space in `arena`. A transaction waits for it for `timeout` at most; [`Duration::MAX`] is no limit.
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

    /// Returns the memory itself.
    #[inline]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Makes sure that one entry of `bytes` fits, if there is space.
    ///
    /// # Errors
    /// `TransactionTooLarge`: there is none.
    pub(crate) fn try_reserve(&self, undo: &mut Undo, view: &mut KeptView, bytes: usize) -> Result<()> {
        let kept = view.newest_reader().is_some();
        undo.reserve(bytes, kept, || {
            *view = self.visibility.refresh_view();
            view.horizon()
        })
    }

    /// Waits in the queue until what is requested fits. The caller has returned its log space: the holders may need it
    /// to end.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`; why nothing was moved to the file; why all transactions have stopped.
    #[cold]
    pub(crate) fn wait(
        &self,
        request: Request,
        undo: &mut Undo,
        view: &mut KeptView,
        holders: &dyn Holders,
    ) -> Result<()> {
        undo.join_queue();
        let most = request.most.map_or(self.timeout, |most| most.min(self.timeout));
        let until = (most < Duration::MAX).then(|| self.time.now() + most);
        let mut search = Search { request, holders, until, forced: false, not_moved: None };
        let outcome = self.search(&mut search, undo, view);
        undo.leave_queue();
        outcome
    }

    fn search(&self, search: &mut Search<'_>, undo: &mut Undo, view: &mut KeptView) -> Result<()> {
        let Request { bytes, may_spill, .. } = search.request;
        loop {
            self.halt.check()?;
            undo.fill_up(may_spill);
            let mut wait = Wait::prepare(self.arena.changed());
            let before = undo.begin_look(bytes);
            if before.is_first {
                undo.clear_shelves();
            }
            if self.try_reserve(undo, view, bytes).is_ok() {
                return Ok(());
            }
            pause::point("txn: found no space for undo");
            if before.is_first {
                if !self.is_over(search.until) && self.make_space(search, undo)? {
                    continue;
                }
                // It does not wake itself.
                drop(wait);
                undo.end_look();
                wait = Wait::prepare(self.arena.changed());
            }
            if self.may_wait(search, undo, &before)? {
                // Behind the key: a stop from here on wakes it.
                self.halt.check()?;
                // WAIT: park - for a session that returns memory, and not if each holder waits for this one.
                wait.wait(search.until.map(|until| until.since(self.time.now())));
            }
        }
    }

    /// Returns whether to wait for others; otherwise to look again. `before`: what there was when the look began.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`; why nothing was moved to the file.
    fn may_wait(&self, search: &mut Search<'_>, undo: &Undo, before: &Queued) -> Result<bool> {
        let now = undo.queued(search.request.bytes);
        let (comes_free, is_over) = (now.soonest.is_some(), self.is_over(search.until));
        if (comes_free || now.first_looks) && !is_over {
            return Ok(!now.is_first);
        }
        let max = self.arena.limit_bytes();
        if now.is_first && !comes_free && now.none_has_held_since(before) {
            let mixed = undo.fits_alone() && !mutant("undo: entries of others count as its own");
            let refused =
                if mixed { Error::UndoMemory { max, holder: "" } } else { Error::TransactionTooLarge { max } };
            return Err(search.not_moved.take().unwrap_or(refused));
        }
        let waits_behind = mutant("undo: a session that holds all memory waits behind others");
        if now.holders.is_empty() && (now.is_first || waits_behind) && !is_over && search.request.waits {
            // Those that held some have given it up: the first looks again. Another one holds all memory itself, and
            // those before it wait for that.
            return Ok(!now.is_first);
        }
        let is_stuck = || {
            let goes_on = search.holders.any_goes_on(&now.holders, now.waiters.clone());
            // Unless one of them has been served meanwhile.
            now.is_last && !goes_on && undo.queued(search.request.bytes) == now
        };
        if is_over || !search.request.waits || is_stuck() && !mutant("undo: no wait for memory is in vain") {
            let running = now.holders.iter().find_map(|&holder| self.locks.running(holder));
            return Err(Error::UndoMemory { max, holder: running.map_or("", |(label, _)| label) });
        }
        Ok(true)
    }

    /// Does something about the lack of memory, by the first in the queue. `false` if there is nothing to do but to
    /// wait.
    fn make_space(&self, search: &mut Search<'_>, undo: &Undo) -> Result<bool> {
        let until = search.until;
        match undo.queued(search.request.bytes).soonest {
            None if self.has_moved_undo(search) => {}
            None if search.forced => {
                if search.holders.is_any_held() && !mutant("undo: a commit that holds its undo is not made durable") {
                    // WAIT: help - or park behind the leader. It may have come since the log was forced.
                    self.log.force(self.log.current())?;
                }
                return Ok(false);
            }
            Some(newest) if newest <= self.log.durable().csn() => match self.visibility.oldest_csn() {
                Some(csn) if csn < newest && self.has_moved_undo(search) => {}
                Some(csn) if csn < newest || mutant("undo: what passes soon costs one more snapshot") => {
                    // That one and no other: it may end meanwhile by itself, which may do.
                    self.visibility.cancel_at(csn);
                }
                _ => self.visibility.wait_for_pins(newest, || self.is_over(until)),
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

    /// Returns whether undo was moved to its file, or another session has done it, so that there is space in memory.
    fn has_moved_undo(&self, search: &mut Search<'_>) -> bool {
        let until = search.until;
        let unpinned = || self.visibility.have_all_unpinned(|| !self.is_over(until));
        let moved = self.arena.spill(self.log.durable().csn(), unpinned);
        moved.unwrap_or_else(|error| {
            search.not_moved = Some(error);
            false
        })
    }
}
