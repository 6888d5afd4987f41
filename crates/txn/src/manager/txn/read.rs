//! Reads by snapshots: what a transaction sees of rows.

use super::Txn;
use crate::isolation::{Isolation, Seen};
use crate::manager::TxnManager;
use crate::sessions::{Lease, Reads, Running};
use crate::undo::{Fetched, Older, UndoPtr};
use crate::visibility::readers::SnapshotCost;
use crate::visibility::{ReadOperation, Snapshot, SnapshotKind, SnapshotRef};
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_sync::BiasedOwner;
use foreshore_sync::model::mutant;

impl TxnManager {
    /// Takes a snapshot. Errors and warnings name its reader by `label`.
    #[must_use]
    pub fn snapshot(&self, kind: SnapshotKind, label: &'static str) -> Snapshot {
        self.visibility.snapshot(kind, self.visibility.about(label, self.now(), None), || self.xids.next())
    }
}

impl Txn {
    /// Returns the isolation level of the transaction.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.run().reads.isolation
    }

    /// Takes the snapshot for the whole transaction, which has just begun.
    pub(super) fn take_snapshot(&mut self) {
        let (TxnManager { visibility, xids, .. }, Lease { run, owner, .. }) = self.manager_and_lease();
        let Running { label, reads: Reads { kind, limits, snapshot, .. }, .. } = run;
        snapshot.take(visibility, *kind, visibility.about(label, owner.began(), *limits), || xids.next());
    }

    /// Returns the snapshot by which the transaction reads from begin to end, if it has one. Other transactions may
    /// [share](Self::share_snapshot) it, even if this one has ended.
    pub fn own_snapshot(&mut self) -> Option<SnapshotRef> {
        self.run_mut().reads.snapshot.hand_out()
    }

    /// Reads by the snapshot of another transaction from here on. This one has a snapshot from begin to end too, and
    /// runs no operation. The other one may run on another thread. The snapshot stays in use until both have ended, and
    /// is cancelled for both.
    ///
    /// # Errors
    /// `SnapshotTooOld` if it was cancelled.
    pub fn share_snapshot(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.check_snapshot(snapshot)?;
        self.run_mut().reads.snapshot.share(snapshot);
        Ok(())
    }

    /// Takes a snapshot for one operation.
    fn take_one(&self) -> SnapshotRef {
        let (Running { label, reads: Reads { kind, limits, .. }, .. }, manager) = (self.run(), &self.manager);
        let about = manager.visibility.about(label, manager.now(), *limits);
        BiasedOwner::new(manager.visibility.snapshot(*kind, about, || manager.xids.next())).hand_out()
    }

    /// Returns the snapshot for an operation that begins now; `None` if the operation reads the newest versions under
    /// locks.
    ///
    /// # Errors
    /// `SnapshotTooOld`.
    pub fn reads_at(&mut self) -> Result<Option<SnapshotRef>> {
        match self.run().reads.isolation {
            Isolation::Serializable => Ok(None),
            Isolation::ReadCommitted => Ok(Some(self.take_one())),
            Isolation::Snapshot => {
                let snapshot = self.run_mut().reads.snapshot.hand_out().expect("taken at the start");
                self.check_snapshot(&snapshot)?;
                Ok(Some(snapshot))
            }
        }
    }

    /// Drops the snapshot of an operation that has ended. Cheaper than its drop if the whole transaction has it.
    #[inline]
    pub fn end_reads_at(&mut self, snapshot: SnapshotRef) {
        self.run_mut().reads.snapshot.take_back(snapshot);
    }

    /// Begins an operation that reads by `snapshot` versions that are kept only while a snapshot needs them. The
    /// snapshot is this transaction's. The operation ends before another thread works for the transaction.
    ///
    /// # Errors
    /// `SnapshotTooOld`.
    pub fn begin_read<'s>(&mut self, snapshot: &'s Snapshot) -> Result<ReadOperation<'s>> {
        snapshot.enter().ok_or_else(|| self.too_old(snapshot.cost().unwrap_or_default()))
    }

    fn too_old(&self, SnapshotCost { age, bytes }: SnapshotCost) -> Error {
        Error::SnapshotTooOld { label: self.run().label, age, bytes }
    }

    /// Checks that `snapshot` was not cancelled. Called after a read, before its result is returned.
    ///
    /// # Errors
    /// `SnapshotTooOld`: what was read may be wrong.
    pub fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        snapshot.cost().map_or(Ok(()), |cost| Err(self.too_old(cost)))
    }

    /// Returns what this transaction sees, by `snapshot`, of a row whose header has `xid` and `undo`.
    ///
    /// Called under the latch that covers the header, or between an optimistic read of it and its validation. `holds`
    /// returns whether the page validates; otherwise the answer is meaningless. An older value goes to `image`. The
    /// commit that left the seen version counts as observed.
    pub fn see(
        &mut self,
        snapshot: &Snapshot,
        xid: Xid,
        undo: UndoPtr,
        image: &mut Vec<u8>,
        holds: impl Fn() -> bool,
    ) -> Seen {
        let (seen, csn) = self.find(snapshot, xid, undo, image, holds);
        if let Some(csn) = csn {
            self.observe_by(snapshot, csn);
        }
        seen
    }

    /// Requests the older version that [`see`](Self::see) would need for a row on a page that the caller has not
    /// reached yet. Nothing of the row is returned, so no commit counts as observed. Called as [`see`](Self::see) is.
    pub fn want(
        &mut self,
        snapshot: &Snapshot,
        xid: Xid,
        undo: UndoPtr,
        image: &mut Vec<u8>,
        holds: impl Fn() -> bool,
    ) {
        self.find(snapshot, xid, undo, image, holds);
    }

    /// Returns the result of [`see`](Self::see), and the commit that left the seen version.
    fn find(
        &mut self,
        snapshot: &Snapshot,
        xid: Xid,
        undo: UndoPtr,
        image: &mut Vec<u8>,
        holds: impl Fn() -> bool,
    ) -> (Seen, Option<Csn>) {
        let is_mine =
            self.run().xid == Some(xid) && !mutant("sabotage: a transaction does not see what it has written");
        if xid == Xid::ZERO {
            return (Seen::Newest, None);
        }
        if let Some(seen) = if is_mine { self.see_own(snapshot, undo) } else { None } {
            return (seen, None);
        }
        if let Some(csn) = if is_mine { None } else { snapshot.sees(xid) } {
            return (Seen::Newest, Some(csn));
        }
        // Its undo pointer is of the previous run.
        if xid < self.manager.visibility.window().first() {
            return (Seen::Earlier(xid), None);
        }
        // A cancelled snapshot may follow links into overwritten undo, even in circles.
        let holds = || holds() && !snapshot.is_cancelled();
        let mut older = self.manager.undo.arena().older(undo, snapshot.csn(), image, holds);
        if let Older::Spilled(from) = older {
            older = self.run_mut().reads.fetched.get_or_insert_default().answer(from, snapshot.csn(), image);
        }
        match older {
            Older::Row(flags, csn) => (Seen::Older(flags), Some(csn)),
            Older::Absent => (Seen::Nothing, None),
            Older::Spilled(_) => (Seen::Spilled, None),
            Older::Lost => (Seen::Lost, None),
            Older::Unfinished => (Seen::Unfinished, None),
        }
    }

    /// Returns what the transaction sees of a row that it has changed; `None` for a row that it has only locked. A
    /// locked row is seen as it was before the lock, because a snapshot of one operation may be older than the row. The
    /// snapshot of the whole transaction is never older, or the lock would have failed.
    fn see_own(&mut self, snapshot: &Snapshot, undo: UndoPtr) -> Option<Seen> {
        if self.run().reads.snapshot.get().is_some() || mutant("txn: a locked row is seen as it is") {
            return Some(Seen::Newest);
        }
        let is_lock = match self.manager.undo.arena().is_lock(undo) {
            Ok(is_lock) => Some(is_lock),
            Err(spot) => self.run_mut().reads.fetched.get_or_insert_default().is_lock(spot, snapshot.csn()),
        };
        is_lock.map_or(Some(Seen::Spilled), |is_lock| (!is_lock).then_some(Seen::Newest))
    }

    /// Reads from the spill file the older versions that [`see`](Self::see) reported as spilled. The same call of `see`
    /// then finds them. The caller cannot continue without the first `needed` of them. Called without a latch, after
    /// the pages have validated and the snapshot was found in use.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written. Only needed versions cause errors.
    pub fn fetch(&mut self, snapshot: &Snapshot, needed: usize) -> Result<()> {
        let is_cancelled = || snapshot.is_cancelled();
        let (manager, lease) = self.manager_and_lease();
        let fetched = lease.run.reads.fetched.as_mut();
        fetched.map_or(Ok(()), |fetched| manager.undo.arena().fetch(fetched, needed, &is_cancelled))
    }

    /// Returns how many older versions the next [`fetch`](Self::fetch) reads.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.run().reads.fetched.as_ref().map_or(0, |fetched| fetched.wanted())
    }

    /// Returns whether a caller may request more versions than it needs within the memory meant for that.
    #[must_use]
    pub fn may_fetch_more(&self) -> bool {
        self.run().reads.fetched.as_ref().is_none_or(|fetched| fetched.has_space())
    }

    /// Returns whether the fetched versions take twice the memory meant for them, although most are not requested
    /// again.
    #[must_use]
    pub fn fetched_is_over(&self) -> bool {
        self.run().reads.fetched.as_ref().is_some_and(|fetched| fetched.is_over())
    }

    /// Cancels the requests from number `from` on, because their page has changed.
    pub fn unwant(&mut self, from: usize) {
        if let Some(fetched) = &mut self.run_mut().reads.fetched {
            fetched.unwant(from);
        }
    }

    /// Drops what was fetched, and what was requested.
    pub fn forget_fetched(&mut self) {
        if let Some(fetched) = &mut self.run_mut().reads.fetched {
            fetched.forget();
        }
    }

    /// Exchanges the fetched versions with `other`. A scan keeps its own between two steps, so that other reads of the
    /// transaction do not mix with them.
    pub fn swap_fetched(&mut self, other: &mut Option<Box<Fetched>>) {
        std::mem::swap(&mut self.run_mut().reads.fetched, other);
    }

    /// Records that the transaction has read from `csn`. Only numbers from pages that do not validate are above the
    /// snapshot.
    fn observe_by(&mut self, snapshot: &Snapshot, csn: Csn) {
        self.observe(csn.min(snapshot.csn()));
    }

    /// Refuses to change a row if the transaction's snapshot does not see the row's last holder. `xid` is that holder,
    /// which has ended.
    ///
    /// An xid of zero stands for a row that does not exist.
    ///
    /// # Errors
    /// `Conflict`. `SnapshotTooOld` if the snapshot was cancelled: it may see what it should not, and no longer keeps
    /// versions from being purged.
    pub fn check_conflict(&self, table: TableId, key: &[u8], xid: Xid) -> Result<()> {
        let Some(snapshot) = self.run().reads.snapshot.get() else { return Ok(()) };
        let is_mine = self.run().xid == Some(xid) || xid == Xid::ZERO || mutant("txn: the last updater wins");
        let sees = is_mine || snapshot.sees(xid).is_some();
        // Checked afterwards. A status window that moved without regard to the snapshot implies that the snapshot was
        // cancelled.
        self.check_snapshot(snapshot)?;
        if sees { Ok(()) } else { Err(Error::Conflict { table: table.into(), key: key.into() }) }
    }
}
