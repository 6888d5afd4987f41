//! Writing one file of an archive: groups of the log, packed behind a header.
//!
//! 1. Groups are copied along the chain, each checked, into a file with a temporary name.
//! 2. Its header is written, and the file synced.
//! 3. The file is read again, past the page cache, and each group checked.
//! 4. It gets its name, which is synced.
//!
//! Only then the log that it holds may be recycled.

use super::folder::{Folder, forked};
use super::pace::Pace;
use crate::follow::{Cursor, Step};
use crate::format::archive::ArchiveHeader;
use crate::format::{FIRST_GROUP, MAX_GROUP};
use crate::pace::REQUEST;
use crate::reader::{Chain, GroupReader};
use crate::segment::Home;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::{Nanos, pause};

/// The part of the log that goes into a file.
pub(super) struct Part<'a> {
    pub(super) home: &'a Home,
    /// The first group, and the last at most.
    pub(super) first: GroupNo,
    pub(super) upto: GroupNo,
    /// The file behind the hole that this one fills.
    pub(super) behind: Option<ArchiveHeader>,
    /// Checksum of the header before the first group, if the archive has that group.
    pub(super) prev_crc: Option<u32>,
    /// The most bytes of groups, except that there is at least one group.
    pub(super) most: u64,
    pub(super) pace: Pace<'a>,
}

/// Copies a part of the log from `at` on, which stands at or before its first group. The file has its name when this
/// returns. After an error it has none.
pub(super) fn write(folder: &Folder, part: &Part<'_>, at: &mut Cursor) -> Result<ArchiveHeader> {
    let path = folder.unfinished(part.first);
    if folder.fs.kind(&path)?.is_some() {
        folder.fs.remove(&path)?;
    }
    let file = folder.fs.create(&path)?;
    let written = fill(&*file, part, at).and_then(|header| {
        if !mutant("sabotage: a file of the archive is not synced") {
            file.sync()?;
        }
        pause::point("archive: a file is filled");
        drop(file);
        check(folder, &header, &part.pace)?;
        folder.fs.rename(&path, &folder.path(part.first))?;
        folder.fs.sync_dir(&folder.dir)?;
        pause::point("archive: a file has its name");
        Ok(header)
    });
    written.inspect_err(|_| {
        // An unfinished file only takes space. The first error matters more.
        let _ = folder.fs.remove(&path);
    })
}

/// Copies the groups and writes the header.
fn fill(file: &dyn File, part: &Part<'_>, at: &mut Cursor) -> Result<ArchiveHeader> {
    let mut header = ArchiveHeader {
        uuid: part.home.uuid,
        first: part.first,
        last: GroupNo::ZERO,
        bytes: 0,
        cut: Lsn::ZERO,
        time: Nanos::ZERO,
        prev_crc: 0,
        last_crc: 0,
    };
    let (mut buf, mut filled) = (AlignedBuf::new(MAX_GROUP), 0);
    let mut reader = GroupReader::paced();
    let upto = part.behind.map_or(part.upto, |behind| part.upto.min(GroupNo(behind.first.0 - 1)));
    while header.last < upto {
        part.pace.rest();
        let before = at.last_crc();
        let Some(Step { header: group, .. }) = at.step(part.home, &mut reader, true)? else {
            return Err(at.lost_next());
        };
        if group.group < part.first {
            continue;
        }
        let bytes = reader.bytes(&group);
        if filled > 0 && filled + bytes.len() > REQUEST {
            file.write_at(&buf[..filled], FIRST_GROUP + header.bytes - filled as u64)?;
            filled = 0;
        }
        buf[filled..filled + bytes.len()].copy_from_slice(bytes);
        filled += bytes.len();
        if group.group == part.first {
            header.prev_crc = before;
        }
        assert!(header.last < group.group, "group {} of the archive follows {}", group.group, header.last);
        header.bytes += bytes.len() as u64;
        (header.last, header.last_crc) = (group.group, at.last_crc());
        (header.cut, header.time) = (group.cut, group.time);
        if header.bytes >= part.most {
            break;
        }
    }
    assert!(header.last >= header.first, "a file of the archive has no group: {header:?}");
    let goes_on = |behind: &ArchiveHeader| behind.first > header.last.next() || behind.prev_crc == header.last_crc;
    if part.prev_crc.is_some_and(|crc| crc != header.prev_crc) || !part.behind.is_none_or(|behind| goes_on(&behind)) {
        return Err(forked(file.path()));
    }
    file.write_at(&buf[..filled], FIRST_GROUP + header.bytes - filled as u64)?;
    let mut block = AlignedBuf::new(BLOCK);
    block.copy_from_slice(&header.encode());
    file.write_at(&block, 0)?;
    Ok(header)
}

/// Reads an unfinished file again and checks its groups.
fn check(folder: &Folder, header: &ArchiveHeader, pace: &Pace<'_>) -> Result<()> {
    let file = folder.fs.open(&folder.unfinished(header.first))?;
    file.read_past_cache()?;
    let mut reader = GroupReader::paced();
    let mut groups = Groups::new(header);
    while groups.next(&mut reader, &*file)?.is_some() {
        pace.rest();
    }
    Ok(())
}

/// A walk over the groups of a file.
pub(crate) struct Groups {
    header: ArchiveHeader,
    next: GroupNo,
    crc: u32,
    incarnation: Incarnation,
    offset: u64,
}

impl Groups {
    pub(crate) const fn new(header: &ArchiveHeader) -> Self {
        let (next, crc) = (header.first, header.prev_crc);
        Self { header: *header, next, crc, incarnation: Incarnation(0), offset: FIRST_GROUP }
    }

    /// Returns the header of the next group and its checksum; `None` behind the last one. The reader holds its bytes.
    ///
    /// # Errors
    /// `Corrupted`, `Newer`, or the error of the disk.
    pub(crate) fn next(
        &mut self,
        reader: &mut GroupReader,
        file: &dyn File,
    ) -> Result<Option<(crate::format::GroupHeader, u32)>> {
        let end = FIRST_GROUP + self.header.bytes;
        if self.next > self.header.last {
            let fits = self.offset == end && self.crc == self.header.last_crc;
            return if fits { Ok(None) } else { Err(self.damaged(file)) };
        }
        let chain =
            Chain { uuid: self.header.uuid, group: self.next, prev_crc: self.crc, incarnation: self.incarnation };
        let Some((group, crc)) = reader.group(file, end, self.offset, &chain)? else { return Err(self.damaged(file)) };
        self.offset += u64::from(group.total_len);
        (self.next, self.crc, self.incarnation) = (group.group.next(), crc, group.incarnation);
        Ok(Some((group, crc)))
    }

    fn damaged(&self, file: &dyn File) -> Error {
        Error::corrupted(
            file.path(),
            Place::Offset(self.offset),
            "a group of the archive is not the one that was logged",
        )
    }
}
