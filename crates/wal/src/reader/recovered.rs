//! The content of the log when it was opened, and an iterator over its records.

use super::groups::{Chain, GroupReader};
use super::merge::{Merge, Read};
use crate::format::{Decoded, FIRST_GROUP, GroupHeader};
use crate::record::LoggedRecord;
use crate::segment::{Home, Live};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result};
use foreshore_io::File;
use std::sync::Arc;

/// The content of a log when it was opened.
#[derive(Clone, Debug)]
pub struct Recovered {
    pub(crate) home: Home,
    pub(crate) live: Vec<Live>,
    /// The largest cut of each incarnation, in ascending order of incarnation.
    pub(crate) cuts: Vec<(Incarnation, Lsn)>,
    pub(crate) end: Lsn,
    pub(crate) max_lsn: Lsn,
    pub(crate) next_group: GroupNo,
    pub(crate) incarnation: Incarnation,
}

impl Recovered {
    /// Returns the durable end of the log: the largest cut of an accepted group.
    #[must_use]
    pub const fn end(&self) -> Lsn {
        self.end
    }

    /// Returns the largest LSN in the log, cuts and discarded records included, but for those that are discarded in
    /// segments that the open has passed over. New LSNs are greater.
    #[must_use]
    pub const fn max_lsn(&self) -> Lsn {
        self.max_lsn
    }

    /// Returns the oldest group that can be read.
    #[must_use]
    pub fn first_group(&self) -> GroupNo {
        let first = &self.live[0];
        first.first_read().unwrap_or(first.first)
    }

    /// Returns the number after the last group.
    #[must_use]
    pub const fn next_group(&self) -> GroupNo {
        self.next_group
    }

    /// Returns the error of a durable group that is missing in the log: before its first group, or after its last one.
    #[must_use]
    pub fn lost(&self, missing: GroupNo) -> Error {
        let (first, last) = (&self.live[0], &self.live[self.live.len() - 1]);
        let (live, offset) = if missing < self.next_group { (first, FIRST_GROUP) } else { (last, last.end) };
        Error::LostLog { file: self.home.segment_path(live.number), offset, missing }
    }

    /// Returns the incarnation of this run, which new groups carry.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the valid records of group `from` and of later ones, in ascending order of LSN; equal LSNs in any order.
    /// A record is valid if its LSN is not above the largest cut of the accepted groups of its own incarnation.
    ///
    /// The iterator holds at most one cut of the log that wrote the records (its log buffer and 16 MiB), one group, and
    /// incomplete fragmented records. It returns `LostLog` for a group that is missing in a segment that the open has
    /// passed over, and `Corrupted` for another that was truncated since.
    ///
    /// # Panics
    /// If `from` is before [`Self::first_group`].
    pub fn records(&self, from: GroupNo) -> RecordIter<'_> {
        assert!(from >= self.first_group(), "group {from} was truncated");
        let segment = self.segment_of(from);
        let (next, offset) = self.live[segment].seek(from);
        let (reader, merge) = (GroupReader::new(self.live[segment].size), Merge::default());
        let prev_crc = (offset == FIRST_GROUP).then_some(self.live[segment].prev_crc);
        let (file, bytes, failed) = (None, 0, false);
        RecordIter { log: self, reader, merge, from, segment, file, offset, next, prev_crc, bytes, failed }
    }

    /// Returns about how many bytes of log there are from group `from` on. Zero behind the end.
    #[must_use]
    pub fn bytes_from(&self, from: GroupNo) -> u64 {
        assert!(self.live.is_sorted_by_key(|live| live.number), "segments follow each other");
        if from >= self.next_group {
            return 0;
        }
        let bytes = |live: &Live| live.end.saturating_sub(live.seek(from).1);
        self.live[self.segment_of(from)..].iter().map(bytes).sum()
    }

    /// Returns the index of the segment where a reader of group `from` begins. Repeated groups at the head of a segment
    /// may be older than those at the heads of segments before it.
    fn segment_of(&self, from: GroupNo) -> usize {
        let begins = |live: &Live| live.first_read().is_some_and(|first| first <= from);
        self.live.iter().rposition(begins).unwrap_or(0)
    }

    /// Returns the LSN up to which records of `incarnation` are valid.
    fn limit(&self, incarnation: Incarnation) -> Lsn {
        let found = self.cuts.binary_search_by_key(&incarnation, |&(incarnation, _)| incarnation);
        found.map_or(Lsn::ZERO, |i| self.cuts[i].1)
    }
}

/// An iterator over the records of [`Recovered::records`]. It ends after an error.
#[derive(Debug)]
pub struct RecordIter<'a> {
    log: &'a Recovered,
    reader: GroupReader,
    pub(super) merge: Merge,
    from: GroupNo,
    /// Index of the current segment in the live ones.
    segment: usize,
    /// The file of the current segment, once it was opened.
    file: Option<Arc<dyn File>>,
    /// Offset of the next group in the current segment.
    offset: u64,
    /// Number of the next group.
    next: GroupNo,
    /// Checksum that the header of the next group repeats; `None` if the reader begins in the middle of a segment.
    prev_crc: Option<u32>,
    /// Bytes of the groups read.
    bytes: u64,
    failed: bool,
}

impl Iterator for RecordIter<'_> {
    type Item = Result<LoggedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = LoggedRecord::default();
        self.next_into(&mut record).map(|found| found.then_some(record)).transpose()
    }
}

impl RecordIter<'_> {
    /// Returns the bytes of the groups read so far.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the incarnation that wrote the record returned last.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.merge.incarnation()
    }

    /// Stores the next record in the memory of `record`. Returns whether there is one; not behind an error.
    ///
    /// # Errors
    /// Those of the iterator.
    pub fn next_into(&mut self, record: &mut LoggedRecord) -> Result<bool> {
        if self.failed {
            return Ok(false);
        }
        let found = self.advance(record);
        self.failed = found.is_err();
        found
    }

    fn advance(&mut self, record: &mut LoggedRecord) -> Result<bool> {
        loop {
            if self.merge.next_into(record)? {
                return Ok(true);
            }
            if self.next < self.log.next_group {
                self.step()?;
                continue;
            }
            return if self.merge.release() { self.merge.next_into(record) } else { Ok(false) };
        }
    }

    /// Makes one step: goes to the next segment, or releases the records of an ended incarnation, or adds the next
    /// group.
    fn step(&mut self) -> Result<()> {
        let Recovered { home, live, .. } = self.log;
        let live = &live[self.segment];
        self.offset = live.unskipped(self.offset);
        let behind = self.log.live.get(self.segment + 1);
        let is_over = |behind: &Live| self.offset == live.end || live.is_unread() && self.next == behind.first;
        if behind.is_some_and(is_over) {
            self.segment += 1;
            self.file = None;
            self.offset = FIRST_GROUP;
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(home.fs.open(&home.segment_path(live.number))?),
        };
        // The scan has checked the links between groups that it has read.
        let before = self.segment.checked_sub(1).map(|before| &self.log.live[before]);
        let is_behind_unread = self.next == live.first && before.is_some_and(Live::is_unread);
        let is_unchecked = live.is_unread() || is_behind_unread;
        let found = match GroupHeader::decode(self.reader.view(&**file, self.offset, BLOCK)?) {
            Decoded::Header(header, _) if header.group == self.next => {
                let chain = Chain {
                    uuid: home.uuid,
                    group: self.next,
                    prev_crc: self.prev_crc.filter(|_| is_unchecked).unwrap_or(header.prev_crc),
                    incarnation: self.merge.incarnation(),
                };
                self.reader.group(&**file, live.size, self.offset, &chain)?
            }
            _ => None,
        };
        let Some((header, crc)) = found else {
            if is_unchecked {
                return Err(Error::LostLog { file: file.path().into(), offset: self.offset, missing: self.next });
            }
            let why = "a group that was there when the log was opened is gone";
            return Err(Error::corrupted(file.path(), Place::Offset(self.offset), why));
        };
        if header.incarnation != self.merge.incarnation() {
            if self.merge.release() {
                return Ok(());
            }
            self.merge.begin(header.incarnation);
        }
        if header.group >= self.from {
            let bytes = self.reader.bytes(&header);
            let limit = self.log.limit(header.incarnation);
            self.merge.push(&Read { header: &header, bytes, path: file.path(), offset: self.offset }, limit)?;
        }
        live.note_read(header.group, self.offset);
        self.offset += u64::from(header.total_len);
        self.bytes += u64::from(header.total_len);
        (self.next, self.prev_crc) = (header.group.next(), Some(crc));
        Ok(())
    }
}
