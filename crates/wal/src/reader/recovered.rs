//! The log that a start has found, and its records.

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
#[derive(Debug)]
pub struct Recovered {
    pub(crate) home: Home,
    pub(crate) live: Vec<Live>,
    pub(crate) cuts: Vec<(Incarnation, Lsn)>,
    pub(crate) end: Lsn,
    pub(crate) max_lsn: Lsn,
    pub(crate) next_group: GroupNo,
    pub(crate) incarnation: Incarnation,
}

impl Recovered {
    /// Returns the largest cut of the accepted groups: the log was durable up to it.
    #[must_use]
    pub const fn end(&self) -> Lsn {
        self.end
    }

    /// Returns the largest LSN or cut in the log, in records that do not count too. All new LSNs are greater.
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

    /// Returns the error of a group that was durable and is not in the log: one before its first group, or behind its
    /// last.
    #[must_use]
    pub fn lost(&self, missing: GroupNo) -> Error {
        let (first, last) = (&self.live[0], &self.live[self.live.len() - 1]);
        let (live, offset) = if missing < self.next_group { (first, FIRST_GROUP) } else { (last, last.end) };
        Error::LostLog { file: self.home.segment_path(live.number), offset, missing }
    }

    /// Returns the incarnation that has begun.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the records that count, of the groups from `from` on, in ascending order of LSN; equal LSNs in any
    /// order. A record counts if its LSN is not above the largest cut of the accepted groups of its own incarnation.
    ///
    /// The iterator's memory is at most the buffer of the log that wrote the records, and a group, and incomplete
    /// fragmented records. A group that was truncated since is an error.
    ///
    /// # Panics
    /// If `from` is before [`Self::first_group`].
    pub fn records(&self, from: GroupNo) -> RecordIter<'_> {
        assert!(from >= self.first_group(), "group {from} was truncated");
        let begins = |live: &Live| live.first_read().is_some_and(|first| first <= from);
        let segment = self.live.iter().rposition(begins).unwrap_or(0);
        let (next, offset) = self.live[segment].seek(from);
        let (reader, merge) = (GroupReader::new(self.live[segment].size), Merge::default());
        RecordIter { log: self, reader, merge, from, segment, file: None, offset, next, failed: false }
    }

    /// Returns the LSN up to which records of `incarnation` count.
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
    segment: usize,
    /// The file of the current segment, once it was opened.
    file: Option<Arc<dyn File>>,
    offset: u64,
    next: GroupNo,
    failed: bool,
}

impl Iterator for RecordIter<'_> {
    type Item = Result<LoggedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.advance().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

impl RecordIter<'_> {
    fn advance(&mut self) -> Result<Option<LoggedRecord>> {
        loop {
            if let Some(record) = self.merge.next()? {
                return Ok(Some(record));
            }
            if self.next < self.log.next_group {
                self.read_group()?;
                continue;
            }
            return if self.merge.release() { self.merge.next() } else { Ok(None) };
        }
    }

    /// Reads the next group of the chain.
    fn read_group(&mut self) -> Result<()> {
        let Recovered { home, live, .. } = self.log;
        let live = &live[self.segment];
        self.offset = live.unskipped(self.offset);
        if self.offset == live.end && self.segment + 1 < self.log.live.len() {
            self.segment += 1;
            self.file = None;
            self.offset = FIRST_GROUP;
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(home.fs.open(&home.segment_path(live.number))?),
        };
        let found = match GroupHeader::decode(self.reader.view(&**file, self.offset, BLOCK)?) {
            Decoded::Header(header, _) if header.group == self.next => {
                let chain = Chain {
                    uuid: home.uuid,
                    group: self.next,
                    prev_crc: header.prev_crc,
                    incarnation: self.merge.incarnation(),
                };
                self.reader.group(&**file, live.size, self.offset, &chain)?
            }
            _ => None,
        };
        let Some((header, _)) = found else {
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
        self.offset += u64::from(header.total_len);
        self.next = header.group.next();
        Ok(())
    }
}
