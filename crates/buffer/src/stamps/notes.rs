//! Images that are durable at home and have no stamp yet.

use foreshore_base::hash::Spread;
use foreshore_base::{GroupNo, Lsn, PageId};
use std::collections::{HashMap, HashSet};

/// An image of a page that is durable at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) pid: PageId,
    pub(super) lsn: Lsn,
    /// The first group that the page needed before this image.
    pub(super) group: GroupNo,
}

/// Notes of images.
pub(super) struct Notes {
    /// Images without a stamp. Those of a page stay apart, since a checkpoint may need the LSN of any.
    images: Vec<Note>,
    /// Images whose stamps are being written.
    taken: usize,
    /// The newest image of each page: LSN and group. Of several with that LSN it is the one with the oldest group.
    newest: HashMap<PageId, (Lsn, GroupNo), Spread>,
    /// Pages that redo has made anew behind their stamps.
    pub(super) rebuilt: HashSet<PageId>,
    most: usize,
    pub(super) dropped: u64,
}

impl Notes {
    pub(super) fn new(most: usize) -> Self {
        // Of full size, as it would be made larger under the lock.
        let newest = HashMap::with_capacity_and_hasher(most, Spread);
        Self { images: Vec::new(), taken: 0, newest, rebuilt: HashSet::new(), most, dropped: 0 }
    }

    /// Notes an image, unless the newest one of the page has that LSN or a greater one, and no newer group. Beyond the
    /// limit the image is dropped.
    ///
    /// The records of a page do not lie in groups in the order of their LSNs. So redo may find one LSN with a newer
    /// group first.
    pub(super) fn add(&mut self, note: Note) {
        let known = self.newest.get(&note.pid);
        if known.is_some_and(|&(lsn, group)| lsn >= note.lsn && group <= note.group) {
            return;
        }
        if self.images.len() + self.taken == self.most {
            self.dropped += 1;
            return;
        }
        if known.is_none_or(|&(lsn, _)| lsn <= note.lsn) {
            self.newest.insert(note.pid, (note.lsn, note.group));
        }
        self.images.push(note);
    }

    /// The LSN of the newest image of a page; zero if none is noted.
    pub(super) fn newest(&self, pid: PageId) -> Lsn {
        self.newest.get(&pid).map_or(Lsn::ZERO, |&(lsn, _)| lsn)
    }

    /// Takes all images, which still count until they are put back or removed.
    pub(super) fn take(&mut self) -> Vec<Note> {
        self.taken += self.images.len();
        std::mem::take(&mut self.images)
    }

    /// Puts images back that were taken.
    pub(super) fn put_back(&mut self, images: Vec<Note>) {
        self.taken -= images.len();
        let added = std::mem::replace(&mut self.images, images);
        self.images.extend(added);
    }

    /// Removes images that were taken and have become stamps.
    pub(super) fn remove(&mut self, images: &[Note]) {
        self.taken -= images.len();
        for image in images {
            if self.newest(image.pid) == image.lsn {
                self.newest.remove(&image.pid);
            }
        }
    }
}
