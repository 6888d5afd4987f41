//! Where a scan continues in the leaf that its last step has read.

use super::left::LeftEntries;
use super::page_copy::PageCopy;

/// What the next step uses of a leaf, as long as the leaf has not changed.
#[derive(Debug, Default)]
pub(super) struct Resume {
    /// Entries left by a step of a scan that reads by a snapshot.
    pub(super) left: Option<LeftEntries>,
    /// The leaf that a scan with locks has copied.
    pub(super) copy: PageCopy,
}

impl Resume {
    /// Lets the next step search its leaf. The memory of the copy is kept.
    pub(super) fn clear(&mut self) {
        self.left = None;
        self.copy.place = None;
    }
}
