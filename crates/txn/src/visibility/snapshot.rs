//! Snapshots: one number that says what a reader sees.

use super::Visibility;
use super::past::Past;
use super::readers::{About, Mark, SnapshotCost, SnapshotLimits};
use foreshore_base::{Csn, Xid};
use foreshore_sync::Clock;
use std::fmt;
use std::sync::Arc;

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
}

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
        self.visibility.readers.enter(&self.mark).then_some(operation)
    }

    /// Returns what it cost, if it was cancelled.
    pub(crate) fn cost(&self) -> Option<SnapshotCost> {
        self.visibility.readers.cost(&self.mark)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.visibility.readers.release(&self.mark);
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
        self.snapshot.visibility.readers.leave(&self.snapshot.mark);
    }
}

impl Visibility {
    /// Takes a snapshot. `label` is shown by errors and warnings that name its reader. `limits`: those of the reader,
    /// or `None` for those of the options. `next` reads the next xid.
    pub(crate) fn snapshot(
        self: &Arc<Self>,
        kind: SnapshotKind,
        label: &'static str,
        limits: Option<SnapshotLimits>,
        next: impl FnOnce() -> Xid,
    ) -> Snapshot {
        let about = About { label, since: self.time.now(), limits: limits.unwrap_or(self.limits) };
        let durable = || self.log.durable().csn();
        let clock = (kind == SnapshotKind::Latest).then_some(|| self.log.commit_clock());
        let mark = self.readers.take(about, || self.window.frozen(), durable, clock, next);
        let past = Past::new(&mark);
        Snapshot { visibility: self.clone(), mark, past }
    }
}
