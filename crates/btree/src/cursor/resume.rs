//! Where a scan continues in the leaf that its last step has read.

use super::left::LeftEntries;
use super::page_copy::PageCopy;

/// What the next step uses of a leaf if the leaf has not changed.
#[derive(Debug, Default)]
pub(super) struct Resume {
    /// Entries that a step of a snapshot scan has left.
    pub(super) left: Option<LeftEntries>,
    /// The leaf that a locking scan has copied.
    pub(super) copy: PageCopy,
}

impl Resume {
    /// Makes the next step descend to its leaf. The memory of the copy is kept.
    pub(super) fn clear(&mut self) {
        self.left = None;
        self.copy.resume_at = None;
    }
}
