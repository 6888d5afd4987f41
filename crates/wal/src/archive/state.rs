//! What an archive has, and where its next file begins.

use super::folder::{Folder, Unsound, forked};
use super::stats::ArchiveStats;
use crate::follow::Cursor;
use crate::format::archive::ArchiveHeader;
use crate::format::{FIRST_GROUP, MAX_GROUP};
use crate::log_core::Core;
use crate::reader::GroupReader;
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_io::DirLock;
use foreshore_sync::Nanos;
use std::collections::VecDeque;

pub(super) struct State {
    /// The first group that is not archived.
    pub(super) next: GroupNo,
    /// Checksum of the header before it; `None` if a new chain begins.
    pub(super) last_crc: Option<u32>,
    /// A cursor at or before it.
    pub(super) at: Option<Cursor>,
    pub(super) files: VecDeque<ArchiveHeader>,
    /// Files that are not sound, while one of them that is in the way of the next file could not be read. They are
    /// read again.
    pub(super) unread: Vec<Unsound>,
    /// Failed attempts since one has succeeded.
    pub(super) failed: u32,
    /// Why an old file was not removed when the last one was written.
    pub(super) drop_failure: Option<Error>,
    /// When the end of the log was archived.
    pub(super) ended: Nanos,
    /// `None` once the archive is released.
    pub(super) lock: Option<Box<dyn DirLock>>,
}

impl State {
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| FIRST_GROUP + file.bytes).sum()
    }

    /// Puts what the files are into the counters.
    pub(super) fn show(&self, stats: &mut ArchiveStats) {
        stats.files = self.files.len() as u64;
        stats.bytes = self.bytes();
        stats.archived = self.files.back().map_or(Lsn::ZERO, |file| file.cut);
    }

    /// Finds the first group of the log that is not archived, checks that the archive has this log, and counts what it
    /// lacks.
    pub(super) fn join(&mut self, core: &Core, folder: &Folder, stats: &mut ArchiveStats) -> Result<()> {
        for (file, behind) in self.files.iter().zip(self.files.iter().skip(1)) {
            stats.lose(file.last.next(), behind.first);
        }
        let first = core.segments.list().live.front().expect("a log with files has a segment").first;
        self.next = first;
        let Some(&ArchiveHeader { last, last_crc, first: file, .. }) = self.files.back() else { return Ok(()) };
        if last >= core.pipeline.progress().next_group() {
            return Err(forked(&folder.path(file)));
        }
        if last.next() < first {
            // The log between was lost to the archive, in an earlier run or one without it.
            stats.lose(last.next(), first);
            return Ok(());
        }
        let mut at = cursor(core, last.max(first))?;
        let mut reader = GroupReader::new(MAX_GROUP as u64);
        while at.next_group() <= last {
            if at.step(core.segments.home(), &mut reader, true)?.is_none() {
                return Err(at.lost_next());
            }
        }
        if at.last_crc() != last_crc {
            return Err(forked(&folder.path(file)));
        }
        (self.next, self.last_crc, self.at) = (last.next(), Some(last_crc), Some(at));
        Ok(())
    }

    /// Puts files aside that are damaged and whose groups are archived again. If one of these could not be read, which
    /// is no damage, they stay, and are read again before log is archived.
    pub(super) fn settle(&mut self, folder: &Folder, unsound: &[Unsound]) {
        self.unread.clear();
        let is_unread = |(first, error): &Unsound| *first >= self.next && matches!(error, Error::Io { .. });
        if unsound.iter().any(is_unread) {
            self.unread = unsound.to_vec();
        } else {
            self.put_aside(folder, unsound);
        }
    }

    /// Returns why a file in the way could not be read.
    pub(super) fn read_failure(&self) -> Option<Error> {
        self.unread.iter().map(|(_, error)| error).rfind(|error| matches!(error, Error::Io { .. })).cloned()
    }

    /// Puts files aside that are not sound and whose groups are archived again.
    pub(super) fn put_aside(&self, folder: &Folder, unsound: &[Unsound]) {
        for (first, _) in unsound.iter().filter(|(first, _)| *first >= self.next) {
            // One that stays is in the way of restores, which name it. Nothing else can be done here.
            let _ = folder.put_aside(*first);
        }
    }
}

/// Returns a cursor at or before `group`.
pub(super) fn cursor(core: &Core, group: GroupNo) -> Result<Cursor> {
    let home = core.segments.home();
    let start = core.segments.list().slot_at(group, home.uuid).expect("a log with files has a segment");
    let (file, size) = home.open_segment(start.segment)?;
    if start.first > group {
        return Err(Error::LogTruncated { dir: home.dir.clone(), wanted: group, first: start.first });
    }
    Ok(Cursor::new(&start, file, size))
}
