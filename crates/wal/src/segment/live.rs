//! A segment with groups: their offsets, and the positions where a reader may start.

use crate::format::FIRST_GROUP;
use foreshore_base::GroupNo;
use foreshore_sync::{LockRank, Mutex};
use std::sync::Arc;

/// The largest distance of two marks in a segment, apart from the last group. In a large segment a sixty-fourth may be
/// more log than a small budget has.
pub(super) const MARK_DISTANCE: u64 = 256 << 10;

/// Groups where a reader may start, with their offsets.
type Marks = Vec<(GroupNo, u64)>;

/// A segment with groups.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) first: GroupNo,
    /// Header checksum of the group before the first one.
    pub(crate) prev_crc: u32,
    /// Groups at some distance from each other, with their offsets, where a reader may start.
    pub(crate) marks: Marks,
    /// Those of a segment that the scan of the log has passed over: the first reader of its groups finds them.
    unread: Option<Arc<Mutex<Marks>>>,
    /// Ranges that hold no group of the chain: repeated groups, and places of groups that did not survive. Ascending.
    pub(crate) skips: Vec<(u64, u64)>,
    /// Offset after the last group. In a segment that the scan has passed over, its end.
    pub(crate) end: u64,
}

impl Live {
    pub(crate) fn new(number: u64, size: u64, first: GroupNo, prev_crc: u32) -> Self {
        Self { number, size, first, prev_crc, marks: Vec::new(), unread: None, skips: Vec::new(), end: FIRST_GROUP }
    }

    /// Notes that the groups count, and that none of them was read.
    pub(crate) fn leave_unread(&mut self) {
        assert_eq!(self.end, FIRST_GROUP, "nothing of segment {} has been read", self.number);
        self.marks.push((self.first, FIRST_GROUP));
        self.unread = Some(Arc::new(Mutex::new(LockRank::Leaf, self.marks.clone())));
        self.end = self.size;
    }

    /// Whether the scan of the log has passed over the segment.
    pub(crate) const fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Notes that a reader has found `group` at `offset`.
    pub(crate) fn note_read(&self, group: GroupNo, offset: u64) {
        if let Some(marks) = &self.unread {
            self.mark(&mut marks.lock(), group, offset);
        }
    }

    /// Adds a group to `marks` if it is far enough behind the last one.
    fn mark(&self, marks: &mut Marks, group: GroupNo, offset: u64) {
        // A repeated group is no start for a reader, because the marks ascend.
        let distance = (self.size / 64).min(MARK_DISTANCE);
        if marks.last().is_none_or(|&(last, at)| group > last && offset - at >= distance) {
            marks.push((group, offset));
        }
    }

    /// Notes that `group` was put at `offset` and ends at `end`.
    pub(crate) fn push(&mut self, group: GroupNo, offset: u64, end: u64) {
        assert!(offset >= self.end && end <= self.size, "groups of a segment follow each other");
        self.skip(offset);
        let mut marks = std::mem::take(&mut self.marks);
        self.mark(&mut marks, group, offset);
        (self.marks, self.end) = (marks, end);
    }

    /// Notes that the chain continues at `offset` at the earliest.
    pub(crate) fn skip(&mut self, offset: u64) {
        if offset > self.end {
            self.skips.push((self.end, offset));
            self.end = offset;
        }
    }

    /// Returns the first offset from `offset` on that is not skipped.
    pub(crate) fn unskipped(&self, offset: u64) -> u64 {
        self.skips.iter().fold(offset, |at, &(from, to)| if at == from { to } else { at })
    }

    /// Returns the first group of the segment behind repeated ones; `None` if there is none yet.
    pub(crate) fn first_read(&self) -> Option<GroupNo> {
        self.marks.first().map(|&(group, _)| group)
    }

    /// Returns the last mark at or before `group`.
    pub(crate) fn seek(&self, group: GroupNo) -> (GroupNo, u64) {
        let last_of = |marks: &Marks| {
            let after = marks.partition_point(|&(at, _)| at <= group);
            after.checked_sub(1).map_or((self.first, FIRST_GROUP), |i| marks[i])
        };
        self.unread.as_ref().map_or_else(|| last_of(&self.marks), |marks| last_of(&marks.lock()))
    }
}
