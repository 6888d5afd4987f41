//! The changes that wait for some pages, adjacent ones for the most part.

use super::changes::{ChangePlace, WaitingRecord, WaitingRecords};
use foreshore_base::hash::Spread;
use foreshore_base::{Lsn, PageId};
use foreshore_buffer::{ChangeRecord, IfDamaged};
use foreshore_space::can_be_lost;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;

/// Memory of a page besides its changes.
const PAGE_BYTES: i64 = 96;
/// How many changes before its use a record is prefetched.
const AHEAD: usize = 8;

/// The order of changes in the log: by record, and by page of the record. Records of equal LSNs are in any order.
pub(super) type ChangeNumber = (Lsn, usize);

/// The changes that wait for a page, in log order.
struct Waiting {
    changes: Vec<ChangePlace>,
    /// Set while they are applied, or if that has failed.
    is_taken: bool,
    if_damaged: IfDamaged,
}

/// The pages, and the records that change them.
#[derive(Default)]
pub(super) struct Bucket {
    pages: HashMap<PageId, Waiting, Spread>,
    /// A thread that redoes a page has a reference meanwhile.
    records: Arc<WaitingRecords>,
    /// Whether `pages` is still to be made from them.
    is_unindexed: bool,
}

/// By how much a bucket has grown. What is not indexed yet counts as one page.
#[derive(Clone, Copy, Default)]
pub(super) struct Difference {
    pub(super) pages: i64,
    /// Of memory.
    pub(super) bytes: i64,
}

impl AddAssign for Difference {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.bytes += other.bytes;
    }
}

/// The changes of one page, taken to be applied.
pub(super) struct Taken {
    records: Arc<WaitingRecords>,
    changes: Vec<ChangePlace>,
}

/// The changes of a page have been taken before, and are not on the page.
pub(super) struct IsTaken;

impl Bucket {
    /// Gets the records, when those before have been redone.
    pub(super) fn fill(&mut self, records: WaitingRecords) -> Difference {
        assert!(self.pages.is_empty() && !self.is_unindexed, "what a bucket had has been redone");
        let added = Difference { pages: 1, bytes: records.bytes() as i64 };
        (self.records, self.is_unindexed) = (Arc::new(records), true);
        added
    }

    /// Makes the index by page, if there is none. `is_here` says which pages are of this bucket.
    pub(super) fn index(&mut self, is_here: impl Fn(PageId) -> bool) -> Difference {
        let mut added = Difference::default();
        if !self.is_unindexed {
            return added;
        }
        let records = Arc::clone(&self.records);
        for (place, WaitingRecord { payload, .. }) in records.iter() {
            let record = ChangeRecord::decode(payload).expect("it was decoded before");
            for (index, &pid) in record.pages().iter().enumerate().filter(|&(_, &pid)| is_here(pid)) {
                added += self.index_change(pid, place.of_page(index), record.initialises(index));
            }
        }
        assert!(!self.pages.is_empty(), "a record is in the buckets of its pages");
        // At the end: after a panic the next thread panics, too.
        self.is_unindexed = false;
        added.pages -= 1;
        added
    }

    fn index_change(&mut self, pid: PageId, change: ChangePlace, initialises: bool) -> Difference {
        let mut added = Difference::default();
        let new = || {
            added = Difference { pages: 1, bytes: PAGE_BYTES };
            let if_damaged = match initialises {
                true => IfDamaged::Blank,
                false if can_be_lost(pid) => IfDamaged::Quarantine,
                false => IfDamaged::Fail,
            };
            Waiting { changes: Vec::new(), is_taken: false, if_damaged }
        };
        let changes = &mut self.pages.entry(pid).or_insert_with(new).changes;
        let before = memory_of(changes);
        assert!(changes.last().is_none_or(|&last| last < change), "changes of page {pid} come in log order");
        changes.push(change);
        added.bytes += memory_of(changes) - before;
        added
    }

    /// Takes the changes of a page, which still waits. `None` if it does not wait.
    pub(super) fn take(&mut self, pid: PageId) -> Result<Option<Taken>, IsTaken> {
        let Some(waiting) = self.pages.get_mut(&pid) else { return Ok(None) };
        if std::mem::replace(&mut waiting.is_taken, true) {
            return Err(IsTaken);
        }
        Ok(Some(Taken { records: Arc::clone(&self.records), changes: std::mem::take(&mut waiting.changes) }))
    }

    /// Removes a page that has its changes.
    pub(super) fn remove(&mut self, pid: PageId, taken: &Taken) -> Difference {
        let waited = self.pages.remove(&pid);
        assert!(
            waited.is_some_and(|waited| waited.is_taken),
            "page {pid} waited for its redo, and a thread is about it"
        );
        assert!(!self.is_unindexed, "page {pid} is redone when all of its changes are known");
        let mut added = Difference { pages: -1, bytes: -PAGE_BYTES - memory_of(&taken.changes) };
        if self.pages.is_empty() {
            // A map keeps its memory as long as it lives, and this one lives as long as the pool.
            added.bytes -= std::mem::take(self).records.bytes() as i64;
        }
        added
    }

    /// Returns the pages, in any order.
    pub(super) fn pids(&self) -> impl Iterator<Item = PageId> {
        self.pages.keys().copied()
    }

    /// Returns what to do with a page if it is damaged; `None` if it does not wait.
    pub(super) fn if_damaged(&self, pid: PageId) -> Option<IfDamaged> {
        self.pages.get(&pid).map(|waiting| waiting.if_damaged)
    }

    /// Returns the number of the first change of a page; `None` if its changes have been taken.
    pub(super) fn first(&self, pid: PageId) -> Option<ChangeNumber> {
        self.pages.get(&pid)?.changes.first().map(|&first| number(&self.records, first))
    }

    /// Returns how many pages there is room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.pages.capacity()
    }
}

impl Taken {
    /// Returns the number of the first change.
    pub(super) fn first(&self) -> ChangeNumber {
        number(&self.records, self.changes[0])
    }

    /// Returns the records, and which of their pages it is, in log order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (WaitingRecord<'_>, usize)> {
        self.changes.iter().enumerate().map(|(at, &change)| {
            self.changes.get(at + AHEAD).into_iter().for_each(|&later| self.records.prefetch(later));
            (self.records.get(change), change.index())
        })
    }
}

fn number(records: &WaitingRecords, change: ChangePlace) -> ChangeNumber {
    (records.get(change).lsn, change.index())
}

fn memory_of(changes: &Vec<ChangePlace>) -> i64 {
    (changes.capacity() * size_of::<ChangePlace>()) as i64
}
