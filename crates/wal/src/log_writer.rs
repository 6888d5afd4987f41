//! A writer of a new log from groups of another one.
//!
//! The chain links groups by number and checksum, not by place. So they are packed into new segments, without holes and
//! repeated groups. Each segment gets its header and its name when it is full. The control file comes last: without it
//! there is no log.
//!
//! Groups keep their numbers and their data. In a log of another uuid each header is sealed anew, since it has the
//! uuid, and the checksum of the header before it.

use crate::format::{CtlSlot, FIRST_GROUP, GROUP_HEADER, GroupHeader, MAX_GROUP, temporary_name};
use crate::segment::{Control, Files, Home};
use foreshore_base::Result;
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::pause;
use std::sync::Arc;

/// Number of the first segment.
const FIRST_SEGMENT: u64 = 1;

/// A writer of the segments of a new log.
pub(crate) struct LogWriter {
    home: Home,
    segment_bytes: u64,
    segment: Option<Segment>,
    /// Number of the next segment.
    next: u64,
    /// The most bytes that are written at once, except for a larger group.
    request: usize,
    /// Groups that are not written yet.
    buf: AlignedBuf,
    filled: usize,
    /// Control slot of the log, once it has a group.
    start: Option<CtlSlot>,
    /// Checksum of the last header that was written.
    last_crc: u32,
    bytes: u64,
}

/// The segment that is being written.
struct Segment {
    number: u64,
    file: Arc<dyn File>,
    /// Offset of the next write.
    end: u64,
}

impl LogWriter {
    /// Begins a log in `home`, whose parent exists. At most `request` bytes are written at once, except for a larger
    /// group.
    pub(crate) fn create(home: Home, segment_bytes: u64, request: usize) -> Result<Self> {
        home.fs.create_dir(&home.dir)?;
        let (buf, next) = (AlignedBuf::new(MAX_GROUP), FIRST_SEGMENT);
        Ok(Self {
            home,
            segment_bytes,
            segment: None,
            next,
            request,
            buf,
            filled: 0,
            start: None,
            last_crc: 0,
            bytes: 0,
        })
    }

    /// Appends the group of `header`, whose data are those of `bytes`. The first one may have any number; the others
    /// follow it.
    pub(crate) fn push(&mut self, header: GroupHeader, bytes: &[u8]) -> Result<()> {
        let len = bytes.len();
        assert_eq!(len, header.total_len as usize, "the bytes of a group and its length: {header:?}");
        let new = CtlSlot {
            uuid: self.home.uuid,
            incarnation: header.incarnation,
            seq: 1,
            first: header.group,
            segment: FIRST_SEGMENT,
            prev_crc: header.prev_crc,
        };
        let prev_crc = if self.start.is_some() { self.last_crc } else { header.prev_crc };
        let start = self.start.get_or_insert(new);
        assert!(start.incarnation <= header.incarnation, "incarnations fall along the chain: {header:?}");
        start.incarnation = header.incarnation;
        let is_full = |segment: &Segment| segment.end + (self.filled + len) as u64 > self.segment_bytes;
        if self.segment.as_ref().is_some_and(is_full) {
            self.end_segment()?;
        }
        if self.segment.is_none() {
            let file = self.home.fs.create(&self.home.dir.join(temporary_name(self.next)))?;
            self.segment = Some(Segment { number: self.next, file, end: FIRST_GROUP });
            self.next += 1;
        }
        if self.filled > 0 && self.filled + len > self.request {
            self.flush()?;
        }
        let (head, crc) = GroupHeader { uuid: self.home.uuid, prev_crc, ..header }.encode();
        assert!(self.filled + len <= self.buf.len(), "{} bytes wait before a group of {len}", self.filled);
        let group = &mut self.buf[self.filled..self.filled + len];
        group.copy_from_slice(bytes);
        group[..GROUP_HEADER].copy_from_slice(&head);
        self.last_crc = crc;
        self.filled += len;
        self.bytes += len as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(segment) = &mut self.segment {
            segment.file.write_at(&self.buf[..self.filled], segment.end)?;
            segment.end += self.filled as u64;
        }
        self.filled = 0;
        Ok(())
    }

    /// Gives the segment its header and its name. It is as long as its content, so the log goes on in the next one.
    fn end_segment(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(Segment { number, file, end }) = self.segment.take() {
            assert!(end > FIRST_GROUP, "segment {number} of a copy has no group");
            Files::new(self.home.clone(), end).finish(&*file, number)?;
        }
        Ok(())
    }

    /// Ends the log and returns the bytes of its groups. Like a new log, it has `ready` prepared segments. There is at
    /// least one group.
    pub(crate) fn finish(mut self, ready: usize) -> Result<u64> {
        self.end_segment()?;
        let files = Files::new(self.home.clone(), self.segment_bytes);
        for number in self.next..self.next + ready as u64 {
            files.create(number)?;
        }
        pause::point("wal: the segments of a copy are there");
        Control::create(&self.home, self.start.expect("a copy has a group"))?;
        Ok(self.bytes)
    }
}
