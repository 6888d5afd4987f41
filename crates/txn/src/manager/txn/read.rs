//! What a transaction sees of rows.

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
    /// Takes a snapshot. `label` is shown by errors and warnings that name its reader.
    #[must_use]
    pub fn snapshot(&self, kind: SnapshotKind, label: &'static str) -> Snapshot {
        self.visibility.snapshot(kind, self.visibility.about(label, self.now(), None), || self.xids.next())
    }
}

impl Txn {
    /// The level at which the transaction runs.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.run().reads.isolation
    }

    /// Takes the snapshot by which the whole transaction reads. It began just now.
    pub(super) fn take_snapshot(&mut self) {
        let (TxnManager { visibility, xids, .. }, Lease { run, owner, .. }) = self.manager_and_lease();
        let Running { label, reads: Reads { kind, limits, snapshot, .. }, .. } = run;
        snapshot.take(visibility, *kind, visibility.about(label, owner.began(), *limits), || xids.next());
    }

    /// Takes a snapshot for one operation.
    fn take_one(&self) -> SnapshotRef {
        let (Running { label, reads: Reads { kind, limits, .. }, .. }, manager) = (self.run(), &self.manager);
        let about = manager.visibility.about(label, manager.now(), *limits);
        BiasedOwner::new(manager.visibility.snapshot(*kind, about, || manager.xids.next())).hand_out()
    }

    /// The snapshot by which an operation that begins now reads; `None` if it reads what is newest, under locks.
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

    /// Begins an operation that reads by `snapshot` what may go when no snapshot needs it.
    ///
    /// # Errors
    /// `SnapshotTooOld`.
    pub fn begin_read<'s>(&self, snapshot: &'s Snapshot) -> Result<ReadOperation<'s>> {
        snapshot.enter().ok_or_else(|| self.too_old(snapshot.cost().unwrap_or_default()))
    }

    fn too_old(&self, SnapshotCost { age, bytes }: SnapshotCost) -> Error {
        Error::SnapshotTooOld { label: self.run().label, age, bytes }
    }

    /// Asked after a read, and before anything of it is handed out.
    ///
    /// # Errors
    /// `SnapshotTooOld`: what was read may be wrong.
    pub fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        snapshot.cost().map_or(Ok(()), |cost| Err(self.too_old(cost)))
    }

    /// Returns what this transaction sees by `snapshot` of a row whose header has `xid` and `undo`. Called under the
    /// latch that covers the header, or between an optimistic read of it and its validation. `holds` tells whether the
    /// page validates; the answer for one that does not means nothing. An older value goes to `image`. The commit that
    /// left what is seen counts as observed.
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

    /// Asks for the older version that [`see`](Self::see) would miss in a page that the caller has not come to. Nothing
    /// of the row is handed out, so no commit counts as observed. Called as [`see`](Self::see).
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

    /// Finds what [`see`](Self::see) returns, and the commit that left it.
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
        // What a cancelled one is led through may be circles of what was written over.
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

    /// Returns what it sees of a row that it has changed; `None` for one that it has locked and not changed. That is
    /// what it was before: a snapshot may be older. The snapshot of the whole transaction is not, as it would not have
    /// been locked.
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

    /// Reads the older versions of which [`see`](Self::see) has said that they are in the file, so that they are seen
    /// if the same is asked next. The first `needed` of them are those that the caller cannot go on without. Called
    /// after the pages were found as they had been and the snapshot in use, without a latch.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written. Of what is needed.
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

    /// Returns whether a caller may ask for more versions than it needs, without more memory than is meant for that.
    #[must_use]
    pub fn may_fetch_more(&self) -> bool {
        self.run().reads.fetched.as_ref().is_none_or(|fetched| fetched.has_space())
    }

    /// Returns whether what was fetched, of which much is not asked for again, takes twice the memory that is meant for
    /// it.
    #[must_use]
    pub fn fetched_is_over(&self) -> bool {
        self.run().reads.fetched.as_ref().is_some_and(|fetched| fetched.is_over())
    }

    /// Fetches no more than the first so many next: the others were of a page that has changed.
    pub fn unwant(&mut self, from: usize) {
        if let Some(fetched) = &mut self.run_mut().reads.fetched {
            fetched.unwant(from);
        }
    }

    /// Forgets what was fetched, and what is to be.
    pub fn forget_fetched(&mut self) {
        if let Some(fetched) = &mut self.run_mut().reads.fetched {
            fetched.forget();
        }
    }

    /// Exchanges what was fetched: a scan keeps its own between two steps, beside which other reads of the transaction
    /// fetch theirs.
    pub fn swap_fetched(&mut self, other: &mut Option<Box<Fetched>>) {
        std::mem::swap(&mut self.run_mut().reads.fetched, other);
    }

    /// Nothing is above the snapshot but numbers of pages that do not validate.
    fn observe_by(&mut self, snapshot: &Snapshot, csn: Csn) {
        self.observe(csn.min(snapshot.csn()));
    }

    /// Refuses to change a row whose header has `xid`, the last holder, which has ended, if the transaction reads by a
    /// snapshot that does not see it.
    ///
    /// An xid of zero stands for a row that does not exist.
    ///
    /// # Errors
    /// `Conflict`; `SnapshotTooOld`, for a snapshot that was cancelled sees what it should not, and has no say on what
    /// is purged.
    pub fn check_conflict(&self, table: TableId, key: &[u8], xid: Xid) -> Result<()> {
        let Some(snapshot) = self.run().reads.snapshot.get() else { return Ok(()) };
        let is_mine = self.run().xid == Some(xid) || xid == Xid::ZERO || mutant("txn: the last updater wins");
        let sees = is_mine || snapshot.sees(xid).is_some();
        // Afterwards: a reader that finds the window moved without regard to the snapshot finds that cancelled.
        self.check_snapshot(snapshot)?;
        if sees { Ok(()) } else { Err(Error::Conflict { table: table.into(), key: key.into() }) }
    }
}
