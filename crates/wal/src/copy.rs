//! Copying the durable groups of a log into a new one, while sessions append.
//!
//! 1. Note the durable LSN. The copy ends with the first group whose cut reaches it. That group is durable, and so are
//!    those before it.
//! 2. Read the groups along the chain, with all checks of a start, and write them byte for byte. The chain links groups
//!    by number and checksum, not by place. So they are packed into new segments, without holes and repeated groups.
//! 3. Give each segment its header and its name when it is full.
//! 4. Prepare segments for the next groups if the copy is to be opened, and write the control file.
//!
//! Groups before the first requested one are not needed: a start of the original would not read them either.

use crate::follow::{Cursor, Step};
use crate::log_core::Core;
use crate::log_writer::LogWriter;
use crate::pace::REQUEST;
use crate::reader::GroupReader;
use crate::segment::Home;
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_io::Fs;
use std::path::Path;
use std::sync::Arc;

/// A finished copy of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopiedLog {
    /// The copy has every record with an LSN up to this one. None with a greater LSN counts in it.
    pub durable: Lsn,
    /// Bytes of the copied groups.
    pub bytes: u64,
}

/// Where a log is copied to.
#[allow(missing_debug_implementations)]
pub struct CopyTarget<'a> {
    /// The file system of the copy.
    pub fs: &'a Arc<dyn Fs>,
    /// The directory of the copy, whose parent exists.
    pub dir: &'a Path,
    /// Whether the copy gets prepared segments, so that an open appends to it without space. A restore needs none.
    pub is_opened: bool,
}

/// Copies the groups from `from` on. Calls `go_on` before each group, and ends with its error.
pub(crate) fn copy(
    core: &Core,
    from: GroupNo,
    to: &CopyTarget<'_>,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<CopiedLog> {
    let durable = core.pipeline.progress().durable();
    let source = core.segments.home();
    let start = core.segments.list().slot_at(from, source.uuid).expect("a log with files has a segment");
    if start.first > from {
        return Err(Error::LogTruncated { dir: source.dir.clone(), wanted: from, first: start.first });
    }
    let (file, size) = source.open_segment(start.segment)?;
    let (mut at, mut reader) = (Cursor::new(&start, file, size), GroupReader::paced());
    let home = Home { fs: to.fs.clone(), dir: to.dir.to_owned(), uuid: source.uuid };
    let mut writer = LogWriter::create(home, core.options.segment_bytes, REQUEST)?;
    loop {
        go_on()?;
        let Some(Step { header, .. }) = at.step(source, &mut reader, true)? else { return Err(at.lost_next()) };
        if header.group < from {
            continue;
        }
        writer.push(header, reader.bytes(&header))?;
        if header.cut >= durable {
            let bytes = writer.finish(if to.is_opened { core.options.ready_segments } else { 0 })?;
            return Ok(CopiedLog { durable: header.cut, bytes });
        }
    }
}
