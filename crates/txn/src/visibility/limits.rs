//! What snapshots cost, and the cancellation of those that cost too much.
//!
//! A snapshot is cancelled when it is older than its limit, when more is kept for it alone than its limit allows, or
//! when a writer finds no undo space. What is kept for one snapshot alone is known of the oldest only: an older one may
//! need what a younger one keeps.

use super::Visibility;
use super::readers::{About, SnapshotCost};
use foreshore_base::{Csn, TableId};
use foreshore_sync::Clock;
use std::time::Duration;

/// The oldest snapshot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestSnapshot {
    /// It sees commits up to here.
    pub csn: Csn,
    /// The label of its reader.
    pub label: &'static str,
    /// How long it has been in use.
    pub age: Duration,
    /// About how many bytes are freed when it ends, which no other reader needs. They are whole chunks of 8 KiB of old
    /// versions, and the pages of tables that were dropped since.
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

    /// Cancels the oldest snapshot, so that nothing is kept for it any more, and returns what it was.
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

    /// Cancels each snapshot that is too old, and the oldest while too much is kept for it alone.
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

    /// Returns what the snapshot at `csn` costs, if it is the oldest.
    fn cost_of(&self, csn: Csn, about: &About) -> SnapshotCost {
        let durable = self.log.durable().csn();
        let next = self.readers.all().map(|reader| reader.csn).filter(|&next| next > csn).fold(durable, Csn::min);
        let bytes = (self.undo_between)(csn, next) + self.kept_pages.bytes_between(csn, next);
        SnapshotCost { age: self.time.now().since(about.since), bytes }
    }

    /// Notes that pages of `table`, of `bytes`, which commit `by` took away are kept for older snapshots. They count,
    /// once, for what such a snapshot costs.
    pub fn keep_pages(&self, table: TableId, by: Csn, bytes: u64) {
        self.kept_pages.note(table, by, bytes);
    }

    /// Notes that pages which commits up to `passed` took away are not kept any more.
    pub fn let_pages_go(&self, passed: Csn) {
        self.kept_pages.forget(passed);
    }
}
