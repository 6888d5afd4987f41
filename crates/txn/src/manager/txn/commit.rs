//! The end of a transaction: commit or rollback.

use super::Txn;
use crate::format::{COMMIT, MARK_LEN, encode_mark};
use crate::halt::HaltOnPanic;
use crate::manager::{PrecommitRelease, TxnManager};
use crate::parked::Rollback;
use crate::sessions::{Lease, Running};
use foreshore_base::{Csn, Error, Lsn, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_wal::{CommitTicket, Dep, Log, Record, Session, flags};
use std::sync::Arc;

/// The way in which a commit gets to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// The caller waits, and writes the group itself if the log is free.
    ByCaller,
    /// The flusher writes the commit as soon as it may.
    Soon,
    /// The commit comes with a later group, because no answer depends on it.
    Later,
}

impl Flush {
    /// Requests that `log` writes the records up to `lsn`.
    fn ask(self, log: &Log, session: &mut Session, lsn: Lsn) {
        match self {
            Self::ByCaller => {}
            Self::Soon => log.flush_soon(session, lsn),
            Self::Later => log.flush_later(session, lsn),
        }
    }

    /// Calls the due ticket callbacks of a session, if the caller does not wait. The callbacks may want what this
    /// transaction held, so this is called after the release.
    fn acknowledge(self, log: &Log, session: usize) {
        if self != Self::ByCaller {
            log.acknowledge(session);
        }
    }
}

impl Txn {
    /// Commits. On return the commit order is fixed and the locks are free. The ticket says when the commit, and all
    /// that the transaction has read from, is durable. No flusher is woken. The caller waits on the ticket, and writes
    /// the group itself if the log is free.
    ///
    /// # Errors
    /// `Poisoned`: the transaction is rolled back. `RolledBack`: an earlier rollback to a savepoint stopped half-way.
    pub fn commit(self) -> Result<CommitTicket> {
        self.pre_commit(Flush::ByCaller, |_| ())
    }

    /// Commits as [`commit`](Self::commit) does, for a caller that does not wait: the flusher makes it durable.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_pipelined(self) -> Result<CommitTicket> {
        self.commit_pipelined_then(|_| ())
    }

    /// Commits as [`commit_pipelined`](Self::commit_pipelined) does. `then` is called with the commit number when the
    /// locks are free. It runs before callbacks that are due, because they may wait for transactions that the caller
    /// still counts as running.
    ///
    /// # Errors
    /// Those of [`commit_pipelined`](Self::commit_pipelined); `then` was not called.
    pub fn commit_pipelined_then(self, then: impl FnOnce(Csn)) -> Result<CommitTicket> {
        self.pre_commit(Flush::Soon, then)
    }

    /// Commits for a caller that never waits for durability: the commit comes with a later group. `then` is called as
    /// by [`commit_pipelined_then`](Self::commit_pipelined_then).
    ///
    /// # Errors
    /// Those of [`commit_pipelined`](Self::commit_pipelined); `then` was not called.
    pub fn commit_relaxed_then(self, then: impl FnOnce(Csn)) -> Result<CommitTicket> {
        self.pre_commit(Flush::Later, then)
    }

    pub(super) fn pre_commit(mut self, flush: Flush, then: impl FnOnce(Csn)) -> Result<CommitTicket> {
        let (Some(xid), Some(tag)) = (self.run().xid, self.logged_as()) else {
            let place = self.place();
            return Ok(self.end_unlogged(place, flush, then));
        };
        if self.run().is_broken {
            return Err(Error::RolledBack);
        }
        self.note_thread();
        // A transaction with an xid has changed or locked rows, and snapshot readers meet the xid in row headers.
        // Whether a snapshot sees the xid must never change. So the transaction logs a commit record, which fixes its
        // commit number, unless it has changed nothing and can restore all those headers.
        if self.run().trail.last_lsn == Lsn::ZERO && !mutant("txn: a transaction with locks only logs its commit") {
            let place = self.place();
            if self.restore_locked_headers() {
                return Ok(self.end_unlogged(place, flush, then));
            }
        }
        // A commit may use the reserve for rollbacks, because a rollback in its place would take more.
        let reserved = self.session().reserve_end(Session::cost(MARK_LEN));
        if let Err(cause) = reserved {
            self.abandon_prepared(&cause);
            return Err(cause);
        }
        self.before_record();
        let (last_lsn, observed) = (self.last_lsn(), self.observed());
        let mut lease = self.lease.take().expect("a running transaction has its lease");
        let syncs_before_release = lease.run.trail.syncs_before_release;
        pause::point("txn: about to give up its undo");
        let TxnManager { log, locks, visibility, xids, ended, .. } = &**self.manager;
        if mutant("sabotage: shared locks are free before the commit has its place") {
            locks.release_shared(&mut lease.owner);
        }
        // This precedes the record: a snapshot that could see the commit finds it under way.
        visibility.window().begin_commit(xid);
        // This is the point of no return: the record may be on disk at once. No step after it can fail.
        let dep = Dep::none().transaction(last_lsn).observed(observed);
        let lsn = append_commit(&mut lease.session, tag, dep);
        pause::point("txn: a commit is logged");
        assert!(lsn.csn() > observed, "a commit comes after all that it has seen");
        // The record comes before the status, and the status before the locks. A thread that sees one of these steps
        // also sees the steps before it.
        let csn = visibility.commit(xid, lsn.csn(), |least| push(log, &mut lease.session, tag, lsn, least));
        assert!(lsn.csn() <= csn, "{xid} commits as {csn}, below its record at {lsn}");
        xids.active().leave(lease.owner.index());
        flush.ask(log, &mut lease.session, csn.lsn());
        ended.commits.add(1);
        let (ticket, session) = (lease.session.ticket(lsn, csn, csn.lsn()), lease.session.number());
        if mutant("txn: callbacks before the locks are free") {
            flush.acknowledge(log, session);
        }
        if syncs_before_release {
            // No other transaction may change the table while a restart may still have to undo this one.
            // WAIT: help - or park behind the leader. It fails only if the log has stopped, which the ticket reports.
            let _ = log.force(csn.lsn());
        }
        match self.manager.hold_until_durable {
            None => self.manager.release(lease, csn),
            Some(release) => self.hold_until_durable(lease, csn, release),
        }
        then(csn);
        flush.acknowledge(log, session);
        Ok(ticket)
    }

    /// Releases what a commit need not hold, and holds the other locks and the lease until it is durable.
    fn hold_until_durable(&self, mut lease: Box<Lease>, csn: Csn, release: PrecommitRelease) {
        release(&self.manager.locks, &mut lease.owner);
        // Unused reservations of the last operation are not held, and neither is log space for a rollback.
        lease.session.end_undo_log();
        lease.session.release();
        lease.run.end();
        // The commit ends in whichever thread acknowledges it.
        lease.owner.set_thread(None);
        let held = HeldCommit::begin(&self.manager, lease.is_system());
        self.manager.log.release_when_durable(csn.lsn(), move || held.end(lease, csn));
    }

    /// Stops all transactions if this one was prepared, because no transaction of this run may roll it back or end it
    /// another way. Waiters for its locks are woken and told of the stop.
    fn abandon_prepared(&mut self, cause: &Error) {
        if self.run().trail.prepared_as.is_some() {
            let (manager, lease) = self.manager_and_lease();
            manager.halt.halt(cause);
            manager.locks.finish(&mut lease.owner, None);
        }
    }

    /// Returns the place in the commit order of a transaction that changes nothing. Called before it releases a lock.
    ///
    /// The place is at or above every commit that the transaction has read from. It is no higher than necessary,
    /// because the ticket waits for it.
    ///
    /// The commit numbers of rows with frozen xids are forgotten. But these commits are durable, and not above the
    /// snapshot. So the smaller of the snapshot and the durable CSN takes the place of their numbers.
    fn place(&self) -> Csn {
        let durable = self.manager.log.durable().csn();
        let frozen = self.run().reads.snapshot.get().map_or(durable, |snapshot| snapshot.csn().min(durable));
        self.observed().max(frozen)
    }

    /// Returns the ticket of a transaction that logs nothing. It waits for what was observed, and for nothing beyond.
    fn unlogged_ticket(&self, lease: &mut Lease, place: Csn, flush: Flush) -> CommitTicket {
        let (log, seen) = (&self.manager.log, lease.run.trail.observed.lsn());
        // The observed commit's own caller may not have requested a flush yet.
        if flush != Flush::ByCaller && seen > log.durable() {
            flush.ask(log, &mut lease.session, seen);
        }
        lease.session.ticket(place.lsn(), place, place.lsn())
    }

    /// Restores the headers of all rows that the transaction has locked and not changed, and ends its xid, as a
    /// rollback does. Returns false if a damaged page or the spill file prevents that. Readers of the remaining headers
    /// then need a commit.
    fn restore_locked_headers(&mut self) -> bool {
        let lease = self.lease.take().expect("a running transaction has its lease");
        let Ok(rollback) = to_rollback(lease) else { unreachable!("a transaction that has locked rows has an xid") };
        let (rollback, outcome) = self.manager.try_rollback(rollback);
        self.lease = Some(rollback.lease);
        outcome.is_ok()
    }

    /// Commits a transaction at its `place`. It has changed no row, and has locked none or restored their headers.
    fn end_unlogged(mut self, place: Csn, flush: Flush, then: impl FnOnce(Csn)) -> CommitTicket {
        assert_eq!(
            self.run().trail.last_lsn,
            Lsn::ZERO,
            "a transaction that ends without a commit record has logged nothing"
        );
        let mut lease = self.lease.take().expect("a running transaction has its lease");
        let (ticket, session) = (self.unlogged_ticket(&mut lease, place, flush), lease.session.number());
        if lease.run.xid.is_some() {
            self.manager.xids.active().leave(lease.owner.index());
        }
        self.manager.ended.commits.add(1);
        // The transaction has no undo entry left.
        self.manager.locks.finish(&mut lease.owner, None);
        self.manager.sessions.give_back(lease, Csn::ZERO);
        then(place);
        flush.acknowledge(&self.manager.log, session);
        ticket
    }

    /// Rolls back, and returns the watermark. A result that is returned in spite of the rollback depends on commits up
    /// to it.
    ///
    /// # Errors
    /// `RollbackParked`: the rest is rolled back later (see [`TxnManager::parked`]). `Poisoned`: the rollback could not
    /// be completed, and the log has stopped. The next restart rolls back.
    pub fn rollback(mut self) -> Result<Csn> {
        let observed = self.observed();
        self.roll_back()?;
        Ok(observed)
    }

    pub(super) fn roll_back(&mut self) -> Result<()> {
        if self.lease.is_some() {
            self.note_thread();
        }
        let Some(lease) = self.lease.take() else { return Ok(()) };
        match to_rollback(lease) {
            Ok(rollback) => self.manager.roll_back(rollback).inspect_err(|error| {
                if matches!(error, Error::RollbackParked { .. }) {
                    self.manager.parked.signal();
                }
            }),
            Err(lease) => self.manager.end_rollback(lease, false, Ok(())),
        }
    }
}

/// Returns the rollback of a transaction that has changed or locked rows, or the lease of one that has not.
fn to_rollback(lease: Box<Lease>) -> Result<Rollback, Box<Lease>> {
    let Running { label, xid, ref trail, .. } = lease.run;
    let (Some(xid), Some(logged_as)) = (xid, trail.logged_as(xid)) else { return Err(lease) };
    let (last_lsn, is_prepared) = (trail.last_lsn, trail.prepared_as.is_some());
    Ok(Rollback { lease, xid, logged_as, last_lsn, label, is_prepared, lost: None, copy_cost: None })
}

impl TxnManager {
    /// Releases the locks of a commit, and takes back its lease.
    fn release(&self, mut lease: Box<Lease>, csn: Csn) {
        self.locks.finish(&mut lease.owner, Some(csn));
        self.sessions.give_back(lease, csn);
    }
}

/// A commit that holds its locks and its lease until it is durable.
struct HeldCommit {
    manager: Arc<TxnManager>,
    is_system: bool,
}

impl HeldCommit {
    fn begin(manager: &Arc<TxnManager>, is_system: bool) -> Self {
        manager.sessions.begin_hold(is_system);
        Self { manager: Arc::clone(manager), is_system }
    }

    /// Ends a commit that is durable. If the log has stopped instead, no commit will become durable any more.
    /// Transactions that are granted the locks learn of the stop.
    fn end(self, mut lease: Box<Lease>, csn: Csn) {
        // A panic stops all transactions before the lease is dropped, because dropping it lets waiters for its locks
        // continue.
        let unwinds = HaltOnPanic::new(&self.manager.halt);
        pause::point("txn: a lease comes back");
        self.manager.locks.finish(&mut lease.owner, Some(csn));
        self.manager.sessions.give_back(lease, csn);
        unwinds.disarm();
    }
}

impl Drop for HeldCommit {
    fn drop(&mut self) {
        self.manager.sessions.end_hold(self.is_system);
    }
}

/// Appends the commit record of `xid`, for which log space is reserved.
fn append_commit(session: &mut Session, xid: Xid, dep: Dep) -> Lsn {
    session.append(Record { tag: xid.0, flags: flags::COMMIT, parts: &[&encode_mark(COMMIT)] }, dep)
}

/// Returns a commit number at or above `least` for `xid`, whose commit record at `lsn` was too early for a reader. The
/// log's commit clock is raised to that number.
#[cold]
fn push(log: &Log, session: &mut Session, xid: Xid, lsn: Lsn, least: Csn) -> Csn {
    if log.raise_commit_clock(least) {
        return least;
    }
    // Stamps are log positions. The position of a second record is above every snapshot that a reader can have taken so
    // far.
    match session.reserve_end(Session::cost(MARK_LEN)) {
        Ok(()) => append_commit(session, xid, Dep::none().transaction(lsn)).csn(),
        // The log has stopped, so that number will never be durable. Whether the commit survives is unknown.
        Err(_) => least,
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        let Some(lease) = &self.lease else { return };
        if lease.run.trail.prepared_as.is_some() {
            return;
        }
        // A parked rollback is listed, and a failed one stops the log.
        let _ = self.roll_back();
    }
}
