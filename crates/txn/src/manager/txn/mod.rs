//! A running transaction.

mod begin;
mod changes;
mod commit;
mod locks;
mod prepared;
mod read;
mod reserve;
mod savepoint;
mod take_over;

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
use std::time::Duration;

/// How a transaction runs.
#[derive(Clone, Copy, Debug)]
pub struct TxnOptions {
    /// Shown by errors and warnings that name this transaction.
    pub label: &'static str,
    /// How long it waits for a lock.
    pub lock_timeout: Duration,
    /// How long it waits in the queue for a session to begin in.
    pub session_timeout: Duration,
    /// How long after its first attempt was asked for all its waits are over: for a session, for locks, for undo memory
    /// and for log space.
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

/// The holder of a row, by the xid in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowHolder {
    /// None: its writer has ended.
    None,
    /// This transaction.
    Me,
    /// Another, which is live.
    Other(Xid),
    /// No transaction has had an xid like that: the header is damaged, and to wait would be for ever.
    Unknown,
}

/// A transaction. Dropped before its end, it is rolled back.
///
/// Any error of a wait or a reservation leaves it as it was. The caller chooses whether to go on or to roll back. After
/// a deadlock it rolls back, for others wait until it does.
pub struct Txn {
    manager: ManagerRef,
    /// With all that it knows of itself. Taken at the end.
    lease: Option<Box<Lease>>,
}

/// It may move between threads at any time.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Txn>();
};

impl Txn {
    /// The xid, if the transaction has one.
    #[must_use]
    pub fn xid(&self) -> Option<Xid> {
        self.run().xid
    }

    /// Its label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.run().label
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

    /// Returns the newest commit that the transaction has read from.
    #[must_use]
    pub fn observed(&self) -> Csn {
        self.run().trail.observed
    }

    /// Returns the LSN of its last record, zero before the first.
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        self.run().trail.last_lsn
    }

    /// Notes that an answer given to this transaction rests on a commit.
    pub fn observe(&mut self, csn: Csn) {
        let trail = &mut self.run_mut().trail;
        trail.observed = trail.observed.max(csn);
    }

    /// Notes that an answer given to this transaction rests on what one that has ended has done, whichever that is. It
    /// has ended for this thread, which was granted a lock that the other had.
    pub fn observe_ended(&mut self) {
        self.observe(self.manager.log.current().csn());
    }

    /// Notes where the row of `key` is, which the transaction has locked.
    #[inline]
    pub fn note_row(&mut self, table: TableId, key: &[u8], position: RowPosition) {
        self.lease_mut().last_row.note(table, key, position);
    }

    /// Returns where the row of `key` was, if it is the last one noted.
    #[inline]
    #[must_use]
    pub fn last_row(&self, table: TableId, key: &[u8]) -> Option<RowPosition> {
        self.lease().last_row.find(table, key)
    }

    /// Takes what the caller gave to [`keep`](Self::keep) in the last transaction of the session, if that was a `T`.
    pub fn take_kept<T: Any>(&mut self) -> Option<Box<T>> {
        self.lease_mut().kept.take()?.downcast().ok()
    }

    /// Keeps `memory` for the next transaction of the session.
    pub fn keep<T: Any + Send>(&mut self, memory: Box<T>) {
        self.lease_mut().kept = Some(memory);
    }

    /// The session, for changes of structure that belong to no transaction.
    pub fn session(&mut self) -> &mut Session {
        &mut self.lease_mut().session
    }

    /// Returns the holder of the row whose header names `header_xid`. Called under the latch that covers the header, or
    /// between an optimistic read of it and the validation; the answer for a header that does not validate means
    /// nothing. If the writer has committed, that commit counts as observed.
    pub fn row_holder(&mut self, header_xid: Xid) -> RowHolder {
        if header_xid == Xid::ZERO {
            return RowHolder::None;
        }
        if self.run().xid == Some(header_xid) {
            return RowHolder::Me;
        }
        let (visibility, is_drawn) = (&self.manager.visibility, || header_xid < self.manager.xids.next());
        match visibility.status(header_xid) {
            // The writer of the header had drawn its xid and begun with it, and the latch, or its version, shows that
            // here.
            Status::Live if !is_drawn() => RowHolder::Unknown,
            Status::Spare => RowHolder::Unknown,
            Status::Live => RowHolder::Other(header_xid),
            Status::Committed(csn) if self.manager.keeps_rows_until_durable(csn) => RowHolder::Other(header_xid),
            Status::Committed(csn) => {
                visibility.confirm(header_xid, Some(true), is_drawn);
                self.observe(csn);
                RowHolder::None
            }
            // What an aborted writer left in a header is what its rollback meant to leave.
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

    /// Returns whether nothing that `header_xid` did can be lost or undone any more, and no reader has to know what was
    /// there before: a ghost of it may be purged.
    #[must_use]
    pub fn is_settled(&self, header_xid: Xid) -> bool {
        self.manager.visibility.is_settled(header_xid)
    }

    /// Returns whether the transaction that has written a header may still be rolled back.
    #[must_use]
    pub fn is_live(&self, header_xid: Xid) -> bool {
        header_xid != Xid::ZERO && self.manager.visibility.status(header_xid) == Status::Live
    }

    /// Returns the same as [`is_settled`](Self::is_settled), as far as the view tells that this transaction has.
    #[must_use]
    pub fn was_settled(&self, header_xid: Xid) -> bool {
        let view = &self.lease().view;
        self.manager.visibility.csn_by(view, header_xid).is_some_and(|csn| csn <= view.horizon())
    }

    /// The xid that its records carry.
    fn logged_as(&self) -> Option<Xid> {
        self.run().trail.logged_as(self.run().xid)
    }

    /// Returns what is left for waits, if there is a deadline.
    fn time_left(&self) -> Option<Duration> {
        self.run().waits.left(|| self.manager.now())
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a running transaction has its lease")
    }

    fn run(&self) -> &Running {
        &self.lease().run
    }

    fn run_mut(&mut self) -> &mut Running {
        &mut self.lease_mut().run
    }

    fn lease_mut(&mut self) -> &mut Lease {
        self.lease.as_mut().expect("a running transaction has its lease")
    }

    /// Returns the manager and the lease, borrowed apart: a clone of the manager would write its count.
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
