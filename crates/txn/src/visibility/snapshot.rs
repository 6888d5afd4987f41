//! Snapshots: each has one commit number, up to which its reader sees commits.

use super::Visibility;
use super::past::Past;
use super::readers::{About, Mark, SnapshotCost, SnapshotLimits};
use foreshore_base::{Csn, Xid};
use foreshore_sync::{BiasedOwner, BiasedRef, Nanos};
use std::marker::PhantomData;
use std::sync::Arc;
use std::{fmt, mem};

/// The choice of the commits that a new snapshot sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Durable commits only. The reader never has to wait before it returns what it has read. The snapshot sees each
    /// commit that was acknowledged as durable before it was taken.
    Durable,
    /// All commits. What the reader has read depends on commits up to the greatest number seen. They may not be durable
    /// yet.
    Latest,
}

/// A snapshot: its reader sees the commits up to one number. Old versions of rows are kept for it until its drop,
/// unless it is cancelled because they take too much space.
pub struct Snapshot {
    visibility: Arc<Visibility>,
    mark: Mark,
    past: Past,
    /// Cleared when the snapshot ends. An [`OwnSnapshot`] keeps an ended one to reuse its memory.
    is_in_use: bool,
}

/// A snapshot that is shared with the operations and scans of its transaction.
pub type SnapshotRef = BiasedRef<Snapshot>;

impl Snapshot {
    /// Returns the number of the newest commit that it sees.
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.mark.csn
    }

    /// Returns the number of the commit on which the changes of `xid`, found in a row, depend for this reader. Returns
    /// zero if they are certainly durable, and `None` if the reader does not see them.
    ///
    /// The answer is the same each time, while the snapshot is not cancelled. The call never waits: a transaction that
    /// is committing is pushed to a number above the snapshot.
    #[must_use]
    pub fn sees(&self, xid: Xid) -> Option<Csn> {
        let seen = self.past.sees(&self.visibility.window, &self.mark, xid)?;
        if xid != Xid::ZERO {
            // `xid` was drawn: it is below the next xid that the snapshot has read.
            self.visibility.confirm(xid, None, || true);
        }
        Some(seen)
    }

    /// Returns whether the snapshot was cancelled. Called after a read, before its result is returned: a version that
    /// it needed may be gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.visibility.readers.is_cancelled(&self.mark)
    }

    /// Begins an operation. Returns `None` if the snapshot was cancelled.
    pub(crate) fn enter(&self) -> Option<ReadOperation<'_>> {
        // Made before the check, so that its drop ends the operation in any case.
        let operation = ReadOperation { snapshot: self, on_one_thread: PhantomData };
        self.visibility.readers.begin_operation(&self.mark).then_some(operation)
    }

    /// Returns the cost of the snapshot, if it was cancelled.
    pub(crate) fn cost(&self) -> Option<SnapshotCost> {
        self.visibility.readers.cost(&self.mark)
    }
}

impl Snapshot {
    fn new(visibility: &Arc<Visibility>, mark: Mark) -> Self {
        let past = Past::new(&mark);
        Self { visibility: visibility.clone(), mark, past, is_in_use: true }
    }

    /// Returns the same snapshot for another reader, on any thread.
    fn share(&self) -> Self {
        assert!(self.is_in_use, "a snapshot at {} is shared, and has ended", self.csn());
        Self::new(&self.visibility, self.visibility.readers.share(&self.mark))
    }

    /// Starts the snapshot of another reader in this memory.
    fn begin(&mut self, mark: Mark) {
        assert!(!self.is_in_use, "a snapshot at {} begins over one at {}", mark.csn, self.mark.csn);
        self.past.begin(&mark);
        (self.mark, self.is_in_use) = (mark, true);
    }

    fn end(&mut self) {
        if mem::take(&mut self.is_in_use) {
            self.visibility.readers.release(&self.mark);
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.end();
    }
}

/// The snapshot that a transaction uses from its begin to its end, if it has one. The next transaction of the session
/// reuses the memory.
#[derive(Debug, Default)]
pub(crate) struct OwnSnapshot {
    owner: Option<BiasedOwner<Snapshot>>,
}

impl OwnSnapshot {
    /// Returns the snapshot, if one was taken.
    pub(crate) fn get(&self) -> Option<&Snapshot> {
        self.owner.as_deref().filter(|snapshot| snapshot.is_in_use)
    }

    /// Returns a reference to the snapshot, if one was taken.
    pub(crate) fn hand_out(&mut self) -> Option<SnapshotRef> {
        self.owner.as_mut().filter(|snapshot| snapshot.is_in_use).map(BiasedOwner::hand_out)
    }

    /// Drops a reference, to this snapshot or to another one.
    #[inline]
    pub(crate) fn take_back(&mut self, reference: SnapshotRef) {
        if let Some(owner) = &mut self.owner {
            owner.take_back(reference);
        }
    }

    /// Takes a snapshot, as [`Visibility::snapshot`] does.
    pub(crate) fn take(
        &mut self,
        visibility: &Arc<Visibility>,
        kind: SnapshotKind,
        about: About,
        next: impl FnOnce() -> Xid,
    ) {
        let mark = visibility.take(kind, about, next);
        match self.owner.as_mut().and_then(BiasedOwner::get_mut) {
            Some(idle) => idle.begin(mark),
            None => self.owner = Some(BiasedOwner::new(Snapshot::new(visibility, mark))),
        }
    }

    /// Shares the snapshot of another transaction, in place of an own one.
    pub(crate) fn share(&mut self, other: &Snapshot) {
        self.end();
        self.owner = Some(BiasedOwner::new(other.share()));
    }

    /// Ends the snapshot. If a reference is left, the snapshot ends with that instead.
    pub(crate) fn end(&mut self) {
        match self.owner.as_mut().map(BiasedOwner::get_mut) {
            Some(Some(snapshot)) => snapshot.end(),
            Some(None) => self.owner = None,
            None => {}
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("csn", &self.csn())
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// An operation that reads by a snapshot, begun by [`Txn::begin_read`](crate::Txn::begin_read). Its drop ends it.
///
/// Until then nothing that the snapshot may need is reused, even if the snapshot is cancelled: [`Visibility::passed`]
/// waits for the operation.
#[must_use = "its drop ends the operation"]
#[derive(Debug)]
pub struct ReadOperation<'s> {
    snapshot: &'s Snapshot,
    /// It stays on its thread, because the count of operations is raised and lowered by plain stores.
    on_one_thread: PhantomData<*const ()>,
}

impl Drop for ReadOperation<'_> {
    fn drop(&mut self) {
        self.snapshot.visibility.readers.end_operation(&self.snapshot.mark);
    }
}

impl Visibility {
    /// Returns the description of a reader that begins at `since`. Errors and warnings name the reader by `label`.
    /// `limits`: its own limits, or `None` for those of the options.
    pub(crate) fn about(&self, label: &'static str, since: Nanos, limits: Option<SnapshotLimits>) -> About {
        About { label, since, limits: limits.unwrap_or(self.limits) }
    }

    /// Takes a snapshot for the reader that `about` describes. `next` returns the next xid.
    pub(crate) fn snapshot(self: &Arc<Self>, kind: SnapshotKind, about: About, next: impl FnOnce() -> Xid) -> Snapshot {
        Snapshot::new(self, self.take(kind, about, next))
    }

    fn take(&self, kind: SnapshotKind, about: About, next: impl FnOnce() -> Xid) -> Mark {
        let durable = || self.log.durable().csn();
        let clock = (kind == SnapshotKind::Latest).then_some(|| self.log.commit_clock());
        self.readers.take(about, || self.window.frozen(), durable, clock, next)
    }
}
