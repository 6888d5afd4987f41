//! Copying the durable groups of a log into a new one, while sessions append.
//!
//! 1. Note the durable LSN. The copy ends with the first group whose cut reaches it. That group is durable, and so are
//!    those before it.
//! 2. Read the groups along the chain, with all checks of a start, and write them byte for byte. The chain links groups
//!    by number and checksum, not by place. So they are packed into new segments, without holes and repeated groups.
//! 3. Give each segment its header and its name when it is full.
//! 4. Prepare segments for the next groups, and write the control file.
//!
//! Groups before the first requested one are not needed: a start of the original would not read them either.

use crate::follow::{Cursor, Step};
use crate::format::{CtlSlot, FIRST_GROUP, GroupHeader, MAX_GROUP, temporary_name};
use crate::log_core::Core;
use crate::reader::GroupReader;
use crate::segment::{Control, Files, Home};
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_io::{AlignedBuf, File, Fs};
use foreshore_sync::pause;
use std::path::Path;
use std::sync::Arc;

/// Number of the first segment of a copy.
const FIRST_SEGMENT: u64 = 1;

/// A finished copy of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopiedLog {
    /// The copy has every record with an LSN up to this one. None with a greater LSN counts in it.
    pub durable: Lsn,
    /// Bytes of the copied groups.
    pub bytes: u64,
}

/// Copies the groups from `from` on. Calls `go_on` before each group, and ends with its error.
pub(crate) fn copy(
    core: &Core,
    from: GroupNo,
    (fs, dir): (&Arc<dyn Fs>, &Path),
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<CopiedLog> {
    let durable = core.pipeline.progress().durable();
    let source = core.segments.home();
    let start = core.segments.list().slot_at(from, source.uuid).expect("a log with files has a segment");
    if start.first > from {
        return Err(Error::LogTruncated { dir: source.dir.clone(), wanted: from, first: start.first });
    }
    let (file, size) = source.open_segment(start.segment)?;
    let (mut at, mut reader) = (Cursor::new(&start, file, size), GroupReader::new(size));
    fs.create_dir(dir)?;
    let to = Home { fs: fs.clone(), dir: dir.to_owned(), uuid: source.uuid };
    let mut writer = Writer::new(to, core.options.segment_bytes);
    loop {
        go_on()?;
        let Some(Step { header, .. }) = at.step(source, &mut reader, true)? else { return Err(at.lost_next()) };
        if header.group < from {
            continue;
        }
        writer.push(&header, reader.bytes(&header))?;
        if header.cut >= durable {
            let bytes = writer.finish(core.options.ready_segments)?;
            return Ok(CopiedLog { durable: header.cut, bytes });
        }
    }
}

/// A writer of the segments of a new log.
struct Writer {
    home: Home,
    segment_bytes: u64,
    segment: Option<Segment>,
    /// Number of the next segment.
    next: u64,
    /// Groups that are not written yet.
    buf: AlignedBuf,
    filled: usize,
    /// Control slot of the log, once it has a group.
    start: Option<CtlSlot>,
    bytes: u64,
}

/// The segment that is being written.
struct Segment {
    number: u64,
    file: Arc<dyn File>,
    /// Offset of the next write.
    end: u64,
}

impl Writer {
    fn new(home: Home, segment_bytes: u64) -> Self {
        let buf = AlignedBuf::new(MAX_GROUP);
        Self { home, segment_bytes, segment: None, next: FIRST_SEGMENT, buf, filled: 0, start: None, bytes: 0 }
    }

    /// Appends a group.
    fn push(&mut self, header: &GroupHeader, bytes: &[u8]) -> Result<()> {
        let len = bytes.len();
        let new = CtlSlot {
            uuid: header.uuid,
            incarnation: header.incarnation,
            seq: 1,
            first: header.group,
            segment: FIRST_SEGMENT,
            prev_crc: header.prev_crc,
        };
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
        if self.filled + len > self.buf.len() {
            self.flush()?;
        }
        self.buf[self.filled..self.filled + len].copy_from_slice(bytes);
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

    /// Ends the log and returns the bytes of its groups. Like a new log, it has `ready` prepared segments.
    fn finish(mut self, ready: usize) -> Result<u64> {
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
