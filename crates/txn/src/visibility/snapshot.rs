//! Snapshots: one number that says what a reader sees.

use super::Visibility;
use super::past::Past;
use super::readers::{About, Mark, SnapshotCost, SnapshotLimits};
use foreshore_base::{Csn, Xid};
use foreshore_sync::{BiasedOwner, BiasedRef, Nanos};
use std::sync::Arc;
use std::{fmt, mem};

/// Which commits a new snapshot sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Those that are durable. It never has to wait before it hands out what it has read, and it sees every commit that
    /// was acknowledged as durable before it was taken.
    Durable,
    /// All. What is read rests on commits up to the greatest number seen, which may not be durable yet.
    Latest,
}

/// What a reader sees: the commits up to one number, from its taking to its drop. Old versions of rows are kept for it,
/// unless it is cancelled because they take too much space.
pub struct Snapshot {
    visibility: Arc<Visibility>,
    mark: Mark,
    past: Past,
    /// Its end has not come. An [`OwnSnapshot`] keeps one that has ended for its memory.
    is_in_use: bool,
}

/// A snapshot that is shared with the operations and scans of its transaction.
pub type SnapshotRef = BiasedRef<Snapshot>;

impl Snapshot {
    /// The number of the newest commit that it sees.
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.mark.csn
    }

    /// Returns the commit on which the changes of `xid`, found in a row, rest for this reader. Zero if they are durable
    /// for certain, `None` if the reader sees what was there before. The same each time, while the snapshot is not
    /// cancelled. Never waits: a transaction that is about to commit is made to commit after the snapshot.
    #[must_use]
    pub fn sees(&self, xid: Xid) -> Option<Csn> {
        let seen = self.past.sees(&self.visibility.window, &self.mark, xid)?;
        if xid != Xid::ZERO {
            // It is below the next xid that the snapshot has read.
            self.visibility.confirm(xid, None, || true);
        }
        Some(seen)
    }

    /// Returns whether it was cancelled. Asked after a read and before what was read is handed out: versions that it
    /// needed may be gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.visibility.readers.is_cancelled(&self.mark)
    }

    /// Begins an operation; `None` if the snapshot was cancelled.
    pub(crate) fn enter(&self) -> Option<ReadOperation<'_>> {
        // Made before the look, so that its drop ends the operation in any case.
        let operation = ReadOperation { snapshot: self };
        self.visibility.readers.begin_operation(&self.mark).then_some(operation)
    }

    /// Returns what it cost, if it was cancelled.
    pub(crate) fn cost(&self) -> Option<SnapshotCost> {
        self.visibility.readers.cost(&self.mark)
    }
}

impl Snapshot {
    fn new(visibility: &Arc<Visibility>, mark: Mark) -> Self {
        let past = Past::new(&mark);
        Self { visibility: visibility.clone(), mark, past, is_in_use: true }
    }

    /// Becomes the snapshot of another reader.
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

/// The snapshot that a transaction reads by from begin to end, if it does. The next transaction of the session uses its
/// memory again.
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

    /// Ends the snapshot, unless a reference is left: then it ends with that.
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

/// An operation that reads by a snapshot, begun by [`Txn::begin_read`](crate::Txn::begin_read). Until its drop nothing
/// that the snapshot may need is used otherwise, though the snapshot be cancelled meanwhile: [`Visibility::passed`]
/// waits for it.
#[must_use = "its drop ends the operation"]
#[derive(Debug)]
pub struct ReadOperation<'s> {
    snapshot: &'s Snapshot,
}

impl Drop for ReadOperation<'_> {
    fn drop(&mut self) {
        self.snapshot.visibility.readers.end_operation(&self.snapshot.mark);
    }
}

impl Visibility {
    /// Returns what is told of a reader that begins at `since`. `label` is shown by errors and warnings that name it.
    /// `limits`: its own, or `None` for those of the options.
    pub(crate) fn about(&self, label: &'static str, since: Nanos, limits: Option<SnapshotLimits>) -> About {
        About { label, since, limits: limits.unwrap_or(self.limits) }
    }

    /// Takes a snapshot for the reader that `about` tells of. `next` reads the next xid.
    pub(crate) fn snapshot(self: &Arc<Self>, kind: SnapshotKind, about: About, next: impl FnOnce() -> Xid) -> Snapshot {
        Snapshot::new(self, self.take(kind, about, next))
    }

    fn take(&self, kind: SnapshotKind, about: About, next: impl FnOnce() -> Xid) -> Mark {
        let durable = || self.log.durable().csn();
        let clock = (kind == SnapshotKind::Latest).then_some(|| self.log.commit_clock());
        self.readers.take(about, || self.window.frozen(), durable, clock, next)
    }
}
