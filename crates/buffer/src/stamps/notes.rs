//! Images that are durable at home and have no stamp yet.

use foreshore_base::{GroupNo, Lsn, PageId};
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

/// Notes that are taken at once.
pub(super) const CHUNK: usize = 4096;

/// An image: its page with the first group that the page needed before it, and its LSN.
pub(super) type Note = ((PageId, GroupNo), Lsn);

/// Notes of images. Several images of a page stay apart, since a checkpoint may need the LSN of any.
pub(super) struct Notes {
    images: BTreeMap<(PageId, GroupNo), Lsn>,
    /// Pages that redo has made anew behind their stamps.
    pub(super) rebuilt: HashSet<PageId>,
    most: usize,
    pub(super) dropped: u64,
}

impl Notes {
    pub(super) fn new(most: usize) -> Self {
        Self { images: BTreeMap::new(), rebuilt: HashSet::new(), most, dropped: 0 }
    }

    /// Notes an image, unless that of a note with an older group has it. Beyond the limit the image is dropped.
    pub(super) fn add(&mut self, pid: PageId, group: GroupNo, lsn: Lsn) {
        let older = self.images.range((pid, GroupNo::ZERO)..=(pid, group)).next_back();
        if older.is_some_and(|(_, &known)| known >= lsn) {
            return;
        }
        if self.images.len() < self.most || self.images.contains_key(&(pid, group)) {
            self.images.insert((pid, group), lsn);
        } else {
            self.dropped += 1;
        }
    }

    /// The LSN of the newest image of a page; zero if none is noted.
    pub(super) fn newest(&self, pid: PageId) -> Lsn {
        let of_page = self.images.range((pid, GroupNo::ZERO)..).take_while(|((other, _), _)| *other == pid);
        of_page.map(|(_, &lsn)| lsn).max().unwrap_or_default()
    }

    /// The next notes behind `last` with a group before `end`, by page, [`CHUNK`] at most.
    pub(super) fn next(&self, last: (PageId, GroupNo), end: GroupNo) -> Vec<Note> {
        let behind = self.images.range((Bound::Excluded(last), Bound::Unbounded));
        behind.filter(|((_, group), _)| *group < end).map(|(&key, &lsn)| (key, lsn)).take(CHUNK).collect()
    }

    /// Removes notes that have become stamps, unless a later image has the same key.
    pub(super) fn remove(&mut self, notes: &[Note]) {
        for (key, lsn) in notes {
            if self.images.get(key) == Some(lsn) {
                self.images.remove(key);
            }
        }
    }
}
