//! Reading the folder of an archive: what it has, and where it goes on.

use super::folder::{Folder, Other, Unsound, forked, oldest_name};
use crate::follow::Cursor;
use crate::format::MAX_GROUP;
use crate::format::archive::ArchiveHeader;
use crate::log_core::Core;
use crate::reader::GroupReader;
use foreshore_base::{Error, GroupNo, Result};
use std::collections::VecDeque;

/// What lies in a folder.
pub(super) struct Found {
    /// The first group of the oldest name; `None` without one.
    pub(super) begin: Option<GroupNo>,
    /// The first group to archive.
    pub(super) next: GroupNo,
    /// A cursor at it, if the log was read up to it.
    pub(super) at: Option<Cursor>,
    pub(super) files: VecDeque<ArchiveHeader>,
    pub(super) others: VecDeque<Other>,
    /// Why a file could not be read whose groups would be archived again.
    pub(super) unread: Option<Error>,
    /// The count of files that are not sound, and what is wrong with the newest.
    pub(super) unsound: u64,
    pub(super) damage: Option<Error>,
}

impl Found {
    /// Reads the folder of an archive. It goes on with the first group that the log has and no file has. That is not
    /// before the oldest name, nor before `rest` if log before that may be recycled. Damaged files are put aside if
    /// the log still has their groups. If one of them cannot be read, which is no damage, all stay.
    ///
    /// # Errors
    /// `Foreign` if the newest file does not belong to this log, or the error of a disk.
    pub(super) fn read(core: &Core, folder: &Folder, rest: Option<GroupNo>, each: &dyn Fn()) -> Result<Self> {
        let (files, unsound) = folder.files(each)?;
        let mut others = folder.others(&files)?;
        let begin = oldest_name(&files, &others, core.pipeline.progress().next_group());
        let log_first = || core.segments.list().live.front().expect("a log with files has a segment").first;
        let log_first = rest.unwrap_or_else(log_first);
        let from = if rest.is_some() { log_first } else { begin.unwrap_or(log_first).max(log_first) };
        let next = missing(&files, from);
        let at = files.back().map(|newest| walk(core, folder, newest, log_first)).transpose()?.flatten();
        let in_the_way = || unsound.iter().filter(|(first, _)| *first >= next);
        let is_unread = |(_, error): &&Unsound| matches!(error, Error::Io { .. });
        let unread = in_the_way().rfind(is_unread).map(|(_, error)| error.clone());
        if unread.is_none() && in_the_way().next().is_some() {
            for (first, _) in in_the_way() {
                // One that stays is in the way of restores, which name it. Nothing else can be done here.
                let _ = folder.put_aside(*first);
            }
            others = folder.others(&files)?;
        }
        Ok(Self {
            begin,
            next,
            at: at.filter(|at| at.next_group() == next),
            files,
            others,
            unread,
            unsound: unsound.len() as u64,
            damage: unsound.into_iter().next_back().map(|(_, error)| error),
        })
    }
}

/// Returns the first group from `from` on that no file has.
pub(super) fn missing(files: &VecDeque<ArchiveHeader>, from: GroupNo) -> GroupNo {
    files.iter().fold(from, |next, file| if file.first <= next { next.max(file.last.next()) } else { next })
}

/// Checks that the log has the last group of `newest`, which covers the chain before it, and returns a cursor behind
/// it; `None` if it lies before the log.
fn walk(core: &Core, folder: &Folder, newest: &ArchiveHeader, log_first: GroupNo) -> Result<Option<Cursor>> {
    let forked = || forked(&folder.path(newest.first));
    if newest.last >= core.pipeline.progress().next_group() {
        return Err(forked());
    }
    if newest.last.next() < log_first {
        return Ok(None);
    }
    let mut at = cursor(core, newest.last.max(log_first))?;
    let mut reader = GroupReader::new(MAX_GROUP as u64);
    while at.next_group() <= newest.last {
        if at.step(core.segments.home(), &mut reader, true)?.is_none() {
            return Err(at.lost_next());
        }
    }
    if at.last_crc() == newest.last_crc { Ok(Some(at)) } else { Err(forked()) }
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
