//! Transactions and cursors, their errors, and the library's form of keys and values.

use crate::error::{Error, Result};
use lmdb_master_sys as ffi;
use std::{ffi::CStr, ptr};

pub(super) const NAME: &str = "lmdb";

pub(super) fn check(call: &'static str, code: libc::c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a string that lives as long as the process.
    let cause = unsafe { CStr::from_ptr(ffi::mdb_strerror(code)) };
    Err(Error::Failed { engine: NAME, call, cause: cause.to_string_lossy().into_owned() })
}

pub(super) fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

fn value_of(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// The bytes of a value that the library returned.
///
/// # Safety
/// The transaction that returned the value is alive, and has not written since.
unsafe fn bytes_of<'a>(value: &ffi::MDB_val) -> &'a [u8] {
    // SAFETY: the library returned address and length, and the caller keeps the page.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

fn key_of(value: &ffi::MDB_val) -> u64 {
    // SAFETY: a key is copied before the transaction goes on.
    first_native(unsafe { bytes_of(value) })
}

fn first_native(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// A transaction, aborted when it is dropped.
pub(super) struct Txn(pub(super) *mut ffi::MDB_txn);

impl Txn {
    pub(super) fn commit(self) -> Result<()> {
        let txn = self.0;
        std::mem::forget(self);
        // SAFETY: the transaction is alive, and this call ends it.
        check("commit", unsafe { ffi::mdb_txn_commit(txn) })
    }

    /// Returns a value that is there. It is valid until the transaction writes or ends.
    pub(super) fn get(&self, table: ffi::MDB_dbi, key: u64) -> Result<&[u8]> {
        self.find(table, key)?.ok_or_else(lost)
    }

    /// Returns a value, if there is one. It is valid until the transaction writes or ends.
    pub(super) fn find(&self, table: ffi::MDB_dbi, key: u64) -> Result<Option<&[u8]>> {
        let key = key.to_ne_bytes();
        let mut found = value_of(&[]);
        // SAFETY: the transaction is alive, and the key lives through the call.
        match unsafe { ffi::mdb_get(self.0, table, &mut value_of(&key), &mut found) } {
            ffi::MDB_NOTFOUND => Ok(None),
            code => {
                check("get", code)?;
                // SAFETY: a write needs `&mut self`, the end needs `self`.
                Ok(Some(unsafe { bytes_of(&found) }))
            }
        }
    }

    /// Puts a row. Returns `false` if `MDB_NOOVERWRITE` is among the flags and there is a row.
    pub(super) fn put(&mut self, table: ffi::MDB_dbi, key: u64, row: &[u8], flags: u32) -> Result<bool> {
        let key = key.to_ne_bytes();
        // SAFETY: the transaction is alive, and the library copies key and row.
        match unsafe { ffi::mdb_put(self.0, table, &mut value_of(&key), &mut value_of(row), flags) } {
            ffi::MDB_KEYEXIST if flags & ffi::MDB_NOOVERWRITE != 0 => Ok(false),
            code => check("put", code).map(|()| true),
        }
    }

    /// Deletes a row. Returns whether there was one.
    pub(super) fn remove(&mut self, table: ffi::MDB_dbi, key: u64) -> Result<bool> {
        let key = key.to_ne_bytes();
        // SAFETY: the transaction is alive, and the key lives through the call.
        match unsafe { ffi::mdb_del(self.0, table, &mut value_of(&key), ptr::null_mut()) } {
            ffi::MDB_NOTFOUND => Ok(false),
            code => check("delete", code).map(|()| true),
        }
    }

    pub(super) fn cursor(&self, table: ffi::MDB_dbi) -> Result<Cursor> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the transaction is alive.
        check("open a cursor", unsafe { ffi::mdb_cursor_open(self.0, table, &mut cursor) })?;
        Ok(Cursor(cursor))
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // SAFETY: `commit` forgets the transaction that it ends, so this one is alive.
        unsafe { ffi::mdb_txn_abort(self.0) };
    }
}

/// A cursor, closed when it is dropped, before its transaction ends.
pub(super) struct Cursor(pub(super) *mut ffi::MDB_cursor);

impl Cursor {
    /// Moves as `step` says, and returns the row there.
    pub(super) fn step(&mut self, from: u64, step: ffi::MDB_cursor_op) -> Result<Option<(u64, &[u8])>> {
        let from = from.to_ne_bytes();
        let (mut key, mut found) = (value_of(&from), value_of(&[]));
        // SAFETY: cursor and transaction are alive.
        match unsafe { ffi::mdb_cursor_get(self.0, &mut key, &mut found, step) } {
            ffi::MDB_NOTFOUND => Ok(None),
            code => {
                check("move a cursor", code)?;
                // SAFETY: the row is valid until the cursor moves or the transaction writes.
                Ok(Some((key_of(&key), unsafe { bytes_of(&found) })))
            }
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: its transaction is alive, or is one of a reader, which LMDB allows to end first.
        unsafe { ffi::mdb_cursor_close(self.0) };
    }
}
