//! Reading groups and records back.

use crate::format::{Decoded, EXTENT, Envelope, Extent, FIRST_GROUP, GROUP_HEADER, GroupHeader, MAX_GROUP, VERSION};
use crate::record::{LoggedRecord, MAX_LARGE, flags};
use crate::segment::Live;
use foreshore_base::codec::Decoder;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result, Uuid, crc32c};
use foreshore_io::{AlignedBuf, File};
use std::collections::HashMap;
use std::sync::Arc;

/// What the next group of the chain must carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) uuid: Uuid,
    pub(crate) group: GroupNo,
    pub(crate) prev_crc: u32,
    /// The incarnation of the group before; they never fall.
    pub(crate) incarnation: Incarnation,
}

/// Reads groups through a window of at most 1 MiB.
#[derive(Debug)]
pub(crate) struct GroupReader {
    window: AlignedBuf,
    /// Path and range of the file that the window shows.
    shown: Option<(std::path::PathBuf, u64, u64)>,
    /// Start in the window of the group that was read last.
    group: usize,
}

impl GroupReader {
    /// A reader of segments of `size` bytes, or others.
    pub(crate) fn new(size: u64) -> Self {
        let bytes = usize::try_from(size).unwrap_or(MAX_GROUP).clamp(BLOCK, MAX_GROUP);
        Self { window: AlignedBuf::new(bytes.next_multiple_of(BLOCK)), shown: None, group: 0 }
    }

    /// `len` bytes of `file` at `at`, both multiples of a block; what lies behind the end of the file reads as zeros.
    pub(crate) fn view(&mut self, file: &dyn File, at: u64, len: usize) -> Result<&[u8]> {
        assert!(len <= MAX_GROUP, "a view is at most a group");
        let hit = |(path, start, end): &(_, u64, u64)| path == file.path() && *start <= at && at + len as u64 <= *end;
        if !self.shown.as_ref().is_some_and(hit) {
            self.shown = None;
            if len > self.window.len() {
                self.window = AlignedBuf::new(MAX_GROUP);
            }
            let read = file.read_at(&mut self.window, at)?;
            let shown = read.max(len);
            self.window[read..shown].fill(0);
            self.shown = Some((file.path().to_owned(), at, at + shown as u64));
        }
        let start = self.shown.as_ref().map_or(0, |&(_, start, _)| start);
        self.group = (at - start) as usize;
        Ok(&self.window[self.group..self.group + len])
    }

    /// The group at `at` of a segment of `size` bytes and its checksum, if it is whole and continues `chain`.
    ///
    /// # Errors
    /// `Newer` if it continues the chain in a version that this build does not read; what reading failed with.
    pub(crate) fn group(
        &mut self,
        file: &dyn File,
        size: u64,
        at: u64,
        chain: &Chain,
    ) -> Result<Option<(GroupHeader, u32)>> {
        if at + BLOCK as u64 > size {
            return Ok(None);
        }
        let (header, crc) = match GroupHeader::decode(self.view(file, at, BLOCK)?) {
            Decoded::Header(header, crc) => (header, crc),
            Decoded::Newer(found) => {
                return Err(Error::Newer { path: file.path().into(), found, supported: VERSION });
            }
            Decoded::Nothing => return Ok(None),
        };
        let fits = header.uuid == chain.uuid
            && header.group == chain.group
            && header.prev_crc == chain.prev_crc
            && header.incarnation >= chain.incarnation
            && at + u64::from(header.total_len) <= size;
        if !fits {
            return Ok(None);
        }
        let bytes = self.view(file, at, header.total_len as usize)?;
        let whole = crc32c(&bytes[GROUP_HEADER..]) == header.data_crc && extents_fit(bytes, &header);
        Ok(whole.then_some((header, crc)))
    }

    /// All bytes of the group that [`Self::group`] returned last.
    pub(crate) fn bytes(&self, header: &GroupHeader) -> &[u8] {
        &self.window[self.group..self.group + header.total_len as usize]
    }

    /// The data of the group that [`Self::group`] returned last.
    pub(crate) fn data(&self, header: &GroupHeader) -> &[u8] {
        let start = self.group + header.data_start();
        &self.window[start..start + header.data_len as usize]
    }
}

/// Whether the extents' lengths sum up to the data.
fn extents_fit(bytes: &[u8], header: &GroupHeader) -> bool {
    let table = &bytes[GROUP_HEADER..header.data_start()];
    let (entries, rest) = table.as_chunks::<EXTENT>();
    let sum: u64 = entries.iter().map(|entry| u64::from(Extent::decode(entry).len)).sum();
    rest.is_empty() && sum == u64::from(header.data_len)
}

/// What a log held when it was opened.
#[derive(Debug)]
pub struct Recovered {
    pub(crate) uuid: Uuid,
    pub(crate) live: Vec<(Live, Arc<dyn File>)>,
    pub(crate) cuts: Vec<(Incarnation, Lsn)>,
    pub(crate) end: Lsn,
    pub(crate) max_lsn: Lsn,
    pub(crate) next_group: GroupNo,
    pub(crate) incarnation: Incarnation,
}

impl Recovered {
    /// The largest cut of the accepted groups: the log was durable up to here.
    #[must_use]
    pub const fn end(&self) -> Lsn {
        self.end
    }

    /// The largest LSN or cut seen, in records that do not count too. All LSNs from now on are greater.
    #[must_use]
    pub const fn max_lsn(&self) -> Lsn {
        self.max_lsn
    }

    /// The oldest group that can be read.
    #[must_use]
    pub fn first_group(&self) -> GroupNo {
        self.live[0].0.first_read()
    }

    /// The number after the last group.
    #[must_use]
    pub const fn next_group(&self) -> GroupNo {
        self.next_group
    }

    /// The incarnation that has begun.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The records that count, from group `from` on, in the order of the log. A record counts if its LSN is not above
    /// the largest cut of the accepted groups of its own incarnation. Memory is bounded by two groups and the fragmented
    /// records that are incomplete at a time. Groups that were truncated since are an error.
    ///
    /// # Panics
    /// If `from` is before [`Self::first_group`].
    pub fn records(&self, from: GroupNo) -> RecordIter<'_> {
        assert!(from >= self.first_group(), "group {from} was truncated");
        let segment = self.live.partition_point(|(live, _)| live.first_read() <= from) - 1;
        let (group, offset) = self.live[segment].0.seek(from);
        RecordIter {
            log: self,
            reader: GroupReader::new(self.live[segment].0.size),
            from,
            segment,
            offset,
            next: group,
            data: Vec::new(),
            at: 0,
            group: (group, Incarnation(0)),
            fragments: HashMap::new(),
            failed: false,
        }
    }

    fn accepts(&self, lsn: Lsn, incarnation: Incarnation) -> bool {
        let found = self.cuts.binary_search_by_key(&incarnation, |&(incarnation, _)| incarnation);
        found.is_ok_and(|i| lsn <= self.cuts[i].1)
    }
}

/// A record whose last fragment has not been read yet.
#[derive(Debug)]
struct Partial {
    group: GroupNo,
    total: usize,
    payload: Vec<u8>,
}

/// Iterates over the records of [`Recovered::records`]. After an error it ends.
#[derive(Debug)]
pub struct RecordIter<'a> {
    log: &'a Recovered,
    reader: GroupReader,
    from: GroupNo,
    segment: usize,
    offset: u64,
    next: GroupNo,
    /// Data of the current group, read up to `at`.
    data: Vec<u8>,
    at: usize,
    group: (GroupNo, Incarnation),
    /// By the LSN of the first fragment.
    fragments: HashMap<Lsn, Partial>,
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
            if self.at == self.data.len() {
                if self.next == self.log.next_group {
                    return Ok(None);
                }
                self.read_group()?;
                continue;
            }
            let (envelope, payload, next) =
                Envelope::split(&self.data[self.at..]).ok_or_else(|| self.corrupted("a record is damaged"))?;
            let (start, len) = (self.at + crate::format::ENVELOPE, payload.len());
            self.at = self.data.len() - next.len();
            if self.group.0 < self.from || !self.log.accepts(envelope.lsn, self.group.1) {
                continue;
            }
            if let Some(record) = self.assemble(&envelope, start..start + len)? {
                return Ok(Some(record));
            }
        }
    }

    /// Reads the next group of the chain into `data`.
    fn read_group(&mut self) -> Result<()> {
        let (live, file) = &self.log.live[self.segment];
        self.offset = live.unskipped(self.offset);
        if self.offset == live.end && self.segment + 1 < self.log.live.len() {
            self.segment += 1;
            self.offset = FIRST_GROUP;
            return Ok(());
        }
        let found = match GroupHeader::decode(self.reader.view(&**file, self.offset, BLOCK)?) {
            Decoded::Header(header, _) if header.group == self.next => {
                let chain = Chain {
                    uuid: self.log.uuid,
                    group: self.next,
                    prev_crc: header.prev_crc,
                    incarnation: self.group.1,
                };
                self.reader.group(&**file, live.size, self.offset, &chain)?
            }
            _ => None,
        };
        let Some((header, _)) = found else {
            return Err(self.corrupted("a group that was there when the log was opened is gone"));
        };
        if header.incarnation != self.group.1 {
            // What the earlier incarnation left incomplete stays so.
            self.fragments.clear();
        }
        self.group = (header.group, header.incarnation);
        self.data.clear();
        self.data.extend_from_slice(self.reader.data(&header));
        self.at = 0;
        self.offset += u64::from(header.total_len);
        self.next = header.group.next();
        Ok(())
    }

    /// Turns a record of the current group into what the caller appended; `None` for all but the last fragment.
    fn assemble(&mut self, envelope: &Envelope, payload: std::ops::Range<usize>) -> Result<Option<LoggedRecord>> {
        let bytes = &self.data[payload];
        let record = |payload, group| {
            let (lsn, tag, flags) = (envelope.lsn, envelope.tag, envelope.flags & flags::CALLER);
            Ok(Some(LoggedRecord { lsn, tag, flags, payload, group }))
        };
        let kind = envelope.flags & !flags::CALLER;
        if kind == 0 {
            return record(bytes.to_vec(), self.group.0);
        }
        let mut decoder = Decoder::new(bytes);
        let link = decoder.u64().map_err(|_| self.corrupted("a fragment without its link"))?;
        let piece = decoder.rest();
        if kind == flags::FIRST {
            let total = usize::try_from(link).ok().filter(|&total| total <= MAX_LARGE && piece.len() < total);
            let total = total.ok_or_else(|| self.corrupted("a fragmented record of impossible length"))?;
            self.fragments.insert(envelope.lsn, Partial { group: self.group.0, total, payload: piece.to_vec() });
            return Ok(None);
        }
        let first = Lsn(link);
        // The first fragment is missing where reading starts behind it.
        let Some(partial) = self.fragments.get_mut(&first) else { return Ok(None) };
        partial.payload.extend_from_slice(piece);
        let (whole, over) = (partial.payload.len() == partial.total, partial.payload.len() > partial.total);
        if over || whole != (kind == flags::LAST) {
            return Err(self.corrupted("the fragments of a record do not add up"));
        }
        match self.fragments.remove(&first) {
            Some(partial) if whole => record(partial.payload, partial.group),
            Some(partial) => {
                self.fragments.insert(first, partial);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn corrupted(&self, why: &'static str) -> Error {
        let path = self.log.live[self.segment].1.path();
        Error::corrupted(path, Place::Offset(self.offset), why)
    }
}
