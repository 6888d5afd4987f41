//! Rollbacks: of a whole transaction, to a savepoint, and retries of parked ones.
//!
//! A rollback goes back through the undo entries of a transaction, newest first. The resource manager undoes each
//! change and logs a compensation. An end record follows, then the status, then the locks.

use super::TxnManager;
use crate::halt::HaltOnPanic;
use crate::parked::{Parked, ParkedRollback, Retried, Rollback, Stop};
use crate::resource::UndoContext;
use crate::sessions::Lease;
use crate::undo::{Undo, UndoEntry, UndoPtr};
use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::{Signal, pause};

impl TxnManager {
    /// Rolls back the remaining changes of a transaction, as far as possible.
    pub(super) fn try_rollback(&self, mut rollback: Rollback) -> (Rollback, Result<(), Stop>) {
        let unwinds = HaltOnPanic::new(&self.halt);
        let outcome = self.undo_all(&mut rollback);
        unwinds.disarm();
        (rollback, outcome)
    }

    /// Ends a rollback with its outcome. `has_xid` says that the transaction had changed or locked rows.
    pub(super) fn end_rollback(&self, mut lease: Box<Lease>, has_xid: bool, outcome: Result<()>) -> Result<()> {
        self.ended.rollbacks.add(1);
        match &outcome {
            // The transaction still shows as running. A group that was being cut when the log stopped may write a
            // checkpoint to the disk.
            Err(cause) => self.halt.halt(cause),
            Ok(()) if has_xid => self.xids.active().leave(lease.owner.index()),
            Ok(()) => {}
        }
        self.locks.finish(&mut lease.owner, None);
        // Changes that were not undone stay for good, and so does their undo.
        self.sessions.give_back(lease, if outcome.is_ok() { Csn::ZERO } else { Csn(u64::MAX) });
        outcome
    }

    fn undo_all(&self, rollback: &mut Rollback) -> Result<(), Stop> {
        if let Some(error) = self.log.poisoned() {
            return Err(Stop::Ends(error));
        }
        let Rollback { lease, xid, logged_as, last_lsn, is_prepared, lost, copy_cost, .. } = rollback;
        let Lease { session, undo, .. } = &mut **lease;
        let mut context = UndoContext::new(session, *xid, *last_lsn).logged_as(*logged_as).among(&self.visibility);
        if *is_prepared {
            let decided = context.log_abort()?;
            // WAIT: help - or park behind the leader. The first row that is released is free at once. A restart that
            // found the transaction prepared again would lock rows that others may have locked by then.
            if !mutant("sabotage: a prepared one is taken back before that is durable") {
                self.log.force(decided)?;
            }
            pause::point("txn: a rollback of prepared work is decided");
            *is_prepared = false;
        }
        let is_early = mutant("sabotage: a rollback shows before it is done");
        if is_early {
            self.visibility.abort(*xid)?;
        }
        let undone = self.undo_back_to(&mut context, undo, UndoPtr::NULL, |_| false);
        if *last_lsn < context.last_lsn() {
            *copy_cost = None;
        }
        assert!(*last_lsn <= context.last_lsn(), "a rollback goes back from {last_lsn} to {}", context.last_lsn());
        *last_lsn = context.last_lsn();
        undone?;
        let left = undo.entries();
        assert!(left == 0 && undo.newest() == UndoPtr::NULL, "{xid} is rolled back and has {left} undo entries");
        if let Some(cause) = lost {
            return Err(Stop::Waits(cause.clone()));
        }
        if *last_lsn > Lsn::ZERO {
            context.log_end()?;
        }
        pause::point("txn: a rollback is logged");
        // Others see the rollback only now, when all changes are undone.
        if !is_early {
            self.visibility.abort(*xid)?;
        }
        Ok(())
    }

    /// Undoes the entries newer than `until`. `keeps` says whether the lock of a row stays.
    pub(super) fn undo_back_to(
        &self,
        context: &mut UndoContext<'_>,
        undo: &mut Undo,
        until: UndoPtr,
        keeps: impl Fn(&UndoEntry<'_>) -> bool,
    ) -> Result<(), Stop> {
        let mut back = undo.back();
        // With the planted defect a rollback to a savepoint leaves the oldest change.
        let leaves = until != UndoPtr::NULL && mutant("sabotage: a rollback to a savepoint leaves a change");
        while back.at != until {
            pause::point("txn: a change is to be taken back");
            let at = back.at;
            let (mut entry, holder) = undo.entry(&back)?;
            if leaves {
                undo.drop_at(&mut back);
                continue;
            }
            // A row that the transaction already held stays locked by an older entry.
            entry.keep = (holder != context.xid() && keeps(&entry)).then_some(at);
            let is_kept_lock = entry.lsn == Lsn::ZERO && entry.keep.is_some();
            if is_kept_lock || self.resources().undo(context, &entry).map_err(Stop::at_change)? {
                undo.keep_at(&mut back);
            } else {
                undo.drop_at(&mut back);
            }
        }
        Ok(())
    }

    /// Ends `rollback` if it can be completed, and parks it if it can be retried.
    pub(super) fn roll_back(&self, rollback: Rollback) -> Result<()> {
        let (rollback, outcome) = self.try_rollback(rollback);
        match outcome {
            Ok(()) => self.end_rollback(rollback.lease, true, Ok(())),
            Err(Stop::Waits(cause)) if !mutant("parked: a rollback without a page stops the log") => {
                Err(self.park_rollback(rollback, cause))
            }
            Err(Stop::Waits(cause) | Stop::Ends(cause)) => self.end_rollback(rollback.lease, true, Err(cause)),
        }
    }

    /// Parks a rollback, and returns the error for its caller.
    pub(super) fn park_rollback(&self, rollback: Rollback, cause: Error) -> Error {
        let parked = self.parked.entry(rollback, cause);
        let refusal = parked.refusal();
        self.put_into_list(parked);
        refusal
    }

    /// Adds a rollback that stands between two changes to the list of parked ones.
    pub(super) fn put_into_list(&self, mut parked: Parked) {
        let lease = &mut *parked.rollback.lease;
        lease.run.end();
        lease.session.release();
        lease.undo.release(false);
        // The read locks protect nothing any more. The locks of tables in which it wrote keep these tables from being
        // dropped.
        self.locks.release_shared(&mut lease.owner);
        lease.owner.set_thread(None);
        let owner = lease.owner.index();
        self.parked.add(parked, || self.locks.hide(owner));
        // The rollback keeps its undo memory until it is retried. A session that waits for that memory has to learn of
        // it.
        if !mutant("parked: no session that waits for memory is told") {
            self.undo.arena().tell();
        }
    }

    /// Sets the thread that calls [`retry_parked`](Self::retry_parked). It is signalled when a rollback is parked for
    /// the first time. Later calls have no effect.
    pub fn signal_parked(&self, signal: Signal) {
        self.parked.set_signal(signal);
    }

    /// Returns the parked rollbacks, the oldest first.
    #[must_use]
    pub fn parked(&self) -> Vec<ParkedRollback> {
        self.parked.all()
    }

    /// Retries each parked rollback once. Several threads may call it.
    pub fn retry_parked(&self) -> Retried {
        let mut ended = 0;
        for _ in 0..self.parked.count() {
            let Some(Parked { rollback, .. }) = self.parked.take() else { break };
            // A rollback that is parked again is in the list. One that stops the log is reported to all callers.
            ended += usize::from(self.roll_back(rollback).is_ok());
            self.parked.end_try();
        }
        Retried { ended, left: self.parked.count() }
    }
}
