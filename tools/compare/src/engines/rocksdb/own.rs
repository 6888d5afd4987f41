//! The session of a thread: its transaction and its options.

mod generic;
mod session;

use super::{
    calls::{call, decoded, encoded, is_lock_lost, lost},
    database::Database,
    ffi,
};
use crate::{
    error::Result,
    workload::{QUEUE, ROWS, Table},
};
use std::ptr;

/// How long a transaction waits for a row, in milliseconds.
const LOCK_TIMEOUT_MS: i64 = 10_000;
/// A transaction that skips rows which are locked.
const NO_WAIT_MS: i64 = 0;

/// What one thread uses again for each transaction, as RocksDB's documentation recommends.
pub(super) struct Own<'a> {
    database: &'a Database,
    txn: *mut ffi::Transaction,
    write: *mut ffi::WriteOptions,
    read: *mut ffi::ReadOptions,
    /// Read options that name a snapshot while one is in use.
    snapshot: *mut ffi::ReadOptions,
    waits: *mut ffi::TransactionOptions,
    no_wait: *mut ffi::TransactionOptions,
    /// Where the consumer looks for the next row: the deleted ones before it need not be skipped again.
    hint: u64,
}

impl<'a> Own<'a> {
    pub(super) fn new(database: &'a Database, durable: bool) -> Self {
        // SAFETY: the constructors have no conditions, and the setters get what they returned.
        unsafe {
            let (write, read) = (ffi::rocksdb_writeoptions_create(), ffi::rocksdb_readoptions_create());
            ffi::rocksdb_writeoptions_set_sync(write, u8::from(durable));
            let (waits, no_wait) =
                (ffi::rocksdb_transaction_options_create(), ffi::rocksdb_transaction_options_create());
            ffi::rocksdb_transaction_options_set_lock_timeout(waits, LOCK_TIMEOUT_MS);
            ffi::rocksdb_transaction_options_set_lock_timeout(no_wait, NO_WAIT_MS);
            let snapshot = ffi::rocksdb_readoptions_create();
            Self { database, txn: ptr::null_mut(), write, read, snapshot, waits, no_wait, hint: 0 }
        }
    }

    /// Begins a transaction that waits for rows.
    pub(super) fn begin_waiting(&mut self) {
        self.begin(self.waits);
    }

    fn begin(&mut self, options: *const ffi::TransactionOptions) {
        // SAFETY: the old transaction, if there is one, has ended, and is used again.
        self.txn = unsafe { ffi::rocksdb_transaction_begin(self.database.get(), self.write, options, self.txn) };
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        // SAFETY: the transaction has begun.
        call("commit", |error| unsafe { ffi::rocksdb_transaction_commit(self.txn, error) })
    }

    fn rollback(&mut self) -> Result<()> {
        // SAFETY: the transaction has begun.
        call("roll back", |error| unsafe { ffi::rocksdb_transaction_rollback(self.txn, error) })
    }

    /// Runs a transaction, again where it lost a wait for a row.
    fn write(&mut self, mut work: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.write_or_not(|own| work(own).map(|()| true))
    }

    /// Runs a transaction as [`write`](Self::write), and rolls it back if `work` says that it has not written: a commit
    /// syncs the log even then.
    fn write_or_not(&mut self, mut work: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        loop {
            self.begin_waiting();
            match work(self).and_then(|has_written| if has_written { self.commit() } else { self.rollback() }) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.rollback()?;
                    if !is_lock_lost(&error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    pub(super) fn put(&mut self, table: Table, key: u64, row: &[u8]) -> Result<()> {
        let key = encoded(table, key);
        // SAFETY: the transaction has begun, and the library copies key and row.
        call("put", |error| unsafe {
            ffi::rocksdb_transaction_put(
                self.txn,
                key.as_ptr().cast(),
                key.len(),
                row.as_ptr().cast(),
                row.len(),
                error,
            );
        })
    }

    fn get_for_update(&mut self, table: Table, key: u64) -> Result<Option<Pinned>> {
        let key = encoded(table, key);
        // SAFETY: the transaction has begun, and the key lives through the call.
        let found = call("get for update", |error| unsafe {
            let (bytes, len) = (key.as_ptr().cast(), key.len());
            ffi::rocksdb_transaction_get_pinned_for_update(self.txn, self.read, bytes, len, ffi::YES, error)
        })?;
        Ok(Pinned::new(found))
    }

    fn get_by(&self, options: *const ffi::ReadOptions, key: u64) -> Result<Pinned> {
        self.find(options, ROWS, key)?.ok_or_else(lost)
    }

    fn find(&self, options: *const ffi::ReadOptions, table: Table, key: u64) -> Result<Option<Pinned>> {
        let key = encoded(table, key);
        // SAFETY: database and options are alive, and the key lives through the call.
        let found = call("get", |error| unsafe {
            let (bytes, len) = (key.as_ptr().cast(), key.len());
            ffi::rocksdb_transactiondb_get_pinned(self.database.get(), options, bytes, len, error)
        })?;
        Ok(Pinned::new(found))
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<()> {
        let bytes = encoded(table, key);
        // SAFETY: the transaction has begun, and the key lives through the call.
        call("delete", |error| unsafe {
            ffi::rocksdb_transaction_delete(self.txn, bytes.as_ptr().cast(), bytes.len(), error);
        })
    }

    /// Runs `work` with read options that name a snapshot.
    fn at_snapshot<T>(&mut self, work: impl FnOnce(&Self, *const ffi::ReadOptions) -> T) -> T {
        let db = self.database.get();
        // SAFETY: the snapshot is released when nothing reads by it any more.
        unsafe {
            let snapshot = ffi::rocksdb_transactiondb_create_snapshot(db);
            ffi::rocksdb_readoptions_set_snapshot(self.snapshot, snapshot);
            let value = work(self, self.snapshot);
            ffi::rocksdb_readoptions_set_snapshot(self.snapshot, ptr::null());
            ffi::rocksdb_transactiondb_release_snapshot(db, snapshot);
            value
        }
    }

    pub(super) fn iterate(&self, table: Table, first: u64) -> Iterate {
        self.iterate_by(self.read, table, first)
    }

    fn iterate_by(&self, options: *const ffi::ReadOptions, table: Table, first: u64) -> Iterate {
        // SAFETY: database and options are alive.
        let iterator = unsafe { ffi::rocksdb_transactiondb_create_iterator(self.database.get(), options) };
        Iterate::from(iterator, table, first)
    }

    /// Claims and deletes the first free row of the queue from `first` on.
    fn claim(&mut self, first: u64) -> Result<Option<u64>> {
        self.begin(self.no_wait);
        let mut rows = self.iterate(QUEUE, first);
        while let Some((key, _)) = rows.here()? {
            match self.get_for_update(QUEUE, key) {
                Ok(Some(_)) => {
                    self.delete(QUEUE, key)?;
                    self.commit()?;
                    return Ok(Some(key));
                }
                // Deleted since the iterator began, or claimed.
                Ok(None) => {}
                Err(error) if is_lock_lost(&error) => {}
                Err(error) => return Err(error),
            }
            rows.step();
        }
        self.rollback()?;
        Ok(None)
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        // SAFETY: all were created with the session, and the transaction has ended or ends here.
        unsafe {
            if !self.txn.is_null() {
                ffi::rocksdb_transaction_destroy(self.txn);
            }
            ffi::rocksdb_writeoptions_destroy(self.write);
            ffi::rocksdb_readoptions_destroy(self.read);
            ffi::rocksdb_readoptions_destroy(self.snapshot);
            ffi::rocksdb_transaction_options_destroy(self.waits);
            ffi::rocksdb_transaction_options_destroy(self.no_wait);
        }
    }
}

/// A value that the library keeps where it is.
struct Pinned(*mut ffi::Pinned);

impl Pinned {
    fn new(found: *mut ffi::Pinned) -> Option<Self> {
        (!found.is_null()).then_some(Self(found))
    }

    fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the value is pinned until it is dropped.
        unsafe {
            let bytes = ffi::rocksdb_pinnableslice_value(self.0, &mut len);
            std::slice::from_raw_parts(bytes.cast(), len)
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the value is not used again.
        unsafe { ffi::rocksdb_pinnableslice_destroy(self.0) };
    }
}

/// An iterator over one table.
pub(super) struct Iterate {
    iterator: *mut ffi::Iterator,
    table: Table,
}

impl Iterate {
    /// Places a new iterator at the first row from `first` on.
    pub(super) fn from(iterator: *mut ffi::Iterator, table: Table, first: u64) -> Self {
        let key = encoded(table, first);
        // SAFETY: the iterator is new, and the key lives through the call.
        unsafe { ffi::rocksdb_iter_seek(iterator, key.as_ptr().cast(), key.len()) };
        Self { iterator, table }
    }

    /// Returns the row at the iterator's place, if there is one.
    pub(super) fn here(&self) -> Result<Option<(u64, &[u8])>> {
        // SAFETY: the iterator is alive; key and value are valid until it moves, which needs `&mut self`.
        unsafe {
            if ffi::rocksdb_iter_valid(self.iterator) == 0 {
                call("iterate", |error| ffi::rocksdb_iter_get_error(self.iterator, error))?;
                return Ok(None);
            }
            let (mut key_len, mut len) = (0, 0);
            let key = ffi::rocksdb_iter_key(self.iterator, &mut key_len);
            let value = ffi::rocksdb_iter_value(self.iterator, &mut len);
            let key = decoded(self.table, std::slice::from_raw_parts(key.cast(), key_len));
            Ok(key.map(|key| (key, std::slice::from_raw_parts(value.cast(), len))))
        }
    }

    /// Moves to the next row; only from a row.
    pub(super) fn step(&mut self) {
        // SAFETY: the iterator is valid, or `here` had returned none.
        unsafe { ffi::rocksdb_iter_next(self.iterator) };
    }
}

impl Drop for Iterate {
    fn drop(&mut self) {
        // SAFETY: the iterator is not used again.
        unsafe { ffi::rocksdb_iter_destroy(self.iterator) };
    }
}
