//! An open `TransactionDB`.

use super::{
    calls::call,
    ffi,
    options::{ParsedOptions, path_of},
};
use crate::{engine::Setup, error::Result};
use std::{ffi::CString, ptr};

/// A database. Dropped, it is closed.
pub(super) struct Database {
    db: *mut ffi::TransactionDb,
    path: CString,
    options: ParsedOptions,
}

// SAFETY: RocksDB lets all threads use a database and its options.
unsafe impl Sync for Database {}

impl Database {
    pub(super) fn open(setup: &Setup<'_>) -> Result<Self> {
        let mut this = Self { db: ptr::null_mut(), path: path_of(setup)?, options: ParsedOptions::new(setup)? };
        // SAFETY: the options live until the database is dropped, and the path ends with a zero.
        unsafe {
            let (parsed, transactions) = (this.options.get(), ffi::rocksdb_transactiondb_options_create());
            let opened =
                call("open", |error| ffi::rocksdb_transactiondb_open(parsed, transactions, this.path.as_ptr(), error));
            ffi::rocksdb_transactiondb_options_destroy(transactions);
            this.db = opened?;
            Ok(this)
        }
    }

    /// Returns the pointer that calls take; null once the database is closed.
    pub(super) const fn get(&self) -> *mut ffi::TransactionDb {
        self.db
    }

    /// Writes the memtables to files.
    pub(super) fn flush(&self) -> Result<()> {
        // SAFETY: the database is open, and the options live through the call.
        unsafe {
            let options = ffi::rocksdb_flushoptions_create();
            let flushed = call("flush", |error| ffi::rocksdb_transactiondb_flush(self.db, options, error));
            ffi::rocksdb_flushoptions_destroy(options);
            flushed
        }
    }

    /// Makes the log durable.
    pub(super) fn sync_log(&self) -> Result<()> {
        // SAFETY: the database is open.
        call("sync the log", |error| unsafe { ffi::rocksdb_transactiondb_flush_wal(self.db, ffi::YES, error) })
    }

    /// Closes the database, if it is open.
    pub(super) fn shut(&mut self) {
        let db = std::mem::replace(&mut self.db, ptr::null_mut());
        if !db.is_null() {
            // SAFETY: no session outlives the engine, and the pointer is not used again.
            unsafe { ffi::rocksdb_transactiondb_close(db) };
        }
    }

    /// Compacts the closed database.
    pub(super) fn compact(&self) -> Result<()> {
        // SAFETY: the database is closed, and a null range is all of it.
        unsafe {
            let db = call("open", |error| ffi::rocksdb_open(self.options.get(), self.path.as_ptr(), error))?;
            ffi::rocksdb_compact_range(db, ptr::null(), 0, ptr::null(), 0);
            ffi::rocksdb_close(db);
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.shut();
    }
}
