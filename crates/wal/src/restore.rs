//! Writing the log of a restored database: the log of a backup, and then an archive up to a position.
//!
//! **Position.** A position is an LSN. Restored is every record up to it that counts, and no other. Groups whose cuts
//! are not above the position are copied. The first group with a greater cut has the remaining records up to the
//! position. It is the last one, and its cut is lowered to the position. So its later records are above the cut of
//! their incarnation, and the next start drops them for good (`scan`). The checksum of its data stays, and its header
//! is sealed anew.
//!
//! **Time.** Each group has the time when it was sealed, which never falls. A commit counts once the cut of a group
//! reaches it. So restored are the groups up to the last one that is not later than the time asked for.
//!
//! **Timeline.** The restored log has the numbers of the old one, and will go on otherwise. So it gets another uuid,
//! which is in every header. No archive, backup or log of the old database fits to it.
//!
//! **Refusals.** A position before the end of the backup has pages in it that are newer. One behind the end of the log
//! cannot be reached. An archive without a file is refused: its directory is most likely another one.

use crate::archive::folder::Folder;
use crate::archive::read::ArchiveReader;
use crate::follow::{Cursor, Step};
use crate::format::{GroupHeader, MAX_GROUP};
use crate::log_writer::LogWriter;
use crate::options::LogOptions;
use crate::reader::{Chain, GroupReader};
use crate::scan::scan;
use crate::segment::{Control, Home};
use foreshore_base::{Error, GroupNo, Lsn, RestoreRefusal, Result, Uuid};
use foreshore_io::Fs;
use foreshore_sync::Nanos;
use foreshore_sync::model::mutant;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a restore ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreUntil {
    /// At the end of the archive, or of the backup.
    End,
    /// At this LSN: the records up to it are restored.
    Lsn(Lsn),
    /// At this time since 1970: the groups that were sealed by then are restored.
    Time(Nanos),
}

/// The log to restore: that of a backup, and an archive that continues it.
#[derive(Clone, Debug)]
pub struct RestoreSource {
    /// The file system and the folder of the log of the backup.
    pub log: (Arc<dyn Fs>, PathBuf),
    /// The file system and the folder of the archive.
    pub archive: Option<(Arc<dyn Fs>, PathBuf)>,
    /// Of the database that both belong to.
    pub uuid: Uuid,
}

/// A log to restore to.
#[derive(Clone, Copy, Debug)]
pub struct RestoreTarget<'a> {
    /// The file system.
    pub fs: &'a Arc<dyn Fs>,
    /// The folder, whose parent exists.
    pub dir: &'a Path,
    /// Of the new database.
    pub uuid: Uuid,
    /// Its segments, and how many are kept ready.
    pub options: &'a LogOptions,
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoredLog {
    /// The first group.
    pub first: GroupNo,
    /// The end of the log of the backup.
    pub backup_end: Lsn,
    /// The end: every record with an LSN up to this one is restored, and no other.
    pub end: Lsn,
    /// The time when the last group was sealed; zero if it has none.
    pub time: Nanos,
    /// Bytes of groups.
    pub bytes: u64,
}

/// Reads a log up to a position, and writes it to `to`, if there is one.
pub(crate) fn restore(
    source: &RestoreSource,
    until: RestoreUntil,
    to: Option<RestoreTarget<'_>>,
) -> Result<RestoredLog> {
    let writer = match to {
        None => None,
        Some(RestoreTarget { fs, dir, uuid, options }) => {
            options.check()?;
            let home = Home { fs: Arc::clone(fs), dir: dir.to_owned(), uuid };
            Some((LogWriter::create(home, options.segment_bytes, MAX_GROUP)?, options.ready_segments))
        }
    };
    let mut restore = Restore { until, writer, log: None };
    let next = restore.read_backup(source)?;
    let is_whole = match &source.archive {
        Some((fs, dir)) if !restore.has_reached() => {
            let folder = Folder { fs: Arc::clone(fs), dir: dir.clone(), uuid: source.uuid };
            restore.read_archive(&mut ArchiveReader::new(&folder, next)?)?
        }
        _ => restore.has_reached(),
    };
    let log = restore.log.expect("the log of a backup has a group");
    if !is_whole && until != RestoreUntil::End {
        return Err(Error::Restore(RestoreRefusal::BeyondLog { end: log.end }));
    }
    if let Some((writer, ready)) = restore.writer {
        writer.finish(ready)?;
    }
    Ok(log)
}

struct Restore {
    until: RestoreUntil,
    writer: Option<(LogWriter, usize)>,
    /// `None` before the first group.
    log: Option<RestoredLog>,
}

impl Restore {
    /// Reads the log of the backup. Returns what the next group must have.
    fn read_backup(&mut self, source: &RestoreSource) -> Result<Chain> {
        let (fs, dir) = &source.log;
        let home = Home { fs: Arc::clone(fs), dir: dir.clone(), uuid: source.uuid };
        let control = Control::open(&home)?;
        // A cursor takes a damaged group for the end of the log. Later groups show that it is not.
        let next = scan(&home, &control)?.next;
        let start = control.newest();
        let (file, size) = home.open_segment(start.segment)?;
        let (mut at, mut reader) = (Cursor::new(&start, file, size), GroupReader::new(size));
        while let Some(Step { header, .. }) = at.step(&home, &mut reader, true)? {
            self.push(header, reader.bytes(&header))?;
        }
        if at.next_group() != next {
            return Err(at.lost_next());
        }
        let Some(log) = &mut self.log else { return Err(at.lost_next()) };
        log.backup_end = log.end;
        let is_before = match self.until {
            RestoreUntil::End => false,
            RestoreUntil::Lsn(lsn) => lsn < log.end,
            RestoreUntil::Time(time) => time < log.time,
        };
        if is_before {
            return Err(Error::Restore(RestoreRefusal::BeforeBackup { end: log.end }));
        }
        Ok(at.chain(&home))
    }

    /// Reads the archive. Returns whether it has the position.
    fn read_archive(&mut self, archive: &mut ArchiveReader<'_>) -> Result<bool> {
        let mut reader = GroupReader::new(MAX_GROUP as u64);
        while let Some(header) = archive.next(&mut reader)? {
            if matches!(self.until, RestoreUntil::Time(time) if header.time > time) {
                return Ok(true);
            }
            let goes_too_far = mutant("sabotage: a restore keeps the cut of its last group");
            let cut = match self.until {
                RestoreUntil::Lsn(lsn) if !goes_too_far => header.cut.min(lsn),
                _ => header.cut,
            };
            self.push(GroupHeader { cut, ..header }, reader.bytes(&header))?;
            if self.has_reached() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the groups read so far have all records up to the position.
    fn has_reached(&self) -> bool {
        let end = self.log.map_or(Lsn::ZERO, |log| log.end);
        matches!(self.until, RestoreUntil::Lsn(lsn) if lsn <= end)
    }

    fn push(&mut self, header: GroupHeader, bytes: &[u8]) -> Result<()> {
        let zero =
            RestoredLog { first: header.group, backup_end: Lsn::ZERO, end: Lsn::ZERO, time: Nanos::ZERO, bytes: 0 };
        let log = self.log.get_or_insert(zero);
        log.end = log.end.max(header.cut);
        log.time = header.time;
        log.bytes += bytes.len() as u64;
        self.writer.as_mut().map_or(Ok(()), |(writer, _)| writer.push(header, bytes))
    }
}
