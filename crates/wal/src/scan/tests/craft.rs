//! Crafted logs, made group by group, for tests of logs that the format allows but no buffer writes.

use crate::format::{CtlSlot, Envelope, Extent, FIRST_GROUP, GROUP_HEADER, GroupHeader, SegmentHeader, segment_name};
use crate::reader::Recovered;
use crate::scan::{Rule, Scanned, scan_by};
use crate::segment::{Control, Home};
use foreshore_base::limits::BLOCK;
use foreshore_base::{GroupNo, Incarnation, Lsn, Result, Uuid, crc32c};
use foreshore_io::{File, Fs, Mem};
use foreshore_sync::Nanos;
use std::path::Path;
use std::sync::Arc;

pub(crate) const UUID: Uuid = Uuid([4; 16]);
const FIRST_SEGMENT: u64 = 1;

/// The bytes of a record.
pub(crate) fn record(lsn: u64, tag: u64, flags: u8, payload: &[u8]) -> Vec<u8> {
    let envelope = Envelope { len: payload.len() as u32, lsn: Lsn(lsn), tag, flags };
    let mut bytes = [&envelope.encode(crc32c(payload))[..], payload].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// A group that is not sealed yet.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Lengths, count of extents and `data_crc` are filled in by [`Draft::seal`].
    pub(crate) header: GroupHeader,
    pub(crate) extents: Vec<(Extent, Vec<u8>)>,
}

impl Draft {
    /// Adds an extent of records that are nothing but their LSNs, which are their tags too.
    pub(crate) fn lane(mut self, lane: u16, lsns: &[u64]) -> Self {
        let data = lsns.iter().flat_map(|&lsn| record(lsn, lsn, 0, &[])).collect();
        self.extent(lane, 0, data);
        self
    }

    pub(crate) fn extent(&mut self, lane: u16, at: u64, data: Vec<u8>) {
        self.extents.push((Extent { lane, len: data.len() as u32, at }, data));
    }

    /// Returns the group's bytes and the checksum of its header. The table holds the extents as given, right or wrong.
    pub(crate) fn seal(&self) -> (Vec<u8>, u32) {
        let mut body: Vec<u8> = self.extents.iter().flat_map(|(extent, _)| extent.encode()).collect();
        self.extents.iter().for_each(|(_, data)| body.extend_from_slice(data));
        let total = (GROUP_HEADER + body.len()).next_multiple_of(BLOCK);
        body.resize(total - GROUP_HEADER, 0);
        let header = GroupHeader {
            n_ext: self.extents.len() as u16,
            data_len: self.extents.iter().map(|(_, data)| data.len() as u32).sum(),
            total_len: total as u32,
            data_crc: crc32c(&body),
            ..self.header
        };
        let (head, crc) = header.encode();
        ([&head[..], &body].concat(), crc)
    }
}

/// A log in memory and the end of its chain.
pub(crate) struct Craft {
    pub(crate) home: Home,
    pub(crate) size: u64,
    /// Segment, offset and number of the next group, and the checksum that it repeats.
    pub(crate) segment: u64,
    pub(crate) at: u64,
    pub(crate) next: u64,
    pub(crate) prev_crc: u32,
}

impl Craft {
    /// Creates a log with segments of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let home = Home { fs, dir: Path::new("log").to_owned(), uuid: UUID };
        home.fs.create_dir(&home.dir).unwrap();
        let first = GroupNo(1);
        let slot =
            CtlSlot { uuid: UUID, incarnation: Incarnation(1), seq: 1, first, segment: FIRST_SEGMENT, prev_crc: 0 };
        let control = home.fs.create(&home.dir.join("ctl")).unwrap();
        control.write_at(&slot.encode(), 0).unwrap();
        control.write_at(&CtlSlot { seq: 2, ..slot }.encode(), BLOCK as u64).unwrap();
        let craft = Self { home, size, segment: FIRST_SEGMENT, at: FIRST_GROUP, next: 1, prev_crc: 0 };
        craft.create_segment(FIRST_SEGMENT);
        craft
    }

    /// Makes an empty segment.
    pub(crate) fn create_segment(&self, number: u64) {
        let file = self.home.fs.create(&self.home.dir.join(segment_name(number))).unwrap();
        file.allocate(0, self.size).unwrap();
        file.write_at(&SegmentHeader { uuid: UUID, number, size: self.size }.encode(), 0).unwrap();
    }

    pub(crate) fn file(&self, segment: u64) -> Arc<dyn File> {
        self.home.fs.open(&self.home.segment_path(segment)).unwrap()
    }

    /// A group without data that continues the chain.
    pub(crate) fn draft(&self, incarnation: u32, cut: u64) -> Draft {
        let header = GroupHeader {
            n_ext: 0,
            incarnation: Incarnation(incarnation),
            uuid: UUID,
            group: GroupNo(self.next),
            cut: Lsn(cut),
            acked_upto: GroupNo(self.next - 1),
            data_len: 0,
            total_len: 0,
            prev_crc: self.prev_crc,
            data_crc: 0,
            time: Nanos::ZERO,
        };
        Draft { header, extents: Vec::new() }
    }

    /// Finds the place of the next group of `len` bytes, in a new segment if need be.
    pub(crate) fn place(&mut self, len: u64) -> (u64, u64) {
        if self.at + len > self.size {
            (self.segment, self.at) = (self.segment + 1, FIRST_GROUP);
            if self.home.fs.kind(&self.home.segment_path(self.segment)).unwrap().is_none() {
                self.create_segment(self.segment);
            }
        }
        let place = (self.segment, self.at);
        self.at += len;
        place
    }

    /// Writes the group that `draft` makes, behind the last one.
    pub(crate) fn put(&mut self, draft: &Draft) {
        let (bytes, crc) = draft.seal();
        let (segment, at) = self.place(bytes.len() as u64);
        self.file(segment).write_at(&bytes, at).unwrap();
        (self.next, self.prev_crc) = (self.next + 1, crc);
    }

    /// Reads the log as a start does, by `rule`.
    pub(crate) fn recover(&self, rule: Rule) -> Result<(Scanned, Recovered)> {
        let scanned = scan_by(&self.home, &Control::open(&self.home)?, rule)?;
        let recovered = Recovered {
            home: self.home.clone(),
            end: scanned.end(),
            live: scanned.live.clone(),
            cuts: scanned.cuts.clone(),
            max_lsn: scanned.max_lsn,
            next_group: scanned.next,
            incarnation: Incarnation(scanned.incarnation.0 + 1),
        };
        Ok((scanned, recovered))
    }
}
