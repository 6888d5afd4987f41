//! The ways to open a database.

use super::Db;
use crate::{Options, Result, open};
use std::path::Path;

impl Db {
    /// Opens the database in directory `path` with the default [`Options`], and creates it if there is none.
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Opens a new database in memory: nothing is read from a disk or written to one. It is gone when its last handle
    /// is dropped; [`Options::in_memory`] keeps it beyond that.
    ///
    /// ```
    /// use foreshore::{Db, Error, TableDef};
    ///
    /// const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
    ///
    /// let db = Db::in_memory()?;
    /// db.run(|tx| tx.open(ACCOUNTS)?.put(7, 100))?;
    /// assert_eq!(db.read().open(ACCOUNTS)?.get(7)?, Some(100));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Io` if the system grants no memory or no thread.
    pub fn in_memory() -> Result<Self> {
        Options::in_memory().open("memory")
    }

    /// Opens the closed database in directory `path` for reading only, with the default [`Options`], as
    /// [`Options::open_read_only`] does.
    ///
    /// # Errors
    /// Those of [`Options::open_read_only`].
    ///
    /// ```
    /// use foreshore::{Db, Error, TableDef};
    ///
    /// const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let dir = std::env::temp_dir().join(format!("foreshore-doc-read-only-{}", std::process::id()));
    /// let db = Db::open(&dir)?;
    /// db.run(|tx| tx.open(ACCOUNTS)?.put(7, 100))?;
    /// assert!(matches!(Db::open_read_only(&dir), Err(Error::Locked { .. })));
    /// drop(db);
    ///
    /// let (db, other) = (Db::open_read_only(&dir)?, Db::open_read_only(&dir)?);
    /// assert_eq!(db.read().open(ACCOUNTS)?.get(7)?, Some(100));
    /// let refused = other.run(|tx| tx.open(ACCOUNTS)?.put(7, 0));
    /// assert!(matches!(refused, Err(Error::ReadOnly)));
    /// # drop((db, other));
    /// # std::fs::remove_dir_all(dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open_read_only(path)
    }
}

impl Options {
    /// Opens the database in directory `path`, creates it if there is none, and recovers it if it was not closed.
    ///
    /// # Errors
    /// - `Locked` if the database is already open, in this process or another.
    /// - `InvalidOption` for an option out of range.
    /// - `Foreign`, `Newer`, `Truncated`, `Corrupted` or `LostLog` for a defect of the files. Then nothing was written,
    ///   unless redo has met the defect.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        open::open(path.as_ref(), self).map(Db::new)
    }

    /// Opens the database in directory `path` as [`open`](Self::open) does, but creates none. A directory without a
    /// database stays unchanged.
    ///
    /// # Errors
    /// `NoDatabase` if there is none, or only one whose creation has not finished. Otherwise those of
    /// [`open`](Self::open).
    ///
    /// ```
    /// use foreshore::{Error, Options};
    ///
    /// let options = Options::in_memory();
    /// assert!(matches!(options.open_existing("/db"), Err(Error::NoDatabase { .. })));
    /// drop(options.open("/db")?);
    /// options.open_existing("/db")?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_existing(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        open::open_existing(path.as_ref(), self).map(Db::new)
    }

    /// Opens the closed database in directory `path` for reading only: no byte of its files changes, and no file is
    /// created. The process needs no right to write them.
    ///
    /// Any number of processes may do that at once. Meanwhile the database cannot be opened for writing. If it is open
    /// for writing, this returns `Locked`. Transactions read at every isolation level. An operation that writes a row,
    /// changes a table or locks a row for a write returns [`Error::ReadOnly`](crate::Error::ReadOnly). Of
    /// [`Options::device`] only one thing counts: whether the files are in memory.
    ///
    /// The bytes that an open and a close would write stay in memory, which the memory limit does not count. A
    /// transaction continues after `ReadOnly`, with one exception: opening a table that lacks a declared index ends it.
    ///
    /// # Errors
    /// `NotClosed` if the database has to be recovered first, because it was not closed or has prepared transactions.
    /// The same holds for a [backup](Db::backup). `NoDatabase` if there is none. `Io` if the file `LOCK` is missing.
    /// Otherwise those of [`open`](Self::open).
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        open::open_read_only(path.as_ref(), self).map(Db::new)
    }
}
