//! Calls of the library, their errors, and its form of keys.

use super::ffi;
use crate::{
    error::{Error, Result},
    workload::Table,
};
use std::{
    ffi::{CStr, c_char},
    ptr,
};

pub(super) const NAME: &str = "rocksdb";

/// Runs a call that reports its error through a pointer.
pub(super) fn call<T>(name: &'static str, work: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = ptr::null_mut();
    let value = work(&mut error);
    match take(error) {
        None => Ok(value),
        Some(cause) => Err(Error::Failed { engine: NAME, call: name, cause }),
    }
}

/// Takes the message of an error, if there is one.
pub(super) fn take(error: *mut c_char) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: the library allocated a string that ends with a zero, and gives it to the caller.
    unsafe {
        let cause = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        Some(cause)
    }
}

/// Whether a transaction lost a wait for a row: RocksDB asks to run it again.
pub(super) fn is_lock_lost(error: &Error) -> bool {
    matches!(error, Error::Failed { cause, .. }
        if cause.starts_with("Operation timed out") || cause.starts_with("Resource busy"))
}

pub(super) fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

/// Bytes of a key: the table, then the key, so that rows are in the order of both.
pub(super) const KEY_BYTES: usize = 10;

pub(super) fn encoded(table: Table, key: u64) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..2].copy_from_slice(&table.0.to_be_bytes());
    bytes[2..].copy_from_slice(&key.to_be_bytes());
    bytes
}

/// Returns the key of an encoded one, if it is of the table.
pub(super) fn decoded(table: Table, bytes: &[u8]) -> Option<u64> {
    let (prefix, key) = bytes.split_first_chunk::<2>()?;
    (*prefix == table.0.to_be_bytes()).then(|| Some(u64::from_be_bytes(key.try_into().ok()?)))?
}
