//! Backups: a copy of a database that is in use, which is a database itself.
//!
//! 1. *Target.* The new directory is locked and marked as unfinished ([`Target`]).
//! 2. *Retain.* The newest superblock is noted. The log that a restart from it needs is retained until the copy ends,
//!    and the data file is not truncated ([`RetainedLog`]).
//! 3. *Pages.* The data file is copied up to its present length, each page whole ([`PageCopier`]).
//! 4. *Log.* The log is forced up to the largest LSN of these pages. It is copied from the scan start of the superblock
//!    up to its durable end.
//! 5. *Superblock.* The noted one is written, when everything else is durable. Then the marker is removed.
//!
//! **Why the copy is consistent.** A restart from a superblock needs two things: each page has every change from before
//! the redo start, and the log has all changes from there on. `crates/recovery/src/restart.rs` argues that this holds
//! whatever newer image of a page is home. So it holds although the images in the copy are from different moments: redo
//! looks at each page alone, and skips the changes that it has. The log ends behind the largest LSN of any page, so no
//! page is ahead of it. docs/decisions/0034 has the whole argument.
//!
//! No lock or latch is held from one page or group to the next.

mod pages;
mod target;

use crate::engine::Engine;
use crate::files::Files;
use crate::{Error, Result, trace};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Csn, Error as Storage, Lsn};
use foreshore_buffer::Pool;
use foreshore_io::Fs;
use foreshore_recovery::RetainedLog;
use foreshore_space::SuperBlock;
use foreshore_sync::pause;
use pages::PageCopier;
use std::path::Path;
pub(crate) use target::{Target, check_empty};

/// A finished backup: what the copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// All commits with a number up to this one are in the copy.
    pub csn: Csn,
    /// The end of the copied log. A commit is in the copy exactly if the LSN of its record is not above this.
    pub lsn: Lsn,
    /// Pages of the data file, superblocks and free ones among them.
    pub pages: u64,
    /// Bytes of log groups.
    pub log_bytes: u64,
    /// Quarantined pages. The copy has them as this database does: what they held is lost in both.
    pub quarantined: u64,
}

/// Refuses the directory of a backup that did not finish.
pub(crate) fn check_finished(files: &Files, fs: &dyn Fs) -> Result<()> {
    match fs.kind(&files.unfinished_backup)? {
        None => Ok(()),
        Some(_) => Err(Error::UnfinishedBackup { dir: files.dir.clone() }),
    }
}

/// Copies the database to `dir`.
pub(crate) fn backup(engine: &Engine, dir: &Path) -> Result<Backup> {
    engine.admission.check_open()?;
    let target = Target::create(engine.options.backup_file_system(dir)?, dir)?;
    let retained = engine.storage.checkpointer().retain_log();
    let source = Source { engine, retained };
    let copied = source.copy_to(&target).map_err(|error| source.explain(error));
    let backup = copied.and_then(|backup| target.finish().map(|()| backup));
    trace::ended("backup", &backup);
    let backup = backup?;
    pause::point("backup: the marker is removed");
    Ok(backup)
}

/// The database as it is copied.
struct Source<'e> {
    engine: &'e Engine,
    retained: RetainedLog,
}

impl Source<'_> {
    fn copy_to(&self, target: &Target) -> Result<Backup, Storage> {
        let (storage, superblock) = (&self.engine.storage, self.retained.superblock());
        let (files, fs) = (target.files(), target.fs());
        // A page beyond this length was never home, or was cut off. Its next use begins with a record for redo.
        let pages = (storage.data().len()? / PAGE_SIZE as u64).max(superblock.data_pages);
        let data = fs.create(&files.data)?;
        // The engine never writes a page home without space for it, so free pages need theirs too.
        data.allocate(0, pages * PAGE_SIZE as u64)?;
        let copied = PageCopier::new(storage).copy(&*data, pages, &|| self.go_on())?;
        pause::point("backup: the pages are copied");
        storage.log().force(copied.lsn)?;
        let log = storage.log().copy(superblock.scan_start, fs, &files.log, &mut || self.go_on())?;
        assert!(copied.lsn <= log.durable, "a page at {} is ahead of the copied log at {}", copied.lsn, log.durable);
        assert!(superblock.checkpoint_lsn <= log.durable, "the log of a copy ends before its checkpoint");
        // Everything was read from the open database, and from log that was retained.
        self.go_on()?;
        pause::point("backup: the log is copied");
        Pool::create_files(&*fs.create(&files.doublewrite)?, superblock.uuid)?;
        fs.sync_dir(&files.dir)?;
        // Another machine may redo the log more slowly.
        SuperBlock { restart_speed: 0, ..superblock.clone() }.write_next(&*data)?;
        pause::point("backup: all files are there");
        Ok(Backup {
            csn: log.durable.csn(),
            lsn: log.durable,
            pages,
            log_bytes: log.bytes,
            quarantined: copied.quarantined,
        })
    }

    /// Fails if the database is no longer open, or the log is no longer retained.
    fn go_on(&self) -> Result<(), Storage> {
        self.engine.admission.check_open()?;
        if self.retained.is_complete() {
            return Ok(());
        }
        Err(Storage::DiskFull { path: self.engine.storage.files().log.clone(), held_by: None })
    }

    /// Returns the error of a backup. If the database was closed meanwhile, or its log truncated, the files have
    /// changed below the copy, which may cause any error. A damaged page is noted for the statistics.
    fn explain(&self, error: Storage) -> Error {
        let error = self.go_on().err().unwrap_or(error).into();
        self.engine.damage.note(&error);
        error
    }
}
