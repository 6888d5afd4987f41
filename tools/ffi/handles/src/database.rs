//! Open databases.

use crate::Result;
use crate::system::Process;
use foreshore::{Db, Options};
use std::mem::ManuallyDrop;
use std::path::Path;

/// An open database, of the process that has opened it. In a child of that process every call returns `Forked`, and a
/// drop leaves the parent's files alone.
pub struct Database {
    db: ManuallyDrop<Db>,
    process: Process,
}

/// How a database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It is created if there is none.
    OrCreate,
    /// There must be one.
    Existing,
    /// There must be a closed one, and no byte of it changes.
    ReadOnly,
}

impl Database {
    /// Opens the database in the directory `path`.
    ///
    /// # Errors
    /// Those of the way to open.
    pub fn open(options: &Options, path: impl AsRef<Path>, how: Open) -> Result<Self> {
        let process = Process::present()?;
        let db = match how {
            Open::OrCreate => options.open(path),
            Open::Existing => options.open_existing(path),
            Open::ReadOnly => options.open_read_only(path),
        }?;
        Ok(Self { db: ManuallyDrop::new(db), process })
    }

    /// Returns the database, if this is the process that has opened it.
    ///
    /// # Errors
    /// `Forked`.
    pub fn get(&self) -> Result<&Db> {
        self.process.check()?;
        Ok(&self.db)
    }

    pub(crate) fn process(&self) -> Process {
        self.process
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.process.is_present() {
            // SAFETY: it is dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.db) };
        }
    }
}
