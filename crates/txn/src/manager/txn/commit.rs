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

/// How a commit gets to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// The caller waits, and so writes the group itself if the log is free.
    ByCaller,
    /// The flusher writes it as soon as it may.
    Soon,
    /// It comes with a later group, for no answer depends on it.
    Later,
}

impl Flush {
    /// Asks `log` for what is up to `lsn`.
    fn ask(self, log: &Log, session: &mut Session, lsn: Lsn) {
        match self {
            Self::ByCaller => {}
            Self::Soon => log.flush_soon(session, lsn),
            Self::Later => log.flush_later(session, lsn),
        }
    }

    /// Calls the callbacks that are due of tickets of a session, if the caller goes on: they may want what this
    /// transaction had.
    fn acknowledge(self, log: &Log, session: usize) {
        if self != Self::ByCaller {
            log.acknowledge(session);
        }
    }
}

impl Txn {
    /// Commits: the order is fixed and the locks are free when it returns; the ticket tells when the commit, and all
    /// that the transaction has read from, is durable. No flusher is woken to write it: the caller waits on the ticket,
    /// and so writes the group itself if the log is free.
    ///
    /// # Errors
    /// `Poisoned`, and then it is rolled back; `RolledBack` after a rollback to a savepoint that stopped half-way.
    pub fn commit(self) -> Result<CommitTicket> {
        self.pre_commit(Flush::ByCaller, |_| ())
    }

    /// Commits as [`commit`](Self::commit) does, for a caller that does not wait: the flusher makes it durable.
    ///
    /// # Errors
    /// `Poisoned`, and then it is rolled back.
    pub fn commit_pipelined(self) -> Result<CommitTicket> {
        self.commit_pipelined_then(|_| ())
    }

    /// Commits as [`commit_pipelined`](Self::commit_pipelined) does. `then` is called with the commit's number when the
    /// locks are free, before callbacks that are due: they may wait for whatever the caller still counts as running.
    ///
    /// # Errors
    /// As [`commit_pipelined`](Self::commit_pipelined); `then` was not called.
    pub fn commit_pipelined_then(self, then: impl FnOnce(Csn)) -> Result<CommitTicket> {
        self.pre_commit(Flush::Soon, then)
    }

    /// Commits for a caller that waits for no durability, now or later: it comes with a later group. `then` is called
    /// as by [`commit_pipelined_then`](Self::commit_pipelined_then).
    ///
    /// # Errors
    /// As [`commit_pipelined`](Self::commit_pipelined); `then` was not called.
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
        // With an xid it has changed rows or locked them, and readers by snapshots find that xid in their headers. They
        // have to find it on one side of theirs for good. So the commit takes a stamp, unless it puts all those headers
        // back.
        if self.run().trail.last_lsn == Lsn::ZERO && !mutant("txn: a transaction with locks only logs its commit") {
            let place = self.place();
            if self.puts_locks_back() {
                return Ok(self.end_unlogged(place, flush, then));
            }
        }
        // A commit may use what is kept back: a rollback in its place would take more.
        let reserved = self.session().reserve_end(Session::cost(MARK_LEN));
        if let Err(cause) = reserved {
            self.abandon_prepared(&cause);
            return Err(cause);
        }
        self.before_record();
        let (last_lsn, observed) = (self.last_lsn(), self.observed());
        let mut lease = self.lease.take().expect("a running transaction has its lease");
        pause::point("txn: about to give up its undo");
        let TxnManager { log, locks, visibility, xids, ended, .. } = &**self.manager;
        if mutant("sabotage: shared locks are free before the commit has its place") {
            locks.release_shared(&mut lease.owner);
        }
        // Before the record: a snapshot that could see the commit finds it under way.
        visibility.window().begin_commit(xid);
        // The point of no return: the record may be on disk at once. Nothing below can fail.
        let dep = Dep::none().transaction(last_lsn).observed(observed);
        let lsn = append_commit(&mut lease.session, tag, dep);
        pause::point("txn: a commit is logged");
        assert!(lsn.csn() > observed, "a commit comes after all that it has seen");
        // The record before the status, the status before the locks: a thread that is let on by one finds the ones
        // before it.
        let csn = visibility.commit(xid, lsn.csn(), |least| push(log, &mut lease.session, tag, lsn, least));
        assert!(lsn.csn() <= csn, "{xid} commits as {csn}, below its record at {lsn}");
        xids.active().leave(lease.owner.index());
        flush.ask(log, &mut lease.session, csn.lsn());
        ended.commits.add(1);
        let (ticket, session) = (lease.session.ticket(lsn, csn, csn.lsn()), lease.session.number());
        if mutant("txn: callbacks before the locks are free") {
            flush.acknowledge(log, session);
        }
        match self.manager.hold_until_durable {
            None => self.manager.release(lease, csn),
            Some(release) => self.hold_until_durable(lease, csn, release),
        }
        then(csn);
        flush.acknowledge(log, session);
        Ok(ticket)
    }

    /// Releases what a commit need not hold, and holds the rest and its lease until it is durable.
    fn hold_until_durable(&self, mut lease: Box<Lease>, csn: Csn, release: PrecommitRelease) {
        release(&self.manager.locks, &mut lease.owner);
        // What its last operation reserved and did not use is not held that long, nor what a rollback would have taken.
        lease.session.end_undo_log();
        lease.session.release();
        lease.run.end();
        // It ends in whatever thread acknowledges it.
        lease.owner.set_thread(None);
        let held = HeldCommit::begin(&self.manager, lease.is_system());
        self.manager.log.release_when_durable(csn.lsn(), move || held.end(lease, csn));
    }

    /// Stops all transactions if this one was prepared: no transaction of this run rolls it back, nor ends it another
    /// way. Those that wait for what it holds are let on, and are told that all have stopped.
    fn abandon_prepared(&mut self, cause: &Error) {
        if self.run().trail.prepared_as.is_some() {
            let (manager, lease) = self.manager_and_lease();
            manager.halt.halt(cause);
            manager.locks.finish(&mut lease.owner, None);
        }
    }

    /// The place in the order of commits of a transaction that changes nothing. Called before it releases a lock.
    ///
    /// It is not below what the transaction has read. The commit numbers of frozen rows are not known any more, but
    /// such rows are durable, and a snapshot is not below what it sees. Nor is it above both that and what was
    /// observed, so no ticket waits for more.
    fn place(&self) -> Csn {
        let durable = self.manager.log.durable().csn();
        let frozen = self.run().reads.snapshot.get().map_or(durable, |snapshot| snapshot.csn().min(durable));
        self.observed().max(frozen)
    }

    /// The ticket of a transaction that logs nothing. It waits for what was observed, and for nothing beyond.
    fn unlogged_ticket(&self, lease: &mut Lease, place: Csn, flush: Flush) -> CommitTicket {
        let (log, seen) = (&self.manager.log, lease.run.trail.observed.lsn());
        // The committer of what was seen may not have asked for a flush yet.
        if flush != Flush::ByCaller && seen > log.durable() {
            flush.ask(log, &mut lease.session, seen);
        }
        lease.session.ticket(place.lsn(), place, place.lsn())
    }

    /// Puts the headers of all rows back that the transaction has locked and not changed, and ends its xid, as a
    /// rollback does. `false` if a damaged page, or the file of old versions, keeps it from that: the rest of the
    /// headers has to find a commit.
    fn puts_locks_back(&mut self) -> bool {
        let lease = self.lease.take().expect("a running transaction has its lease");
        let Ok(rollback) = to_rollback(lease) else { unreachable!("a transaction that has locked rows has an xid") };
        let (rollback, outcome) = self.manager.try_rollback(rollback);
        self.lease = Some(rollback.lease);
        outcome.is_ok()
    }

    /// Commits a transaction that has changed no row, and has locked none or put their headers back, at its `place`.
    fn end_unlogged(mut self, place: Csn, flush: Flush, then: impl FnOnce(Csn)) -> CommitTicket {
        assert_eq!(
            self.run().trail.last_lsn,
            Lsn::ZERO,
            "the last record of a transaction that ends without one of its commit"
        );
        let mut lease = self.lease.take().expect("a running transaction has its lease");
        let (ticket, session) = (self.unlogged_ticket(&mut lease, place, flush), lease.session.number());
        if lease.run.xid.is_some() {
            self.manager.xids.active().leave(lease.owner.index());
        }
        self.manager.ended.commits.add(1);
        // It has no undo entry, or none any more.
        self.manager.locks.finish(&mut lease.owner, None);
        self.manager.sessions.give_back(lease, Csn::ZERO);
        then(place);
        flush.acknowledge(&self.manager.log, session);
        ticket
    }

    /// Rolls back, and returns the watermark: a result that is handed out in spite of the rollback rests on commits up
    /// to it.
    ///
    /// # Errors
    /// `RollbackParked`: the rest is rolled back later (see [`TxnManager::parked`]). `Poisoned`: the rollback could not
    /// be completed, the log has stopped, and the next restart rolls back.
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
    /// Releases the locks of a commit, and takes its lease back.
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

    /// Ends a commit that is durable. If the log has stopped instead, nothing will be any more, and a transaction that
    /// is let on hears of that.
    fn end(self, mut lease: Box<Lease>, csn: Csn) {
        // A panic halts before the lease is dropped, which lets on those that wait for its locks.
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

/// A commit number at or above `least` for `xid`, whose commit record at `lsn` was too early for a reader; the log's
/// clock of commits is raised to it.
#[cold]
fn push(log: &Log, session: &mut Session, xid: Xid, lsn: Lsn, least: Csn) -> Csn {
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

impl Drop for Txn {
    fn drop(&mut self) {
        let Some(lease) = &self.lease else { return };
        if lease.run.trail.prepared_as.is_some() {
            return;
        }
        // A rollback that is parked is listed, and one that fails stops the log.
        let _ = self.roll_back();
    }
}
