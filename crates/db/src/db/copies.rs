//! Copies of a database: backups, and the archive of its log.

use super::Db;
use crate::{Backup, Result, backup};
use foreshore_base::Lsn;
use std::path::Path;

impl Db {
    /// Copies the database to directory `dir` while it is in use. The copy is a database: [`Db::open`] recovers it as
    /// after a power loss. It holds every commit that was durable when the call began, and those up to the commit that
    /// [`Backup`] names. No commit is there in part. Prepared transactions stay prepared in it.
    ///
    /// It begins with a [`checkpoint`](Self::checkpoint), unless less than 1 MiB of log was written since the last one.
    /// So the copy has the log that is written from then on, and that of transactions that are open then.
    ///
    /// No transaction waits for the backup, and none is locked out. [`close`](Self::close), [`vacuum`](Self::vacuum)
    /// and other backups may wait for its checkpoint. Until it ends, the log that the copy needs is not recycled, and
    /// `vacuum` does not truncate the data file. If the disk is full and writers need the space of that log, it is
    /// recycled and the backup fails.
    ///
    /// The directory is created if it is missing. The files of a failed backup are removed. If the process ends before
    /// the backup does, its directory cannot be opened. Each page and log group is checked while it is copied. So the
    /// backup of a database with a damaged page in use fails, except for quarantined pages, which it counts.
    ///
    /// Both databases have the same id in all their files, so the engine cannot tell their files apart. Never mix them.
    ///
    /// ```
    /// use foreshore::{Db, Error, TableDef};
    ///
    /// const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let dir = std::env::temp_dir().join(format!("foreshore-doc-backup-{}", std::process::id()));
    /// # std::fs::create_dir(&dir).unwrap();
    /// let db = Db::open(dir.join("db"))?;
    /// db.run(|tx| tx.open(ACCOUNTS)?.insert(&7, &100).map(drop))?;
    /// let backup = db.backup(dir.join("copy"))?;
    /// assert!(backup.csn > foreshore::Csn::ZERO);
    ///
    /// let copy = Db::open(dir.join("copy"))?;
    /// assert_eq!(copy.run(|tx| tx.open(ACCOUNTS)?.get(&7))?, Some(100));
    /// # drop((db, copy));
    /// # std::fs::remove_dir_all(dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - `NotEmpty` if `dir` has files; `Foreign` if it is a file; `Locked` if it is in use.
    /// - `DiskFull` if the copy finds no space, or writers of this database needed the log.
    /// - `Corrupted` for a damaged page, which it names; `Io` for a page that cannot be read.
    /// - `Closed`, `Poisoned`.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Backup> {
        backup::backup(self.engine(), dir.as_ref(), None)
    }

    /// Makes an incremental backup in directory `dir`: it has only the pages that have changed since the backup in
    /// directory `base`, and the log that these need. `base` is a full backup of this database, or an incremental one.
    ///
    /// An increment is no database. [`restore`](crate::restore) makes one of the full backup and its increments in
    /// their order. They are needed unchanged: never open the full backup as a database.
    ///
    /// The base must be one of the last 16 backups of this database, full or not. Its file `backups` names them, and a
    /// copy of the files knows those from before it. A backup or a restored database knows none. So the pages that the
    /// base has are of the history of this database. A backup that was made while the disk of the database was full is
    /// no base. Each page is read, and checked, as in a full backup. Written are those changed since then, and
    /// those that were not yet home when the base was made.
    ///
    /// ```
    /// use foreshore::{Db, Error, TableDef, restore};
    ///
    /// const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let dir = std::env::temp_dir().join(format!("foreshore-doc-increment-{}", std::process::id()));
    /// # std::fs::create_dir(&dir).unwrap();
    /// let [full, first, second] = ["full", "first", "second"].map(|name| dir.join(name));
    /// let db = Db::open(dir.join("db"))?;
    /// db.backup(&full)?;
    /// db.run(|tx| tx.open(ACCOUNTS)?.put(7, 100))?;
    /// db.backup_since(&first, &full)?;
    /// db.run(|tx| tx.open(ACCOUNTS)?.put(8, 50))?;
    /// let backup = db.backup_since(&second, &first)?;
    /// assert!(backup.stored_pages < backup.pages);
    ///
    /// restore(&full, dir.join("restored")).increment(&first).increment(&second).run()?;
    /// let restored = Db::open(dir.join("restored"))?;
    /// assert_eq!(restored.read().open(ACCOUNTS)?.iter().count(), 2);
    /// assert!(matches!(restored.backup_since(dir.join("third"), &second), Err(Error::UnknownBase(_))));
    /// assert!(matches!(Db::open(&first), Err(Error::Foreign { .. })));
    /// # drop((db, restored));
    /// # std::fs::remove_dir_all(dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - `UnknownBase` if the base is none of the last backups of this database.
    /// - `UnfinishedBackup` if the base did not finish; `Foreign` if it was opened as a database.
    /// - Those of [`backup`](Self::backup).
    pub fn backup_since(&self, dir: impl AsRef<Path>, base: impl AsRef<Path>) -> Result<Backup> {
        backup::backup(self.engine(), dir.as_ref(), Some(base.as_ref()))
    }

    /// Copies the durable log to the archive, and returns the LSN up to which it is archived. Without
    /// [`Options::archive`](crate::Options::archive) it does nothing and returns zero. The archive lacks log that was
    /// recycled before it was archived: [`ArchiveStats::lost_groups`](crate::ArchiveStats::lost_groups) counts it.
    /// Waits for the device without a limit.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Lsn, Options, TableDef};
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// # let dir = std::env::temp_dir().join(format!("foreshore-doc-archive-{}", std::process::id()));
    /// # std::fs::create_dir(&dir).unwrap();
    /// let db = Options::new().archive(dir.join("archive")).open(dir.join("db"))?;
    /// let csn = db.run_pipelined(|tx| tx.open(STOCK)?.put(1, 10))?.1;
    /// csn.wait()?;
    /// assert!(db.archive()? >= csn.record_lsn());
    /// assert_eq!(db.stats().archive.map(|archive| archive.lost_groups), Some(0));
    /// # drop(db);
    /// # std::fs::remove_dir_all(dir).unwrap();
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `DiskFull` or `Io` of the archive, or the error of reading the log. What is not archived stays in the log.
    pub fn archive(&self) -> Result<Lsn> {
        let engine = self.engine();
        engine.admission.check_open()?;
        let log = engine.storage.log();
        log.archive_all()?;
        Ok(log.archive_stats().map_or(Lsn::ZERO, |archive| archive.archived))
    }
}
