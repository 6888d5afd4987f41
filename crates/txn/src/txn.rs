//! A running transaction.

use crate::format::MARK_LEN;
use crate::manager::{Lease, TxnManager};
use crate::read::Isolation;
use crate::readers::SnapshotLimits;
use crate::resource::compensation_cost;
use crate::savepoint::Marks;
use crate::snapshot::{Snapshot, SnapshotKind};
use crate::status::Status;
use crate::undo::Fetched;
use crate::undo::MAX_STRUCTURE;
use foreshore_base::{Csn, Error, Lsn, Result, Xid};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{Change, ExclusiveGuard};
use foreshore_lock::{Attempt, Patience};
use foreshore_sync::model::mutant;
use foreshore_sync::{Nanos, thread_index};
use foreshore_wal::{Dep, Session, SpaceWait};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How a transaction runs.
#[derive(Clone, Copy, Debug)]
pub struct TxnOptions {
    /// Shown by errors and warnings that name this transaction.
    pub label: &'static str,
    /// How long it waits for a lock.
    pub lock_timeout: Duration,
    /// How long it waits in line for a session to begin in.
    pub session_timeout: Duration,
    /// How long after its first attempt was asked for all its waits are over: for a session, for locks, for undo memory and for log space.
    pub deadline: Option<Duration>,
    /// What came before, if it is run again.
    pub attempt: Attempt,
    /// What it may see of others.
    pub isolation: Isolation,
    /// Which snapshots it reads by, if it does.
    pub reads: SnapshotKind,
    /// What these may take; `None` for what the manager's options say.
    pub snapshot_limits: Option<SnapshotLimits>,
}

impl Default for TxnOptions {
    fn default() -> Self {
        Self {
            label: "",
            lock_timeout: Duration::from_secs(10),
            session_timeout: Duration::ZERO,
            deadline: None,
            attempt: Attempt::default(),
            isolation: Isolation::default(),
            reads: SnapshotKind::Latest,
            snapshot_limits: None,
        }
    }
}

/// Who holds a row, by the xid in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowHolder {
    /// Nobody: its writer has ended.
    Nobody,
    /// This transaction.
    Me,
    /// Another, which is live.
    Other(Xid),
    /// No transaction has had an xid like that: the header is damaged, and to wait would be for ever.
    Unknown,
}

/// A transaction. Dropped before its end, it is rolled back.
///
/// Any error of a wait or a reservation leaves it as it was; whether to go on or to roll back is the caller's choice, but
/// for a deadlock, where others wait until it rolls back.
pub struct Txn {
    pub(crate) manager: Arc<TxnManager>,
    /// Taken at the end.
    pub(crate) lease: Option<Box<Lease>>,
    pub(crate) xid: Option<Xid>,
    /// It was drawn, and the window and the ceiling of xids may have to move up.
    pub(crate) is_new_xid: bool,
    /// LSN of its last record, zero before the first.
    pub(crate) last_lsn: Lsn,
    observed: Csn,
    lock_timeout: Duration,
    /// When all its waits are over.
    pub(crate) deadline: Option<Nanos>,
    /// When its first attempt was asked for.
    pub(crate) first: Nanos,
    /// The time of the operation that runs for its waits for locks, from the first of them on.
    pub(crate) patience: Option<Patience>,
    pub(crate) label: &'static str,
    pub(crate) isolation: Isolation,
    pub(crate) reads: SnapshotKind,
    pub(crate) snapshot_limits: SnapshotLimits,
    /// Once it is prepared, the xid under which the log has it: after a restart that is not the one in rows.
    pub(crate) prepared_as: Option<Xid>,
    /// Of the whole transaction.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// A rollback to a savepoint stopped half-way: it can only be rolled back as a whole.
    pub(crate) is_broken: bool,
    /// From the file of old versions.
    pub(crate) fetched: Option<Box<Fetched>>,
    /// Those that can be rolled back to, by age.
    pub(crate) savepoints: Marks,
    /// The current reservation, made again after a wait: bytes of the log, and of the undo entry, if there is to be one.
    reserved: (usize, Option<usize>),
}

/// It may move between threads at any time.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Txn>();
};

impl Txn {
    pub(crate) fn new(manager: Arc<TxnManager>, lease: Box<Lease>, options: TxnOptions) -> Self {
        let snapshot_limits = options.snapshot_limits.unwrap_or(manager.snapshot_limits);
        let first = options.attempt.first.unwrap_or(lease.owner.began());
        Self {
            first,
            patience: None,
            manager,
            deadline: options.deadline.map(|deadline| first + deadline),
            lease: Some(lease),
            xid: None,
            is_new_xid: false,
            last_lsn: Lsn::ZERO,
            observed: Csn::ZERO,
            lock_timeout: options.lock_timeout,
            label: options.label,
            isolation: options.isolation,
            reads: options.reads,
            snapshot_limits,
            prepared_as: None,
            snapshot: None,
            is_broken: false,
            fetched: None,
            savepoints: Marks::default(),
            reserved: (0, None),
        }
    }

    /// The xid, if the transaction has one.
    #[must_use]
    pub const fn xid(&self) -> Option<Xid> {
        self.xid
    }

    /// Its label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        self.label
    }

    /// When this attempt began, by the clock of the lock manager.
    #[must_use]
    pub fn began(&self) -> Nanos {
        self.lease().owner.began()
    }

    /// Notes that the calling thread works for it.
    pub fn note_thread(&mut self) {
        self.lease_mut().owner.set_thread(Some(thread_index()));
    }

    /// How long the waits for locks of an operation that begins now may last.
    #[must_use]
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.time_left().map_or(self.lock_timeout, |left| left.min(self.lock_timeout))
    }

    /// The newest commit that the transaction has read from.
    #[must_use]
    pub const fn observed(&self) -> Csn {
        self.observed
    }

    /// LSN of its last record, zero before the first.
    #[must_use]
    pub const fn last_lsn(&self) -> Lsn {
        self.last_lsn
    }

    /// Notes that an answer given to this transaction rests on a commit.
    pub fn observe(&mut self, csn: Csn) {
        self.observed = self.observed.max(csn);
    }

    /// Notes that an answer given to this transaction rests on what one that has ended has done, whichever that is. It has
    /// ended for this thread, which was granted a lock that the other had.
    pub fn observe_ended(&mut self) {
        self.observe(self.manager.log.current().csn());
    }

    /// The session, for changes of structure that belong to no transaction.
    pub fn session(&mut self) -> &mut Session {
        &mut self.lease_mut().session
    }

    /// Runs `work` of this transaction that frees space: it may use log space that is kept back on a full disk.
    pub fn freeing<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.session().set_frees(true);
        let done = work(self);
        self.session().set_frees(before);
        done
    }

    /// Runs `work`, and again where the disk has refused it space and log is given up on request, for a bounded time. Without
    /// latches. What was reserved before is not reserved any more.
    ///
    /// # Errors
    /// Those of `work`; `Poisoned`.
    pub fn with_space<T>(&mut self, mut work: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let (mut wait, mut freed) = (None, true);
        loop {
            let done = work(self);
            if !matches!(done, Err(Error::DiskFull { .. })) || !freed {
                return done.map_err(|error| self.manager.name_log_holder(error));
            }
            self.give_back();
            let most = self.time_left();
            freed = self.session().wait_for_space(wait.get_or_insert_with(|| SpaceWait::within(most)))?;
        }
    }

    /// Who holds the row whose header names `header_xid`. Called under the latch that covers the header, or between an optimistic
    /// read of it and the validation; the answer for a header that does not validate means nothing. If the writer has
    /// committed, that commit counts as observed.
    pub fn row_holder(&mut self, header_xid: Xid) -> RowHolder {
        if header_xid == Xid::ZERO {
            return RowHolder::Nobody;
        }
        if self.xid == Some(header_xid) {
            return RowHolder::Me;
        }
        match self.manager.window.get(header_xid) {
            // Whoever wrote the header had drawn its xid and begun with it, and the latch, or its version, shows that here.
            Status::Live if header_xid >= self.manager.xids.next() => RowHolder::Unknown,
            Status::Spare => RowHolder::Unknown,
            Status::Live => RowHolder::Other(header_xid),
            Status::Committed(csn) if self.manager.keeps_rows_until_durable(csn) => RowHolder::Other(header_xid),
            Status::Committed(csn) => {
                self.manager.ask(header_xid, Some(true));
                self.observe(csn);
                RowHolder::Nobody
            }
            // What an aborted writer left in a header is what its rollback meant to leave.
            Status::Aborted => {
                self.manager.ask(header_xid, Some(false));
                RowHolder::Nobody
            }
            Status::Frozen => {
                self.manager.ask(header_xid, None);
                RowHolder::Nobody
            }
        }
    }

    /// Whether nothing that `header_xid` did can be lost or undone any more, and no reader has to know what was there before:
    /// a ghost of it may be purged.
    #[must_use]
    pub fn is_settled(&self, header_xid: Xid) -> bool {
        self.manager.is_settled(header_xid)
    }

    /// Whether the transaction that has written a header may still be rolled back.
    #[must_use]
    pub fn is_live(&self, header_xid: Xid) -> bool {
        header_xid != Xid::ZERO && self.manager.window.get(header_xid) == Status::Live
    }

    /// As [`is_settled`](Self::is_settled), as far as the view tells that this transaction has.
    #[must_use]
    pub fn was_settled(&self, header_xid: Xid) -> bool {
        let view = &self.lease().view;
        self.manager.csn_by(view, header_xid).is_some_and(|csn| csn <= view.horizon())
    }

    /// Makes sure that records of `log_bytes` together (see [`Session::cost`]) and one undo entry, of `undo_bytes` in its body
    /// and the rest of the value before, can be entered. Without latches; waits by this transaction keep it.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`, `DiskFull`, `LogSpace`, `Poisoned`. Nothing has changed then. Past the deadline
    /// [`by_deadline`](Self::by_deadline) makes `Deadline` of those that end a wait.
    pub fn reserve(&mut self, log_bytes: usize, undo_bytes: usize) -> Result<()> {
        self.reserve_undo(undo_bytes)?;
        // The commit record goes with it, so that a commit after changes has it already as a rule.
        let bytes = log_bytes + Session::cost(MARK_LEN);
        self.reserve_log(bytes, compensation_cost(undo_bytes) + MAX_STRUCTURE)?;
        self.reserved = (bytes, Some(undo_bytes));
        Ok(())
    }

    /// Ends an operation: log space that it reserved and did not use goes back. A transaction that is idle must not sit on
    /// it, because the space is that of the log's buffer and others may wait for it. So does memory for undo where it is short.
    pub fn release(&mut self) {
        self.patience = None;
        self.give_back();
    }

    /// Gives back what is reserved and was not used.
    fn give_back(&mut self) {
        self.reserved = (0, None);
        let may_agree = self.may_agree();
        let has_xid = self.xid.is_some();
        let lease = self.lease_mut();
        lease.session.release();
        lease.undo.release(may_agree);
        if has_xid {
            let lease = self.lease();
            self.manager.active.note_versions(lease.owner.index(), lease.undo.entries());
        }
    }

    /// Whether it changes nothing of its undo until it takes back all, so that full chunks may be moved.
    pub(crate) fn may_agree(&self) -> bool {
        self.manager.undo.can_spill() && !self.savepoints.is_any_in_use()
    }

    /// Logs a change of this transaction and marks and stamps its `pages`; `dep` is what it rests on beside them and the
    /// transaction itself. If it is [`UNDOABLE`], the newest undo entry is the one that takes it back.
    pub fn log_change(&mut self, change: &Change<'_>, dep: Dep, pages: &mut [&mut ExclusiveGuard<'_>]) -> Lsn {
        let xid = self.xid.expect("a transaction that changes has an xid");
        let is_late = mutant("txn: the first record is noted behind it");
        if !is_late {
            self.before_record();
        }
        let dep = dep.transaction(self.last_lsn).observed(self.observed);
        let lease = self.lease_mut();
        let lsn = foreshore_buffer::change(&mut lease.session, dep, xid.0, change, pages);
        if is_late {
            self.before_record();
        }
        let lease = self.lease_mut();
        if change.flags & UNDOABLE != 0 {
            let body = lease.undo.stamp_newest(lsn);
            lease.session.charge_undo_log(compensation_cost(body));
        }
        let before = self.last_lsn;
        assert!(before < lsn, "{xid} logs a change at {lsn}, behind its record at {before}");
        self.last_lsn = lsn;
        lsn
    }

    /// A record of this transaction is about to be appended: checkpoints keep the log from here on if it is the first one.
    pub(crate) fn before_record(&self) {
        if self.last_lsn == Lsn::ZERO {
            self.manager.note_first_record(self.lease().owner.index());
        }
    }

    /// The xid that its records carry.
    pub(crate) fn logged_as(&self) -> Option<Xid> {
        self.prepared_as.or(self.xid)
    }

    pub(crate) fn reserve_again(&mut self) -> Result<()> {
        let (log_bytes, undo_bytes) = self.reserved;
        undo_bytes.map_or(Ok(()), |bytes| self.reserve_undo(bytes))?;
        let undo_log = undo_bytes.map_or(0, |bytes| compensation_cost(bytes) + MAX_STRUCTURE);
        self.reserve_log(log_bytes, undo_log)
    }

    fn reserve_log(&mut self, log_bytes: usize, undo_log: u64) -> Result<()> {
        let session = self.session();
        // A wait for space gives the reservation of the buffer back, so that comes last.
        let reserved = session.reserve_undo_log(undo_log).and_then(|()| session.reserve(log_bytes));
        reserved.map_err(|error| self.manager.name_log_holder(error))
    }

    pub(crate) fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a running transaction has its lease")
    }

    pub(crate) fn lease_mut(&mut self) -> &mut Lease {
        self.lease.as_mut().expect("a running transaction has its lease")
    }

    /// The manager and the lease, borrowed apart: a clone of the manager would write its count, which all threads share.
    pub(crate) fn manager_and_lease(&mut self) -> (&Arc<TxnManager>, &mut Lease) {
        (&self.manager, self.lease.as_mut().expect("a running transaction has its lease"))
    }
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { xid, last_lsn, observed, .. } = self;
        let mut shown = f.debug_struct("Txn");
        shown.field("xid", xid).field("last_lsn", last_lsn).field("observed", observed).finish_non_exhaustive()
    }
}
