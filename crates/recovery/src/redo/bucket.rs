//! The changes that wait for some pages, adjacent ones for the most part.

use super::changes::{ChangePlace, WaitingRecord, WaitingRecords};
use foreshore_base::hash::Spread;
use foreshore_base::{Lsn, PageId};
use foreshore_buffer::IfDamaged;
use foreshore_space::can_be_lost;
use std::collections::HashMap;
use std::sync::Arc;

/// Memory of a page besides its changes.
const PAGE_BYTES: u64 = 96;
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
}

/// What a change has added to a bucket, or a page that is done has removed.
pub(super) struct Difference {
    pub(super) pages: u64,
    /// Of memory.
    pub(super) bytes: u64,
}

/// The changes of one page, taken to be applied.
pub(super) struct Taken {
    records: Arc<WaitingRecords>,
    changes: Vec<ChangePlace>,
}

/// The changes of a page have been taken before, and are not on the page.
pub(super) struct IsTaken;

impl Bucket {
    /// Adds the change of page `pid`, which is the one at `index` of the record. `has_record` says that another page of
    /// the record came just before.
    pub(super) fn add(
        &mut self,
        (record, has_record): (&WaitingRecord<'_>, bool),
        (pid, index, initialises): (PageId, usize, bool),
    ) -> Difference {
        let records = Arc::get_mut(&mut self.records).expect("no page is redone while changes are added");
        let bytes = if has_record { 0 } else { records.add(record) };
        let mut added = Difference { pages: 0, bytes };
        let new = || {
            added = Difference { pages: 1, bytes: added.bytes + PAGE_BYTES };
            let if_damaged = match initialises {
                true => IfDamaged::Blank,
                false if can_be_lost(pid) => IfDamaged::Quarantine,
                false => IfDamaged::Fail,
            };
            Waiting { changes: Vec::new(), is_taken: false, if_damaged }
        };
        let changes = &mut self.pages.entry(pid).or_insert_with(new).changes;
        let before = memory_of(changes);
        let change = records.last().of_page(index);
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
        let mut removed = Difference { pages: 1, bytes: PAGE_BYTES + memory_of(&taken.changes) };
        if self.pages.is_empty() {
            // A map keeps its memory as long as it lives, and this one lives as long as the pool.
            removed.bytes += std::mem::take(self).records.bytes();
        }
        removed
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

fn memory_of(changes: &Vec<ChangePlace>) -> u64 {
    (changes.capacity() * size_of::<ChangePlace>()) as u64
}
