//! Restoring a database from a backup, its increments, and the log in an archive.
//!
//! 1. *Source.* The backups are locked and checked: they are finished, were never opened as databases, and each
//!    increment names the one before it as its base ([`Chain`]).
//! 2. *Target.* The new directory is locked and marked as unfinished ([`Target`]).
//! 3. *Log.* The log of the last backup and the groups of the archive that follow it are written, up to the position,
//!    under a new uuid (`crates/wal/src/restore.rs`).
//! 4. *Pages.* The data file is copied, with each page of the last increment that has it. Each page is checked, and
//!    none may be ahead of the log of the last backup.
//! 5. *Superblock.* It is written when everything else is durable. Then the marker is removed.
//!
//! The result is a database that was not closed. Its first start replays the log, and undoes the transactions whose
//! commit records lie behind the position.
//!
//! **Why it is that position.** The log has exactly the records up to it. A backup opens with any log that goes beyond
//! its own end, since redo looks at each page alone (docs/decisions/0034).
//!
//! **Names.** No file name is read from a file. So no backup or archive, whatever it says, leads out of its directory.

mod chain;

use crate::backup::{Target, check_empty};
use crate::create;
use crate::files::Files;
use crate::{Csn, Lsn, Result, Timestamp};
use chain::{Chain, Copied};
use foreshore_base::{Error as Storage, Place};
use foreshore_buffer::Pool;
use foreshore_io::{Device, File, Fs, Kind, ReadOnly};
use foreshore_space::{BackupMark, SuperBlock};
use foreshore_sync::{Nanos, pause};
use foreshore_wal::{Log, LogOptions, RestoreSource, RestoreTarget, RestoreUntil, RestoredLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a restore ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// At the end of the archive, or of the last backup if no archive is named. [`Restored::lsn`] says where that is.
    /// It is [`Restored::backup_lsn`] if the archive has nothing behind the backup.
    End,
    /// At an LSN. The result has the commits whose [records](crate::CommitTicket::record_lsn) have LSNs up to it.
    Lsn(Lsn),
    /// At a time. The result has the commits that were written to the log by then. The log notes the time of each group
    /// of commits, by the clock of the system. If that clock was set back, it counts as standing still.
    Time(Timestamp),
}

/// A finished restore, or the check of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The position. The result has the commits whose records have LSNs up to it, and no others.
    pub lsn: Lsn,
    /// The position as a number of commits.
    pub csn: Csn,
    /// The end of the last backup: the first position that can be restored from it.
    pub backup_lsn: Lsn,
    /// When the last group of the log was written; `None` if the log does not say.
    pub time: Option<Timestamp>,
    /// Pages of the data file.
    pub pages: u64,
    /// Bytes of log groups.
    pub log_bytes: u64,
    /// Quarantined pages. What they held is lost.
    pub quarantined: u64,
}

/// Prepares the restore of the backup in directory `backup` to the new directory `target`.
///
/// The result is a database of its own, with another id. It never mixes with the archive of the old one, so give it
/// another archive, and make a backup of it.
///
/// ```
/// use foreshore::{Db, Error, Options, RestoreRefusal, TableDef, Until};
/// use std::time::Duration;
///
/// const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
///
/// # fn main() -> Result<(), Error> {
/// # let dir = std::env::temp_dir().join(format!("foreshore-doc-restore-{}", std::process::id()));
/// # std::fs::create_dir(&dir).unwrap();
/// let (backup, archive) = (dir.join("backup"), dir.join("archive"));
/// let db = Options::new().archive(&archive).archive_limit(1 << 30).open(dir.join("db"))?;
/// let first = db.backup(&backup)?;
/// let put = |balance| db.run_pipelined(|tx| tx.open(ACCOUNTS)?.put(7, balance));
/// let right = put(100)?.1.record_lsn();
/// put(-1)?.1.wait()?;
/// db.archive()?;
///
/// let restore = |until| foreshore::restore(&backup, dir.join("restored")).archive(&archive).until(until);
/// assert!(restore(Until::End).verify()?.lsn > right);
/// let restored = restore(Until::Lsn(right)).run()?;
/// assert_eq!((restored.lsn, restored.backup_lsn), (right, first.lsn));
/// let copy = Db::open(dir.join("restored"))?;
/// assert_eq!(copy.read().open(ACCOUNTS)?.get(7)?, Some(100));
///
/// let too_early = restore(Until::Lsn(foreshore::Lsn(1))).verify();
/// assert!(matches!(too_early, Err(Error::Restore(RestoreRefusal::BeforeBackup { .. }))));
/// assert!(matches!(restore(Until::End).run(), Err(Error::NotEmpty { .. })));
/// # drop((db, copy));
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn restore(backup: impl AsRef<Path>, target: impl AsRef<Path>) -> Restore {
    Restore {
        backup: backup.as_ref().to_owned(),
        increments: Vec::new(),
        target: target.as_ref().to_owned(),
        archive: None,
        until: Until::End,
        lab: None,
    }
}

/// A restore, see [`restore`].
#[derive(Clone, Debug)]
#[must_use = "nothing is restored before `run`"]
pub struct Restore {
    backup: PathBuf,
    increments: Vec<PathBuf>,
    target: PathBuf,
    archive: Option<PathBuf>,
    until: Until,
    lab: Option<(Arc<dyn Fs>, u64)>,
}

impl Restore {
    /// Adds an incremental backup, whose base was named before: [`Db::backup_since`](crate::Db::backup_since) has made
    /// it. The restore then ends with this backup, or later.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), foreshore::Error> {
    /// let of_week = ["monday", "tuesday"].into_iter();
    /// let restore = of_week.fold(foreshore::restore("sunday", "restored"), |restore, day| restore.increment(day));
    /// restore.run()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(mut self, dir: impl AsRef<Path>) -> Self {
        self.increments.push(dir.as_ref().to_owned());
        self
    }

    /// Sets the archive whose log is restored after that of the last backup. A directory without a file of an archive
    /// is refused, unless the position is in the backup alone.
    pub fn archive(mut self, dir: impl AsRef<Path>) -> Self {
        self.archive = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets where the restore ends; [`Until::End`] by default.
    pub const fn until(mut self, until: Until) -> Self {
        self.until = until;
        self
    }

    /// Sets the file system, and the bytes of a log segment.
    #[doc(hidden)]
    pub fn lab(mut self, fs: Arc<dyn Fs>, segment_bytes: u64) -> Self {
        self.lab = Some((fs, segment_bytes));
        self
    }

    /// Restores. Backup and archive are only read. When it returns, the target is durable and can be opened. If it
    /// fails, its files are removed; if the process ends before, the target cannot be opened.
    ///
    /// # Errors
    /// - `NotEmpty` if the target has files; `Locked` if it or the backup is in use.
    /// - `NoDatabase`, `UnfinishedBackup`, or `Foreign` if a backup is none or was opened as a database.
    /// - `Restore` if log or a base is missing, or the position cannot be reached.
    /// - `Foreign` if the archive is that of another database, or of another timeline of this one.
    /// - `Newer`, `Corrupted` or `Truncated` for a file; `DiskFull`, `Io`.
    pub fn run(self) -> Result<Restored> {
        let source = self.source()?;
        // Before the directory is created.
        self.check_target()?;
        let target = Target::create(self.file_system(&self.target)?, &self.target)?;
        let restored = source.write_to(&target, self.until, &self.log_options())?;
        target.finish()?;
        pause::point("restore: the marker is removed");
        Ok(restored)
    }

    /// Reads and checks all that [`run`](Self::run) would read, and writes nothing: each page of the backup and each
    /// group of the log. The target is not looked at.
    ///
    /// # Errors
    /// Those of [`run`](Self::run) that concern backup, archive and position.
    pub fn verify(self) -> Result<Restored> {
        let source = self.source()?;
        let log = Log::verify_restore(&source.log, until(self.until))?;
        source.check_log(&log)?;
        let copied = source.chain.copy_pages(None, log.backup_end)?;
        Ok(summary(&log, copied))
    }

    fn check_target(&self) -> Result<()> {
        let fs =
            self.reader(self.target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        match fs.kind(&self.target)? {
            Some(Kind::Dir) => check_empty(&*fs, &Files::of(&self.target)),
            _ => Ok(()),
        }
    }

    fn file_system(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        Ok(self.lab.as_ref().map_or_else(|| Device::Auto.open(dir), |(fs, _)| Ok(Arc::clone(fs)))?)
    }

    fn reader(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        match &self.lab {
            Some((fs, _)) => Ok(Arc::clone(fs)),
            None => Ok(Arc::new(ReadOnly::new(dir)?)),
        }
    }

    fn log_options(&self) -> LogOptions {
        let default = LogOptions::default();
        let segment_bytes = self.lab.as_ref().map_or(default.segment_bytes, |&(_, bytes)| bytes);
        LogOptions { segment_bytes, ..default }
    }

    /// Opens and checks the backup and its increments.
    pub(crate) fn source(&self) -> Result<Source> {
        let mut chain = Chain::open(&self.backup, self.reader(&self.backup)?)?;
        for increment in &self.increments {
            chain.add(increment, self.reader(increment)?)?;
        }
        let archive = match &self.archive {
            Some(dir) => Some((self.reader(dir)?, dir.clone())),
            None => None,
        };
        let (log, uuid) = (chain.log(), chain.superblock().uuid);
        Ok(Source { chain, log: RestoreSource { log, archive, uuid } })
    }
}

/// The backup that is restored, and its increments.
pub(crate) struct Source {
    chain: Chain,
    log: RestoreSource,
}

impl Source {
    /// Returns the data file of the full backup.
    pub(crate) fn data(&self) -> &dyn File {
        self.chain.data()
    }

    /// Returns the superblock in use.
    pub(crate) fn superblock(&self) -> SuperBlock {
        self.chain.superblock()
    }

    /// Returns the log, and the archive.
    pub(crate) const fn log(&self) -> &RestoreSource {
        &self.log
    }

    fn write_to(self, target: &Target, to: Until, options: &LogOptions) -> Result<Restored> {
        let (files, fs) = (target.files(), target.fs());
        let uuid = create::new_uuid();
        let log = Log::restore(&self.log, until(to), RestoreTarget { fs, dir: &files.log, uuid, options })?;
        self.check_log(&log)?;
        pause::point("restore: the log is there");
        let data = fs.create(&files.data)?;
        let superblock = self.chain.superblock();
        let copied = self.chain.copy_pages(Some(&*data), log.backup_end)?;
        pause::point("restore: the pages are copied");
        Pool::create_files(&*fs.create(&files.doublewrite)?, uuid)?;
        fs.sync_dir(&files.dir)?;
        // Another machine may be slower.
        let backups = BackupMark::default();
        SuperBlock { uuid, seq: 0, clean: false, restart_speed: 0, backups, ..superblock }.write_next(&*data)?;
        pause::point("restore: all files are there");
        Ok(summary(&log, copied))
    }

    /// Refuses a log without what the superblock needs, or of another backup.
    pub(crate) fn check_log(&self, log: &RestoredLog) -> Result<(), Storage> {
        let SuperBlock { scan_start, checkpoint_lsn, .. } = self.chain.superblock();
        if log.first > scan_start || checkpoint_lsn > log.backup_end {
            return Err(Storage::LostLog { file: self.log.log.1.clone(), offset: 0, missing: scan_start });
        }
        if self.chain.end().is_some_and(|end| end != log.backup_end) {
            return Err(Storage::corrupted(&self.log.log.1, Place::File, "the log is that of another backup"));
        }
        Ok(())
    }
}

fn until(until: Until) -> RestoreUntil {
    match until {
        Until::End => RestoreUntil::End,
        Until::Lsn(lsn) => RestoreUntil::Lsn(lsn),
        Until::Time(time) => RestoreUntil::Time(time.since_epoch().map_or(Nanos::ZERO, Nanos::from)),
    }
}

fn summary(log: &RestoredLog, copied: Copied) -> Restored {
    Restored {
        lsn: log.end,
        csn: log.end.csn(),
        backup_lsn: log.backup_end,
        time: (log.time > Nanos::ZERO).then(|| Timestamp::from(Duration::from(log.time))),
        pages: copied.pages,
        log_bytes: log.bytes,
        quarantined: copied.quarantined,
    }
}
