//! The segment files of a log, by their use.

use super::live::Live;
use crate::format::{CtlSlot, FIRST_GROUP};
use foreshore_base::{GroupNo, Incarnation, Uuid};
use foreshore_io::File;
use foreshore_sync::model::mutant;
use std::cmp;
use std::collections::VecDeque;
use std::sync::Arc;

/// A segment that waits for its first group.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) file: Arc<dyn File>,
}

/// A file whose groups are no longer needed: the next ready segment, or space on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) number: u64,
    pub(crate) size: u64,
}

/// The segment files, by their use.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Segments with needed groups, ascending; the last one is being filled. Empty in a log without files.
    pub(crate) live: VecDeque<Live>,
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) spare: Vec<Spare>,
    /// The spare file that could not be prepared at the last failure.
    pub(crate) failed: Option<u64>,
    /// Number of the next segment to prepare.
    pub(crate) next_number: u64,
    /// Files created and recycled since the log was opened.
    pub(crate) made: u64,
    pub(crate) recycled: u64,
}

impl List {
    /// Returns the index of the segment that holds group `group`, or the first one.
    fn index_of(&self, group: GroupNo) -> usize {
        self.live.partition_point(|live| live.first <= group).saturating_sub(1)
    }

    /// Returns the bytes of log from `group` on. The error is at most one group and a sixty-fourth of a segment, or 256
    /// KiB; a segment if the start of the log has not read that of `group`.
    pub(crate) fn bytes_since(&self, group: GroupNo) -> u64 {
        let first = self.index_of(group);
        let bytes = |(i, live): (usize, &Live)| match i.cmp(&first) {
            cmp::Ordering::Less => 0,
            cmp::Ordering::Equal => live.end - live.seek(group).1,
            cmp::Ordering::Greater => live.end - FIRST_GROUP,
        };
        self.live.iter().enumerate().map(bytes).sum()
    }

    /// Returns the bytes of the segments before group `before`, which is durable.
    pub(crate) fn truncatable(&self, before: GroupNo) -> u64 {
        self.live.iter().take(self.index_of(before)).map(|live| live.size).sum()
    }

    /// Returns the bytes of all groups kept.
    pub(crate) fn retained_bytes(&self) -> u64 {
        self.live.iter().map(|live| live.end - FIRST_GROUP).sum()
    }

    /// Returns the control slot that follows `newest` if the log is truncated before group `before`, which is durable;
    /// `None` in a log without files.
    pub(super) fn slot_before(&self, before: GroupNo, newest: CtlSlot) -> Option<CtlSlot> {
        let after = self.live.partition_point(|live| live.first <= before);
        let is_postponed = mutant("sabotage: a segment is given up too early");
        let live = self.live.get(after.saturating_sub(usize::from(!is_postponed)))?;
        Some(CtlSlot { first: live.first, segment: live.number, prev_crc: live.prev_crc, ..newest })
    }

    /// Returns the control slot of a log that begins with the segment of group `group`; `None` in a log without files.
    pub(crate) fn slot_at(&self, group: GroupNo, uuid: Uuid) -> Option<CtlSlot> {
        let live = self.live.get(self.index_of(group))?;
        let (first, segment, prev_crc) = (live.first, live.number, live.prev_crc);
        Some(CtlSlot { uuid, incarnation: Incarnation(0), seq: 0, first, segment, prev_crc })
    }

    /// Removes and returns the spare file to prepare next. The one with the number of the next segment comes first, so
    /// that no rename overwrites a file. Then come the largest, because they free space.
    pub(super) fn take_spare(&mut self) -> Option<Spare> {
        let next = self.next_number;
        let spares = self.spare.iter().enumerate();
        let (first, _) = spares.max_by_key(|(_, spare)| (spare.number == next, spare.size))?;
        Some(self.spare.swap_remove(first))
    }

    /// Adds the segment that was prepared.
    pub(super) fn add_ready(&mut self, ready: Ready) {
        assert_eq!(self.next_number, ready.number, "the next segment, and the one that was prepared");
        let last = self.ready.back().map(|ready| ready.number);
        assert!(last.is_none_or(|last| last < ready.number), "segment {} is ready behind {last:?}", ready.number);
        self.next_number = ready.number + 1;
        self.ready.push_back(ready);
    }

    /// Turns live segments below `needed` into spare files, at most `most`, and returns the numbers of the others.
    pub(super) fn retire(&mut self, needed: u64, most: usize) -> Vec<u64> {
        let mut surplus = Vec::new();
        while self.live.len() > 1 && self.live[0].number < needed {
            let Live { number, size, .. } = self.live.pop_front().expect("more than one");
            let is_spare = self.spare.iter().any(|spare| spare.number == number);
            assert!(!is_spare, "segment {number} is given up twice");
            match self.spare.len() < most {
                true => self.spare.push(Spare { number, size }),
                false => surplus.push(number),
            }
        }
        surplus
    }
}
