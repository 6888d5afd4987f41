//! A running transaction.

mod begin;
mod changes;
mod commit;
mod locks;
mod losers;
mod prepared;
mod read;
mod reserve;
mod savepoint;
mod take_over;

pub use losers::{Losers, LosersHold};
pub use prepared::{InDoubt, MAX_PREPARED_NAME, Prepared};
pub use take_over::{TakenOver, Unfinished};

use super::{ManagerRef, TxnManager};
use crate::isolation::Isolation;
use crate::sessions::{Lease, RowPosition, Running};
use crate::visibility::status::Status;
use crate::visibility::{SnapshotKind, SnapshotLimits};
use crate::waits::Waits;
use foreshore_base::{Csn, Lsn, TableId, Xid};
use foreshore_lock::Attempt;
use foreshore_sync::{Nanos, thread_index};
use foreshore_wal::Session;
use std::any::Any;
use std::fmt;
use std::mem;
use std::time::Duration;

/// The options of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TxnOptions {
    /// The name of this transaction in errors and warnings.
    pub label: &'static str,
    /// The most time that one operation waits for locks.
    pub lock_timeout: Duration,
    /// The most time that it waits in the queue for a session.
    pub session_timeout: Duration,
    /// The time after which all its waits end: for a session, for locks, for undo memory and for log space. It counts
    /// from the request of the first attempt.
    pub deadline: Option<Duration>,
    /// The history of earlier attempts, if it is retried.
    pub attempt: Attempt,
    /// The isolation level.
    pub isolation: Isolation,
    /// The kind of its snapshots, if it reads by snapshots.
    pub reads: SnapshotKind,
    /// The limits of these snapshots; `None` for the manager's options.
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

impl TxnOptions {
    fn waits(&self, first: Nanos) -> Waits {
        Waits::new(first, self.deadline, self.lock_timeout)
    }

    /// Returns how long a wait for a session that begins now may last.
    fn time_for_a_session(&self, now: Nanos) -> Duration {
        let left = self.waits(self.attempt.first.unwrap_or(now)).left(|| now);
        left.map_or(self.session_timeout, |left| left.min(self.session_timeout))
    }
}

/// The holder of a row, according to the xid in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowHolder {
    /// No transaction, because the writer has ended.
    None,
    /// This transaction.
    Me,
    /// Another transaction, which is live.
    Other(Xid),
    /// No transaction has had this xid. The header is damaged, and a wait would never end.
    Unknown,
}

/// A transaction. If it is dropped before its end, it is rolled back.
///
/// An error of a wait or a reservation leaves the transaction as it was. The caller chooses whether to continue or to
/// roll back. After a deadlock it has to roll back, because others wait until it does.
pub struct Txn {
    manager: ManagerRef,
    /// The lease, with the state of the transaction. It is taken out at the end.
    lease: Option<Box<Lease>>,
}

/// A transaction may move between threads at any time.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Txn>();
};

impl Txn {
    /// Returns the xid, if the transaction has one.
    #[must_use]
    pub fn xid(&self) -> Option<Xid> {
        self.run().xid
    }

    /// Returns the label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.run().label
    }

    /// Returns when this attempt began, by the clock of the lock manager, to some milliseconds.
    #[must_use]
    pub fn began(&self) -> Nanos {
        self.lease().owner.began()
    }

    /// Records that the calling thread works for the transaction.
    pub fn note_thread(&mut self) {
        self.lease_mut().owner.set_thread(Some(thread_index()));
    }

    /// Returns the newest commit that the transaction has read from.
    #[must_use]
    pub fn observed(&self) -> Csn {
        self.run().trail.observed
    }

    /// Returns the LSN of its last record, zero before the first.
    #[must_use]
    #[inline]
    pub fn last_lsn(&self) -> Lsn {
        self.run().trail.last_lsn
    }

    /// Records that an answer given to this transaction depends on a commit.
    pub fn observe(&mut self, csn: Csn) {
        let trail = &mut self.run_mut().trail;
        trail.observed = trail.observed.max(csn);
    }

    /// Records that an answer given to this transaction depends on an unknown transaction that has ended. This thread
    /// knows of the end because it was granted a lock that the other held.
    pub fn observe_ended(&mut self) {
        self.observe(self.manager.log.current().csn());
    }

    /// Returns whether a change or a rollback to a savepoint stopped half-way. Then neither a commit nor a prepare
    /// succeeds.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.run().is_broken
    }

    /// Sets whether a change of several rows is incomplete, and returns what was set before. The caller sets it before
    /// such a change and restores it afterwards, unless a panic comes between.
    pub fn set_partial(&mut self, is_partial: bool) -> bool {
        let was_partial = mem::replace(&mut self.run_mut().is_broken, is_partial);
        assert!(is_partial || was_partial, "a change is complete that has not begun");
        was_partial
    }

    /// Records the position of a row that the transaction has written, or locked for a write that follows.
    #[inline]
    pub fn note_row(&mut self, table: TableId, row: RowPosition, is_locked: bool) {
        self.lease_mut().last_rows.of_mut(table).note(table, row, is_locked);
    }

    /// Forgets the row that the session recorded last for `table`, so that the next write descends from the root.
    pub fn forget_row(&mut self, table: TableId) {
        self.lease_mut().last_rows.of_mut(table).forget();
    }

    /// Returns the position of the row that the session recorded last for `table`, if the next write of `table` is
    /// probably in its leaf. It is if the row is only locked, or if the row before was in that leaf too.
    #[inline]
    #[must_use]
    pub fn last_row(&self, table: TableId) -> Option<RowPosition> {
        self.lease().last_rows.of(table).find(table)
    }

    /// Takes the memory that the session's last transaction gave to [`keep`](Self::keep), if it is a `T`.
    pub fn take_kept<T: Any>(&mut self) -> Option<Box<T>> {
        self.lease_mut().kept.take()?.downcast().ok()
    }

    /// Keeps `memory` for the next transaction of the session.
    pub fn keep<T: Any + Send>(&mut self, memory: Box<T>) {
        self.lease_mut().kept = Some(memory);
    }

    /// Returns the session, for structure changes that belong to no transaction.
    pub fn session(&mut self) -> &mut Session {
        &mut self.lease_mut().session
    }

    /// Returns the holder of the row whose header names `header_xid`. If the writer has committed, that commit counts
    /// as observed. Called under the latch that covers the header, or between an optimistic read of it and the
    /// validation. For a header that does not validate the answer is meaningless.
    pub fn row_holder(&mut self, header_xid: Xid) -> RowHolder {
        if header_xid == Xid::ZERO {
            return RowHolder::None;
        }
        if self.run().xid == Some(header_xid) {
            return RowHolder::Me;
        }
        let (visibility, is_drawn) = (&self.manager.visibility, || header_xid < self.manager.xids.next());
        match visibility.status(header_xid) {
            // The writer had drawn its xid and set its status before it wrote the header. The latch, or its version,
            // makes that visible here.
            Status::Live if !is_drawn() => RowHolder::Unknown,
            Status::Spare => RowHolder::Unknown,
            Status::Live => RowHolder::Other(header_xid),
            Status::Committed(csn) if self.manager.keeps_rows_until_durable(csn) => RowHolder::Other(header_xid),
            Status::Committed(csn) => {
                visibility.confirm(header_xid, Some(true), is_drawn);
                self.observe(csn);
                RowHolder::None
            }
            // A header with an aborted xid is in the state in which the rollback left it.
            Status::Aborted => {
                visibility.confirm(header_xid, Some(false), is_drawn);
                RowHolder::None
            }
            Status::Frozen => {
                visibility.confirm(header_xid, None, is_drawn);
                RowHolder::None
            }
        }
    }

    /// Returns whether the changes of `header_xid` are final and no reader needs the state before them. Final means
    /// that they can be neither lost nor undone. A ghost with that xid may be purged.
    #[must_use]
    pub fn is_settled(&self, header_xid: Xid) -> bool {
        self.manager.visibility.is_settled(header_xid)
    }

    /// Returns whether the transaction that wrote a header is live and may still be rolled back.
    #[must_use]
    pub fn is_live(&self, header_xid: Xid) -> bool {
        header_xid != Xid::ZERO && self.manager.visibility.status(header_xid) == Status::Live
    }

    /// Returns the same as [`is_settled`](Self::is_settled), but only as far as this transaction's own view knows.
    #[must_use]
    pub fn was_settled(&self, header_xid: Xid) -> bool {
        let view = &self.lease().view;
        self.manager.visibility.csn_by(view, header_xid).is_some_and(|csn| csn <= view.horizon())
    }

    /// Returns the xid that its records carry.
    fn logged_as(&self) -> Option<Xid> {
        self.run().trail.logged_as(self.run().xid)
    }

    /// Returns the time left until the deadline, if there is one.
    fn time_left(&self) -> Option<Duration> {
        self.run().waits.left(|| self.manager.now())
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a running transaction has its lease")
    }

    #[inline]
    fn run(&self) -> &Running {
        &self.lease().run
    }

    fn run_mut(&mut self) -> &mut Running {
        &mut self.lease_mut().run
    }

    fn lease_mut(&mut self) -> &mut Lease {
        self.lease.as_mut().expect("a running transaction has its lease")
    }

    /// Returns the manager and the lease as separate borrows. Cloning the manager would write its reference count.
    fn manager_and_lease(&mut self) -> (&TxnManager, &mut Lease) {
        (&self.manager, self.lease.as_mut().expect("a running transaction has its lease"))
    }
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.lease.as_ref().map(|lease| &lease.run);
        f.debug_struct("Txn").field("run", &run).finish_non_exhaustive()
    }
}
