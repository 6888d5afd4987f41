//! The end of a transaction: commit or rollback.

use crate::format::{COMMIT, MARK_LEN, encode_mark};
use crate::manager::{Lease, TxnManager};
use crate::parked::{Rollback, Stop};
use crate::resource::UndoContext;
use crate::txn::Txn;
use crate::undo::UndoPtr;
use foreshore_base::{Csn, Error, Lsn, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_wal::{CommitTicket, Dep, Log, Record, Session, flags};
use std::io;
use std::sync::Arc;

impl Txn {
    /// Commits: the order is fixed and the locks are free when it returns; the ticket tells when the commit, and all that
    /// the transaction has read from, is durable. Nobody is woken to write it: the caller waits on the ticket, and so
    /// writes the group itself if the log is free.
    ///
    /// # Errors
    /// `Poisoned`, and then it is rolled back; `RolledBack` after a rollback to a savepoint that stopped half-way.
    pub fn commit(self) -> Result<CommitTicket> {
        self.pre_commit(false, |_| ())
    }

    /// As [`commit`](Self::commit), for a caller that does not wait: the flusher makes it durable.
    ///
    /// # Errors
    /// `Poisoned`, and then it is rolled back.
    pub fn commit_pipelined(self) -> Result<CommitTicket> {
        self.commit_pipelined_then(|_| ())
    }

    /// As [`commit_pipelined`](Self::commit_pipelined). `then` is called with the commit's number when the locks are free, before
    /// callbacks that are due: they may wait for whatever the caller still counts as running.
    ///
    /// # Errors
    /// As [`commit_pipelined`](Self::commit_pipelined); `then` was not called.
    pub fn commit_pipelined_then(self, then: impl FnOnce(Csn)) -> Result<CommitTicket> {
        self.pre_commit(true, then)
    }

    pub(crate) fn pre_commit(mut self, hand_over: bool, then: impl FnOnce(Csn)) -> Result<CommitTicket> {
        let (Some(xid), Some(tag)) = (self.xid, self.logged_as()) else {
            let place = self.place();
            return Ok(self.end_unlogged(place, hand_over, then));
        };
        if self.is_broken {
            return Err(Error::RolledBack);
        }
        self.note_thread();
        // With an xid it has changed rows or locked them, and readers by snapshots find that xid in their headers. They have to find it
        // on one side of theirs for good. So the commit takes a stamp, unless it puts all those headers back.
        if self.last_lsn == Lsn::ZERO && !mutant("txn: a transaction with locks only logs its commit") {
            let place = self.place();
            if self.puts_locks_back() {
                return Ok(self.end_unlogged(place, hand_over, then));
            }
        }
        // A commit may use what is kept back: a rollback in its place would take more.
        let reserved = self.session().reserve_end(Session::cost(MARK_LEN));
        if let Err(cause) = reserved {
            self.give_up_prepared(&cause);
            return Err(cause);
        }
        self.before_record();
        let mut lease = self.lease.take().expect("a running transaction has its lease");
        pause::point("txn: about to give up its undo");
        let manager = &self.manager;
        if mutant("sabotage: shared locks are free before the commit has its place") {
            manager.locks.release_shared(&mut lease.owner);
        }
        // Before the record: a snapshot that could see the commit finds it under way.
        manager.window.begin_commit(xid);
        // The point of no return: the record may be on disk at once. Nothing below can fail.
        let dep = Dep::none().transaction(self.last_lsn).observed(self.observed());
        let lsn = append_commit(&mut lease.session, tag, dep);
        pause::point("txn: a commit is logged");
        assert!(lsn.csn() > self.observed(), "a commit comes after all that it has seen");
        // The record before the status, the status before the locks: whoever is let on by one finds the ones before it.
        if let Err(cause) = manager.note(xid, true) {
            manager.halt(&cause);
        }
        let csn =
            manager.window.commit(xid, lsn.csn(), |least| lift(&manager.log, &mut lease.session, tag, lsn, least));
        assert!(lsn.csn() <= csn, "{xid} commits as {csn}, below its record at {lsn}");
        manager.active.leave(lease.owner.index());
        if hand_over {
            manager.log.flush_soon(&mut lease.session, csn.lsn());
        }
        manager.commits.add(1);
        let (ticket, session) = (lease.session.ticket(lsn, csn, csn.lsn()), lease.session.number());
        if hand_over && mutant("txn: callbacks before the locks are free") {
            manager.log.acknowledge(session);
        }
        manager.release(lease, csn);
        then(csn);
        if hand_over {
            // They may want what this transaction had.
            manager.log.acknowledge(session);
        }
        Ok(ticket)
    }

    /// Nobody in this run takes back what was prepared and cannot commit, nor ends it another way. Those who wait for what it holds
    /// are let on, and told that everything has stopped.
    fn give_up_prepared(&mut self, cause: &Error) {
        if self.prepared_as.is_some() {
            let manager = self.manager.clone();
            manager.halt(cause);
            manager.locks.finish(&mut self.lease_mut().owner, None);
        }
    }

    /// The place in the order of commits of a transaction that changes nothing. Called before it gives up a lock.
    ///
    /// It is not below what the transaction has read. The commit numbers of frozen rows are not known any more, but such rows are
    /// durable, and a snapshot is not below what it sees. Nor is it above both that and what was observed, so no ticket waits
    /// for more.
    fn place(&self) -> Csn {
        let durable = self.manager.log.durable().csn();
        let frozen = self.snapshot.as_ref().map_or(durable, |snapshot| snapshot.csn().min(durable));
        self.observed().max(frozen)
    }

    /// The ticket of a transaction that logs nothing. It waits for what was observed, and for nothing beyond.
    fn unlogged_ticket(&self, lease: &mut Lease, place: Csn, hand_over: bool) -> CommitTicket {
        let (log, seen) = (&self.manager.log, self.observed().lsn());
        // The committer of what was seen may not have asked for a flush yet.
        if hand_over && seen > log.durable() {
            log.flush_soon(&mut lease.session, seen);
        }
        log.ticket(place.lsn(), place, place.lsn())
    }

    /// Puts the headers of all rows back that the transaction has locked and not changed, and ends its xid, as a rollback does. `false`
    /// if a damaged page, or the file of old versions, keeps it from that: the rest of the headers has to find a commit.
    fn puts_locks_back(&mut self) -> bool {
        let lease = self.lease.take().expect("a running transaction has its lease");
        let Ok(rollback) = self.to_rollback(lease) else {
            unreachable!("a transaction that has locked rows has an xid")
        };
        let (rollback, outcome) = self.manager.try_rollback(rollback);
        self.lease = Some(rollback.lease);
        outcome.is_ok()
    }

    /// Commits a transaction that has changed no row, and has locked none or put their headers back, at its `place`.
    fn end_unlogged(mut self, place: Csn, hand_over: bool, then: impl FnOnce(Csn)) -> CommitTicket {
        assert_eq!(self.last_lsn, Lsn::ZERO, "the last record of a transaction that ends without one of its commit");
        let mut lease = self.lease.take().expect("a running transaction has its lease");
        let (ticket, session) = (self.unlogged_ticket(&mut lease, place, hand_over), lease.session.number());
        let manager = &self.manager;
        if self.xid.is_some() {
            manager.active.leave(lease.owner.index());
        }
        manager.locks.finish(&mut lease.owner, None);
        manager.commits.add(1);
        // It has no undo entry, or none any more.
        manager.give_back(lease, Csn::ZERO);
        then(place);
        if hand_over {
            manager.log.acknowledge(session);
        }
        ticket
    }

    /// Takes everything back and returns the watermark: a result that is handed out in spite of the rollback rests on
    /// commits up to it.
    ///
    /// # Errors
    /// `RollbackParked`: the rest is taken back later (see [`TxnManager::parked`]). `Poisoned`: the rollback could not
    /// be completed, the log has stopped, and the next restart takes it back.
    pub fn rollback(mut self) -> Result<Csn> {
        self.take_back()?;
        Ok(self.observed())
    }

    pub(crate) fn take_back(&mut self) -> Result<()> {
        if self.lease.is_some() {
            self.note_thread();
        }
        let Some(lease) = self.lease.take() else { return Ok(()) };
        match self.to_rollback(lease) {
            Ok(rollback) => self.manager.roll_back(rollback).inspect_err(|error| {
                if matches!(error, Error::RollbackParked { .. }) {
                    self.manager.tell_parked();
                }
            }),
            Err(lease) => self.manager.end_rollback(lease, false, Ok(())),
        }
    }
}

impl TxnManager {
    /// Takes back what is left of a transaction, as far as that goes.
    pub(crate) fn try_rollback(&self, mut rollback: Rollback) -> (Rollback, Result<(), Stop>) {
        let unwinds = HaltOnPanic(self);
        let outcome = self.undo_all(&mut rollback);
        std::mem::forget(unwinds);
        (rollback, outcome)
    }

    /// Ends a rollback with its outcome. `has_xid`: it had changed or locked rows.
    pub(crate) fn end_rollback(&self, mut lease: Box<Lease>, has_xid: bool, outcome: Result<()>) -> Result<()> {
        self.aborts.add(1);
        match &outcome {
            // It still shows as running: a group that was being cut when the log stopped may carry a checkpoint to the disk.
            Err(cause) => self.halt(cause),
            Ok(()) if has_xid => self.active.leave(lease.owner.index()),
            Ok(()) => {}
        }
        self.locks.finish(&mut lease.owner, None);
        // What was not taken back stays for ever, and so does what it says of the rows.
        self.give_back(lease, if outcome.is_ok() { Csn::ZERO } else { Csn(u64::MAX) });
        outcome
    }

    fn undo_all(&self, rollback: &mut Rollback) -> Result<(), Stop> {
        if let Some(error) = self.log.poisoned() {
            return Err(Stop::Ends(error));
        }
        let Rollback { lease, xid, logged_as, last_lsn, is_prepared, lost, copy_cost, .. } = rollback;
        let Lease { session, undo, .. } = &mut **lease;
        let mut context = UndoContext::new(session, *xid, *last_lsn).logged_as(*logged_as).among(self);
        if *is_prepared {
            let decided = context.log_abort()?;
            // WAIT: help - or park behind the leader. A restart that found it prepared again would lock once more what others may
            // have taken by then: the first row that is given back is free at once.
            if !mutant("sabotage: a prepared one is taken back before that is durable") {
                self.log.force(decided)?;
            }
            pause::point("txn: a rollback of prepared work is decided");
            *is_prepared = false;
        }
        let is_early = mutant("sabotage: a rollback shows before it is done");
        if is_early {
            self.window.abort(*xid);
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
        self.note(*xid, false)?;
        // Only now do others see that nothing is left.
        if !is_early {
            self.window.abort(*xid);
        }
        Ok(())
    }

    /// Releases what a commit holds, as early as that is allowed, and takes the lease back.
    fn release(self: &Arc<Self>, mut lease: Box<Lease>, csn: Csn) {
        let Some(release) = self.hold_until_durable else {
            self.locks.finish(&mut lease.owner, Some(csn));
            self.give_back(lease, csn);
            return;
        };
        release(&self.locks, &mut lease.owner);
        // What its last operation reserved and did not use is not kept that long, nor what a rollback would have taken.
        lease.session.end_undo_log();
        lease.session.release();
        self.linger(lease, csn);
    }
}

/// Appends the commit record of `xid`, for which there is room.
fn append_commit(session: &mut Session, xid: Xid, dep: Dep) -> Lsn {
    session.append(Record { tag: xid.0, flags: flags::COMMIT, parts: &[&encode_mark(COMMIT)] }, dep)
}

/// A commit number at or above `least` for `xid`, whose commit record at `lsn` was too early for a reader; the log's
/// clock of commits is raised to it.
#[cold]
fn lift(log: &Log, session: &mut Session, xid: Xid, lsn: Lsn, least: Csn) -> Csn {
    if log.raise_commit_clock(least) {
        return least;
    }
    // Stamps are positions: a second record has one above all that a reader can have taken for its snapshot so far.
    match session.reserve_end(Session::cost(MARK_LEN)) {
        Ok(()) => append_commit(session, xid, Dep::none().transaction(lsn)).csn(),
        // The log has stopped, whether the commit survives is unknown, and nothing becomes durable up to that number.
        Err(_) => least,
    }
}

impl TxnManager {
    /// Gives up after a rollback that failed: the log stops, and so do all waits.
    pub(crate) fn halt(&self, cause: &Error) {
        self.log.poison(cause);
        self.stop(&Error::poisoned(cause));
    }

    /// Ends all waits of transactions, with `cause`: for locks, for undo memory, for a session. Called when the log has stopped or the
    /// database closes, by a thread that holds no lock above [`LockRank::Database`](foreshore_sync::LockRank::Database).
    pub fn stop(&self, cause: &Error) {
        // ORDERING: Release, pairs with `is_halted`; those who wait are woken after it.
        self.halted.store(true, Ordering::Release);
        self.locks.stop(cause);
        self.undo.tell();
        self.returned.notify_all();
    }

    /// Why transactions do not go on.
    pub(crate) fn stop_error(&self) -> Option<Error> {
        self.locks.stopped().cloned().or_else(|| self.log.poisoned())
    }

    pub(crate) fn is_halted(&self) -> bool {
        // ORDERING: Acquire, pairs with `stop`.
        self.halted.load(Ordering::Acquire)
    }
}

/// A rollback that unwinds has failed too: its rows stay as they are, and nobody may wait for them.
pub(crate) struct HaltOnPanic<'a>(pub(crate) &'a TxnManager);

impl Drop for HaltOnPanic<'_> {
    fn drop(&mut self) {
        self.0.halt(&Error::io("undo", "a transaction", io::Error::other("it panicked")));
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.prepared_as.is_some() {
            return;
        }
        // A rollback that is parked is listed, and one that fails stops the log.
        let _ = self.take_back();
    }
}
