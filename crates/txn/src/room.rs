//! Waits for undo memory.
//!
//! A session that finds no chunk joins the queue (`undo::queue`). The first in the queue does what stands in the way of a chunk, in this
//! order:
//!
//! | in the way | |
//! |---|---|
//! | a session has the chunk, and its transaction has ended or not changed anything | it is taken from that session |
//! | the commits in it are not durable | they are made durable |
//! | older snapshots | full chunks are moved to the file for undo, or the oldest snapshot is cancelled |
//! | a writer that links a version, a reader that takes its snapshot | passes soon |
//!
//! What lies in the file counts as well, since it takes a part of the memory. Where running transactions hold all memory, full chunks of
//! theirs are moved to the file. If that is not possible either, the session waits, and the transaction ends only in these cases:
//!
//! | no other session holds memory | `TransactionTooLarge`: it does not fit alone |
//! | no other session holds memory, and transactions that have ended left their entries between its own | `UndoMemory`: its end frees them, and it fits alone |
//! | it joined last, and each holder waits for memory, or by way of locks for an owner that does, or is a parked rollback | `UndoMemory`: its rollback lets the others go on |
//! | the time is over, that of each wait or that of the transaction | `UndoMemory` |
//!
//! **No deadlock.** When the last running holder begins to wait, for a lock or for memory, all sessions in the queue look again, and the one
//! that joined last ends. The first in the queue ends only if no other session waits for memory.

use crate::manager::{Lease, TxnManager};
use crate::undo::Queued;
use foreshore_base::{Csn, Error, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread::yield_now;
use foreshore_sync::{Clock, EventCount, EventKey, Nanos, pause};
use std::time::Duration;

/// A transaction's search for room for one entry.
#[derive(Debug)]
struct Search {
    bytes: usize,
    /// Whether it waits for transactions that run.
    waits: bool,
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

impl TxnManager {
    /// Makes sure that one entry of `bytes` fits, if there is memory.
    pub(crate) fn try_reserve_undo(&self, lease: &mut Lease, bytes: usize) -> Result<()> {
        let Lease { undo, view, .. } = lease;
        let kept = view.newest_reader().is_some();
        undo.reserve(bytes, kept, || {
            *view = self.refresh_view();
            view.horizon()
        })
    }

    /// Waits in the queue until one entry of `bytes` fits. What the session has of the log's space goes back: the holders may need it to
    /// end. The caller reserves it again. `most`: how long the transaction may wait, if its waits are limited.
    #[cold]
    pub(crate) fn wait_for_undo(
        &self,
        lease: &mut Lease,
        bytes: usize,
        may_agree: bool,
        waits: bool,
        most: Option<Duration>,
    ) -> Result<()> {
        lease.session.release();
        lease.undo.join_queue();
        let most = most.map_or(self.undo_patience, |most| most.min(self.undo_patience));
        let until = (most < Duration::MAX).then(|| self.time.now() + most);
        let mut search = Search { bytes, waits, until, forced: false, not_moved: None };
        let outcome = self.search_undo(&mut search, lease, may_agree);
        lease.undo.leave_queue();
        outcome
    }

    fn search_undo(&self, search: &mut Search, lease: &mut Lease, may_agree: bool) -> Result<()> {
        loop {
            if let Some(error) = self.stop_error() {
                return Err(error);
            }
            lease.undo.fill_up(may_agree);
            let mut wait = Wait::prepare(self.undo.changed());
            let before = lease.undo.begin_look(search.bytes);
            if before.is_first {
                lease.undo.clear_shelves();
            }
            if self.try_reserve_undo(lease, search.bytes).is_ok() {
                return Ok(());
            }
            pause::point("txn: found no room for undo");
            if before.is_first {
                if !self.is_over(search.until) && self.make_room(search, lease)? {
                    continue;
                }
                // It does not wake itself.
                drop(wait);
                lease.undo.end_look();
                wait = Wait::prepare(self.undo.changed());
            }
            if self.may_wait(search, lease, &before)? {
                // WAIT: park - for a session that gives memory up, and not if each holder waits for this one.
                wait.wait(search.until.map(|until| until.since(self.time.now())));
            }
        }
    }

    /// Whether to wait for others; otherwise to look again. `before`: what there was when the look began.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`; why nothing was moved to the file.
    fn may_wait(&self, search: &mut Search, lease: &Lease, before: &Queued) -> Result<bool> {
        let now = lease.undo.queued(search.bytes);
        let (comes_free, is_over) = (now.soonest.is_some(), self.is_over(search.until));
        if (comes_free || now.first_looks) && !is_over {
            return Ok(!now.is_first);
        }
        let max = self.undo.limit_bytes();
        if now.is_first && !comes_free && now.none_has_held_since(before) {
            let mixed = lease.undo.fits_alone() && !mutant("undo: entries of others count as its own");
            let refused =
                if mixed { Error::UndoMemory { max, holder: "" } } else { Error::TransactionTooLarge { max } };
            return Err(search.not_moved.take().unwrap_or(refused));
        }
        let waits_behind = mutant("undo: a session that holds all memory waits behind others");
        if now.holders.is_empty() && (now.is_first || waits_behind) && !is_over && search.waits {
            // Those that held some have given it up: the first looks again. Another one holds all memory itself, and those before it
            // wait for that.
            return Ok(!now.is_first);
        }
        let is_stuck = || {
            let goes_on = self.any_holder_goes_on(&now.holders, now.waiters.clone());
            // Unless one of them has been served meanwhile.
            now.is_last && !goes_on && lease.undo.queued(search.bytes) == now
        };
        if is_over || !search.waits || is_stuck() && !mutant("undo: no wait for memory is in vain") {
            let running = now.holders.iter().find_map(|&holder| self.locks.running(holder));
            return Err(Error::UndoMemory { max, holder: running.map_or("", |(label, _)| label) });
        }
        Ok(true)
    }

    /// Does something about the lack of memory, by the first in the queue. `false` if there is nothing to do but to wait.
    fn make_room(&self, search: &mut Search, lease: &Lease) -> Result<bool> {
        match lease.undo.queued(search.bytes).soonest {
            None if self.has_moved_undo(search) => {}
            None if search.forced => {
                if self.is_any_lingering() {
                    // WAIT: help - or park behind the leader.
                    self.log.force(self.log.current())?;
                }
                return Ok(false);
            }
            Some(newest) if newest <= self.log.durable().csn() => match self.readers.oldest() {
                Some((csn, _)) if csn < newest && self.has_moved_undo(search) => {}
                Some((csn, _)) if csn < newest || mutant("undo: what passes soon costs one more snapshot") => {
                    // That one and no other: it may end meanwhile by itself, which may do.
                    self.kill_oldest_if(|oldest, _| oldest == csn);
                }
                _ => self.wait_for_what_passes(newest, search.until),
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

    /// Whether a commit keeps its memory until it is durable. It may have come since the log was forced.
    fn is_any_lingering(&self) -> bool {
        let lingers = |is_own| self.leases(is_own).lingering.lock().now > 0;
        let is_any = lingers(false) || lingers(true);
        is_any && !mutant("undo: a commit that lingers is not made durable")
    }

    /// Whether undo was moved to its file, or another session has done it, so that there is room in memory.
    fn has_moved_undo(&self, search: &mut Search) -> bool {
        let until = search.until;
        let may_wait = || !self.is_over(until);
        let moved = self.undo.spill(self.log.durable().csn(), || self.pins.have_all_been_off(may_wait));
        moved.unwrap_or_else(|error| {
            search.not_moved = Some(error);
            false
        })
    }

    /// Waits until no writer touches what was replaced by commits below `newest`, and no reader is about to get a snapshot below it.
    fn wait_for_what_passes(&self, newest: Csn, until: Option<Nanos>) {
        while self.pins.is_any_below(newest) || self.readers.is_any_taking_below(newest) {
            if self.is_over(until) {
                return;
            }
            // WAIT: window - a writer links one version, or a reader takes its snapshot; either may have lost its processor.
            yield_now();
        }
    }

    /// Takes the log space that idle sessions keep for the rollbacks of their next transactions, in blocks.
    pub(crate) fn take_idle_undo_log(&self) -> u64 {
        let mut blocks = 0;
        for is_own in [false, true] {
            self.leases(is_own).each_idle(|idle| blocks += idle.session.take_idle_undo_log());
        }
        blocks
    }
}
