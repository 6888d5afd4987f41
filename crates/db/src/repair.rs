//! Repair of damaged pages of a closed database, from a backup and the log since.
//!
//! 1. *Lock.* The database is locked. It and the backup are checked, the latter like one to restore (`restore.rs`).
//! 2. *Find* ([`pages`]). All pages are read through an overlay, in which torn pages are restored as at a start. Those
//!    that are unreadable, not sound, stale by their stamp, or quarantined are suspects.
//! 3. *Rebuild.* In the overlay the image of the backup takes the place of each suspect. The log of the backup, the
//!    archive and the log of the database are applied to them by the code of redo, up to the end of the log.
//! 4. *Judge.* A suspect is damaged if its map has it in use, and a restart would not make it anew. It is repaired only
//!    if its rebuilt image is certain ([`RepairRefusal`]).
//! 5. *Write.* Only now, and only if a page is repaired, files are written. The log is opened as at a start, so all of
//!    it is durable. The images go home through the doublewrite file ([`Pool::replace_homes`]).
//!
//! **A database that was not closed** gets its pages as they are at the end of its log. The next start skips the
//! records that they have, and undoes transactions as it would have done. No superblock changes.
//!
//! **A crash** in step 5 leaves each page as it was or repaired. The next repair continues.
//!
//! **Not repaired:** superblocks, of which one of two is enough; the log; a data file that is too short. They are
//! errors, as they are for an open. Stamps and the doublewrite file need no repair.

mod pages;
mod report;

pub use self::report::{RepairRefusal, RepairSource, Repaired, RepairedPage, UnrepairedPage};
use crate::files::Files;
use crate::open::check_exists;
use crate::restore::{Source, restore};
use crate::{Error, Result};
use foreshore_base::PageId;
use foreshore_buffer::Pool;
use foreshore_io::{Device, Fs, Overlay, ReadOnly};
use foreshore_sync::pause;
use foreshore_wal::{Log, LogOptions, RestoreSource, RestoreUntil};
use pages::Pages;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prepares the repair of the closed database in directory `dir` from the backup in directory `backup`.
///
/// Damaged pages are rebuilt from the backup, the [archive](Repair::archive) and the log of the database. That works
/// if no log between backup and archive, or archive and database, is missing. Without damage nothing is written.
///
/// ```
/// use foreshore::{Db, Error, Options, TableDef};
/// use std::os::unix::fs::FileExt;
///
/// const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
///
/// # fn main() -> Result<(), Error> {
/// # let dir = std::env::temp_dir().join(format!("foreshore-doc-repair-{}", std::process::id()));
/// # std::fs::create_dir(&dir).unwrap();
/// let db = Options::new().archive(dir.join("archive")).open(dir.join("db"))?;
/// db.run(|tx| tx.open(ACCOUNTS)?.put(7, 100))?;
/// db.backup(dir.join("backup"))?;
/// db.run(|tx| tx.open(ACCOUNTS)?.put(8, 50))?;
/// db.close(std::time::Duration::from_secs(60))?;
/// # let data = std::fs::OpenOptions::new().write(true).open(dir.join("db/data")).unwrap();
/// # let images = std::fs::OpenOptions::new().write(true).open(dir.join("db/dw")).unwrap();
/// // Page 3, the root of the catalogue, is lost.
/// data.write_all_at(&[0; 8192], 3 * 8192).unwrap();
/// # (1..259).for_each(|block| images.write_all_at(&[0; 4096], block * 4096).unwrap());
///
/// let repair = foreshore::repair(dir.join("db"), dir.join("backup")).archive(dir.join("archive"));
/// let planned = repair.clone().dry_run()?;
/// let repaired = repair.run()?;
/// assert_eq!(planned, repaired);
/// assert_eq!((repaired.repaired.len(), repaired.unrepaired.len()), (1, 0));
/// let db = Db::open(dir.join("db"))?;
/// db.check()?;
/// assert_eq!(db.read().open(ACCOUNTS)?.get(8)?, Some(50));
/// # drop(db);
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn repair(dir: impl AsRef<Path>, backup: impl AsRef<Path>) -> Repair {
    Repair { dir: dir.as_ref().to_owned(), backup: backup.as_ref().to_owned(), archive: None, lab: None }
}

/// A repair, see [`repair`].
#[derive(Clone, Debug)]
#[must_use = "nothing is repaired before `run`"]
pub struct Repair {
    dir: PathBuf,
    backup: PathBuf,
    archive: Option<PathBuf>,
    lab: Option<(Arc<dyn Fs>, u64)>,
}

impl Repair {
    /// Sets the archive of the log. It is read only if the database itself no longer has the log since the backup.
    pub fn archive(mut self, dir: impl AsRef<Path>) -> Self {
        self.archive = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the file system, and the bytes of a log segment.
    #[doc(hidden)]
    pub fn lab(mut self, fs: Arc<dyn Fs>, segment_bytes: u64) -> Self {
        self.lab = Some((fs, segment_bytes));
        self
    }

    /// Repairs. Backup and archive are only read. When it returns, the repaired pages are durable. If it fails, or the
    /// process ends before, each page is as it was or repaired, and another repair continues.
    ///
    /// A page that is not certain is not repaired: [`Repaired::unrepaired`] says why. Afterwards
    /// [`Db::check`](crate::Db::check) examines the whole database.
    ///
    /// # Errors
    /// - `Locked` if the database or the backup is in use; `NoDatabase`, `UnfinishedBackup` if one of them is none.
    /// - `Foreign` if backup or archive are those of another database, or of another timeline of this one, or if the
    ///   backup was opened as a database.
    /// - `Foreign` if the database is a backup itself.
    /// - `Corrupted`, `Truncated` or `LostLog` for damage outside of pages, which is not repaired.
    /// - `Newer` for a file; `DiskFull`, `Io`.
    pub fn run(self) -> Result<Repaired> {
        self.repair(true)
    }

    /// Does what [`run`](Self::run) does, and writes nothing.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn dry_run(self) -> Result<Repaired> {
        self.repair(false)
    }

    fn repair(&self, writes: bool) -> Result<Repaired> {
        let files = Files::of(&self.dir);
        let reader = self.reader()?;
        check_exists(&files, &reader)?;
        let fs = if writes { self.writer()? } else { reader };
        let overlay: Arc<dyn Fs> = Arc::new(Overlay::new(Arc::clone(&fs)));
        let _lock = if writes { fs.lock(&files.lock)? } else { overlay.lock(&files.lock)? };
        let options = self.log_options();
        let mut pages = Pages::open(&files, &overlay, &options)?;
        let source = self.source()?;
        if source.superblock().uuid != pages.uuid() {
            let path = source.data().path().to_owned();
            return Err(Error::Foreign { path, why: "it is a backup of another database" });
        }
        check_log(&source)?;
        pages.find()?;
        let repaired = pages.rebuild(&source, &fs)?;
        if writes && !repaired.repaired.is_empty() {
            pause::point("repair: the pages are rebuilt");
            // Makes all of the log durable, as a start does. No page goes home ahead of it.
            let (log, recovered) = Log::open(&fs, &files.log, pages.uuid(), &options)?;
            if recovered.end() < pages.end() {
                return Err(recovered.lost(recovered.next_group()).into());
            }
            let (data, doublewrite) = (fs.open(&files.data)?, fs.open(&files.doublewrite)?);
            data.read_past_cache()?;
            let pids: Vec<_> = repaired.repaired.iter().map(|page| page.page).collect();
            let image = &mut |pid: PageId, page: &mut [u8]| pages.copy(pid, page);
            Pool::replace_homes(&*data, doublewrite, (pages.uuid(), pages.end()), &pids, image)?;
            drop(log);
        }
        Ok(repaired)
    }

    /// Returns the file system of the database, to read only.
    fn reader(&self) -> Result<Arc<dyn Fs>> {
        Ok(match &self.lab {
            Some((fs, _)) => Arc::clone(fs),
            None => Arc::new(ReadOnly::new(&self.dir)?),
        })
    }

    /// Returns the file system of the database. It is opened without a trial of direct I/O, which would write.
    fn writer(&self) -> Result<Arc<dyn Fs>> {
        Ok(self.lab.as_ref().map_or_else(|| Device::Buffered.open(&self.dir), |(fs, _)| Ok(Arc::clone(fs)))?)
    }

    fn log_options(&self) -> LogOptions {
        let default = LogOptions::default();
        let segment_bytes = self.lab.as_ref().map_or(default.segment_bytes, |&(_, bytes)| bytes);
        LogOptions { segment_bytes, background: false, ..default }
    }

    /// Opens the backup. Its log is checked by [`check_log`].
    fn source(&self) -> Result<Source> {
        let mut source = restore(&self.backup, &self.dir);
        if let Some(archive) = &self.archive {
            source = source.archive(archive);
        }
        if let Some((fs, segment_bytes)) = &self.lab {
            source = source.lab(Arc::clone(fs), *segment_bytes);
        }
        source.source()
    }
}

/// Refuses a backup without the log that its superblock needs, as a restore does.
fn check_log(source: &Source) -> Result<()> {
    let of_backup = RestoreSource { archive: None, ..source.log().clone() };
    Ok(source.check_log(&Log::verify_restore(&of_backup, RestoreUntil::End)?)?)
}
