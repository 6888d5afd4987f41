//! The cost of snapshots, and the cancellation of those that cost too much.
//!
//! A snapshot is cancelled in one of these cases:
//! - it is older than its limit;
//! - more is kept for it alone than its limit allows;
//! - a writer finds no undo space.
//!
//! What is kept for one snapshot alone is known only of the oldest: an older one may need what a younger one keeps.

use super::Visibility;
use super::readers::{About, SnapshotCost};
use foreshore_base::{Csn, TableId};
use foreshore_sync::Clock;
use std::time::Duration;

/// The oldest snapshot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OldestSnapshot {
    /// It sees commits up to here.
    pub csn: Csn,
    /// The label of its reader.
    pub label: &'static str,
    /// How long it has been in use.
    pub age: Duration,
    /// About how many bytes are freed when it ends, because no other reader needs them. They are whole chunks of 8 KiB
    /// with old versions, and the pages of tables that were dropped since.
    pub bytes: u64,
}

impl OldestSnapshot {
    const fn new(csn: Csn, about: &About, SnapshotCost { age, bytes }: SnapshotCost) -> Self {
        Self { csn, label: about.label, age, bytes }
    }
}

impl Visibility {
    /// Returns the oldest snapshot in use.
    #[must_use]
    pub fn oldest_snapshot(&self) -> Option<OldestSnapshot> {
        let (csn, about) = self.readers.oldest()?;
        Some(OldestSnapshot::new(csn, &about, self.cost_of(csn, &about)))
    }

    /// Returns the commit up to which the oldest snapshot sees.
    pub(crate) fn oldest_csn(&self) -> Option<Csn> {
        self.readers.oldest().map(|(csn, _)| csn)
    }

    /// Cancels the oldest snapshot and returns it. Nothing is kept for it any more.
    pub fn cancel_oldest(&self) -> Option<OldestSnapshot> {
        self.cancel_oldest_if(|_, _| true)
    }

    /// Cancels the oldest snapshot if it is the one at `csn`.
    pub(crate) fn cancel_at(&self, csn: Csn) {
        self.cancel_oldest_if(|oldest, _| oldest == csn);
    }

    fn cancel_oldest_if(&self, dooms: impl Fn(Csn, &About) -> bool) -> Option<OldestSnapshot> {
        let judge = |csn, about: &About| dooms(csn, about).then(|| self.cost_of(csn, about));
        let (csn, about, cost) = self.readers.cancel_oldest(judge)?;
        self.cancelled.add(1);
        Some(OldestSnapshot::new(csn, &about, cost))
    }

    /// Cancels each snapshot that is too old. Then cancels the oldest one as long as too much is kept for it alone.
    pub(super) fn cancel_beyond_limits(&self) {
        let now = self.time.now();
        let is_old = |about: &About| now.since(about.since) > about.limits.max_age;
        let cancelled = self.readers.cancel_each(|csn, about| is_old(about).then(|| self.cost_of(csn, about)));
        self.cancelled.add(cancelled as u64);
        let is_large = |csn, about: &About| {
            about.limits.max_bytes < u64::MAX && self.cost_of(csn, about).bytes > about.limits.max_bytes
        };
        while self.cancel_oldest_if(is_large).is_some() {}
    }

    /// Returns the cost of the snapshot at `csn`. The bytes are exact only if it is the oldest.
    fn cost_of(&self, csn: Csn, about: &About) -> SnapshotCost {
        let durable = self.log.durable().csn();
        let next = self.readers.all().map(|reader| reader.csn).filter(|&next| next > csn).fold(durable, Csn::min);
        let bytes = (self.undo_between)(csn, next) + self.kept_pages.bytes_between(csn, next);
        SnapshotCost { age: self.time.now().since(about.since), bytes }
    }

    /// Records that `bytes` of pages of `table`, which commit `by` removed, are kept for older snapshots. They count
    /// once for the cost of such a snapshot.
    pub fn keep_pages(&self, table: TableId, by: Csn, bytes: u64) {
        self.kept_pages.note(table, by, bytes);
    }

    /// Records that pages which commits up to `passed` removed are not kept any more.
    pub fn let_pages_go(&self, passed: Csn) {
        self.kept_pages.forget(passed);
    }
}
