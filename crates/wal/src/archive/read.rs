//! Reading an archive from a group on.

use super::file::Groups;
use super::folder::{Folder, forked};
use crate::format::GroupHeader;
use crate::format::archive::ArchiveHeader;
use crate::reader::{Chain, GroupReader};
use foreshore_base::{Error, GroupNo, Place, RestoreRefusal, Result};
use foreshore_io::File;
use std::sync::Arc;

/// A reader of the groups of an archive that follow those of a log.
pub(crate) struct ArchiveReader<'a> {
    folder: &'a Folder,
    /// First groups of the files that are not read yet, the last one first.
    files: Vec<GroupNo>,
    open: Option<(Arc<dyn File>, Groups, ArchiveHeader)>,
    /// What the next group must have.
    next: Chain,
}

impl<'a> ArchiveReader<'a> {
    /// Reads the groups from `next` on.
    ///
    /// # Errors
    /// `RestoreRefusal::EmptyArchive` if there is no file, or the error of the disk.
    pub(crate) fn new(folder: &'a Folder, next: Chain) -> Result<Self> {
        let mut files = folder.firsts()?;
        if files.is_empty() {
            return Err(Error::Restore(RestoreRefusal::EmptyArchive { dir: folder.dir.clone() }));
        }
        // The file that begins last, at the next group at the latest, may have it. The earlier ones have not.
        let before = files.partition_point(|&first| first <= next.group);
        files.drain(..before.saturating_sub(1));
        files.reverse();
        Ok(Self { folder, files, open: None, next })
    }

    /// Returns the header of the next group; `None` at the end of the archive. The reader holds its bytes.
    ///
    /// # Errors
    /// - `RestoreRefusal::Gap` if the archive goes on with a later group.
    /// - `Foreign` if it belongs to another database, or does not continue the log.
    /// - `Corrupted` also if it has a group of an earlier incarnation than the one before.
    /// - `Truncated`, `Newer`, or the error of the disk.
    pub(crate) fn next(&mut self, reader: &mut GroupReader) -> Result<Option<GroupHeader>> {
        loop {
            let Some((file, groups, header)) = &mut self.open else {
                match self.next_file()? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            let Some((group, crc)) = groups.next(reader, &**file)? else {
                self.open = None;
                continue;
            };
            let path = self.folder.path(header.first);
            if group.group < self.next.group {
                // The log and the archive have this group.
                if group.group.next() == self.next.group && crc != self.next.prev_crc {
                    return Err(forked(&path));
                }
                continue;
            }
            if group.group > self.next.group {
                return Err(self.gap(group.group));
            }
            if group.prev_crc != self.next.prev_crc {
                return Err(forked(&path));
            }
            if group.incarnation < self.next.incarnation {
                let why = "its groups have an earlier incarnation than the log before them";
                return Err(Error::corrupted(&path, Place::File, why));
            }
            let (next, incarnation) = (group.group.next(), group.incarnation);
            self.next = Chain { group: next, prev_crc: crc, incarnation, ..self.next };
            return Ok(Some(group));
        }
    }

    /// Returns what the next group must have.
    pub(crate) const fn chain(&self) -> Chain {
        self.next
    }

    /// Opens the next file that goes beyond the last group. Returns false if there is none.
    fn next_file(&mut self) -> Result<bool> {
        while let Some(first) = self.files.pop() {
            let (file, header) = self.folder.open(first)?;
            if header.last.next() < self.next.group {
                continue;
            }
            if header.first > self.next.group {
                return Err(self.gap(header.first));
            }
            file.read_past_cache()?;
            self.open = Some((file, Groups::new(&header), header));
            return Ok(true);
        }
        Ok(false)
    }

    fn gap(&self, next: GroupNo) -> Error {
        Error::Restore(RestoreRefusal::Gap { dir: self.folder.dir.clone(), missing: self.next.group, next })
    }
}
