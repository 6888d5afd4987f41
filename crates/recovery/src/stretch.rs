//! The log in stretches, so that the changes of unended transactions can be read again, newest first.
//!
//! The log is read forwards, in order of LSN. Undo goes backwards, and its changes do not all fit in memory. So the
//! analysis keeps no change. It divides the log into stretches, ranges of LSNs with a fixed number of bytes of
//! changes, and notes per transaction which stretches have changes of it. Undo reads one stretch after the other, from
//! the last one to the first.
//!
//! Groups cannot serve as ranges: a cut of the log may be written as several groups, and the records of one are then
//! no older than those of the next. A stretch notes the oldest group that has a change of it, and reading begins
//! there.
//!
//! **Memory:** 16 bytes for each stretch, and the changes of the one that is being undone.

use foreshore_base::{GroupNo, Lsn, Result};
use foreshore_wal::{LoggedRecord, Recovered};
use std::ops::RangeInclusive;

/// Number of a stretch, from 0 on.
pub(crate) type StretchNo = u32;

/// A range of LSNs that ends where the next one begins.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Lsn,
    /// No change of it lies in an earlier group.
    from: GroupNo,
}

/// The stretches of the log that has been read, by LSN.
#[derive(Debug)]
pub(crate) struct Stretches {
    /// Most bytes of changes in each, except for a single larger one.
    size: usize,
    list: Vec<Stretch>,
    /// Bytes of changes in the newest one.
    bytes: usize,
    /// LSN of the last change.
    last: Lsn,
}

impl Stretches {
    /// Makes an empty list of stretches of `size` bytes each.
    pub(crate) const fn new(size: usize) -> Self {
        Self { size, list: Vec::new(), bytes: 0, last: Lsn::ZERO }
    }

    /// Notes a change of `bytes` bytes, and returns its stretch. Changes come in order of LSN.
    pub(crate) fn note(&mut self, lsn: Lsn, group: GroupNo, bytes: usize) -> StretchNo {
        // Equal LSNs stay together.
        let is_full = self.bytes + bytes > self.size && lsn > self.last;
        if self.list.is_empty() || is_full {
            self.list.push(Stretch { first: lsn, from: group });
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.last = lsn;
        let newest = self.list.last_mut().expect("pushed if there was none");
        newest.from = newest.from.min(group);
        StretchNo::try_from(self.list.len() - 1).expect("a stretch has many bytes of log")
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> StretchNo {
        StretchNo::try_from(self.list.len()).expect("as in `note`")
    }

    /// Reads the records of adjacent stretches again, in order of LSN.
    pub(crate) fn read<'l>(
        &self,
        log: &'l Recovered,
        run: RangeInclusive<StretchNo>,
    ) -> impl Iterator<Item = Result<LoggedRecord>> + use<'l> {
        let (from, to) = (*run.start() as usize, *run.end() as usize);
        assert!(from <= to && to < self.list.len(), "stretches {run:?} of {}", self.list.len());
        let first = self.list[from].first;
        let behind = self.list.get(to + 1).map_or(Lsn(u64::MAX), |next| next.first);
        let group = self.list[from..=to].iter().map(|stretch| stretch.from).min();
        let records = log.records(group.expect("a run is not empty"));
        let is_before = move |record: &Result<LoggedRecord>| record.as_ref().is_ok_and(|record| record.lsn < first);
        let is_within = move |record: &Result<LoggedRecord>| record.as_ref().map_or(true, |record| record.lsn < behind);
        records.skip_while(is_before).take_while(is_within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_full_by_its_bytes_and_never_between_equal_stamps() {
        let mut stretches = Stretches::new(100);
        let mut note = |lsn, group, bytes| stretches.note(Lsn(lsn), GroupNo(group), bytes);
        assert_eq!([note(10, 5, 60), note(20, 6, 40), note(21, 6, 1)], [0, 0, 1]);
        assert_eq!([note(22, 7, 99), note(22, 7, 90), note(23, 7, 500), note(24, 8, 1)], [1, 1, 2, 3]);
        assert_eq!(stretches.count(), 4);
    }

    #[test]
    fn a_stretch_begins_in_the_oldest_group_of_its_changes() {
        let mut stretches = Stretches::new(100);
        // Both groups belong to one cut.
        stretches.note(Lsn(10), GroupNo(6), 50);
        stretches.note(Lsn(20), GroupNo(5), 50);
        stretches.note(Lsn(30), GroupNo(6), 50);
        let from: Vec<_> = stretches.list.iter().map(|stretch| (stretch.first.0, stretch.from.0)).collect();
        assert_eq!(from, [(10, 5), (30, 6)]);
    }
}
