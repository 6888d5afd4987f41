//! A segment with groups: their offsets, and the positions where a reader may start.

use crate::format::FIRST_GROUP;
use foreshore_base::GroupNo;

/// The largest distance of two marks in a segment, apart from the last group. In a large segment a sixty-fourth may be
/// more log than a small budget has.
pub(super) const MARK_DISTANCE: u64 = 256 << 10;

/// A segment with groups.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) first: GroupNo,
    /// Header checksum of the group before the first one.
    pub(crate) prev_crc: u32,
    /// Groups at some distance from each other, with their offsets, where a reader may start.
    pub(crate) marks: Vec<(GroupNo, u64)>,
    /// Ranges that hold no group of the chain: repeated groups, and places of groups that did not survive. Ascending.
    pub(crate) skips: Vec<(u64, u64)>,
    /// Offset after the last group.
    pub(crate) end: u64,
}

impl Live {
    pub(crate) fn new(number: u64, size: u64, first: GroupNo, prev_crc: u32) -> Self {
        Self { number, size, first, prev_crc, marks: Vec::new(), skips: Vec::new(), end: FIRST_GROUP }
    }

    /// Notes that `group` was put at `offset` and ends at `end`.
    pub(crate) fn push(&mut self, group: GroupNo, offset: u64, end: u64) {
        assert!(offset >= self.end && end <= self.size, "groups of a segment follow each other");
        self.skip(offset);
        // A repeated group is no start for a reader, because the marks ascend.
        let distance = (self.size / 64).min(MARK_DISTANCE);
        if self.marks.last().is_none_or(|&(last, at)| group > last && offset - at >= distance) {
            self.marks.push((group, offset));
        }
        self.end = end;
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
        let after = self.marks.partition_point(|&(at, _)| at <= group);
        after.checked_sub(1).map_or((self.first, FIRST_GROUP), |i| self.marks[i])
    }
}
