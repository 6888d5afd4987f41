//! The session of a thread: its cursors and its transactions.

mod generic;
mod session;

use super::{
    code::{NAME, check},
    ffi,
};
use crate::{
    error::{Error, Result},
    workload::Table,
};
use std::{ffi::c_int, ptr, time::Duration};

fn is_rollback(code: c_int) -> bool {
    // SAFETY: the function compares numbers.
    unsafe { ffi::shim_is_rollback(code) != 0 }
}

fn is_not_found(code: c_int) -> bool {
    // SAFETY: the function compares numbers.
    unsafe { ffi::shim_is_not_found(code) != 0 }
}

/// Whether an insert met a row with its key.
fn is_duplicate(code: c_int) -> bool {
    // SAFETY: the function compares numbers.
    unsafe { ffi::shim_is_duplicate(code) != 0 }
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

/// Why a transaction did not go on.
pub(super) enum Stop {
    /// A conflict: it may run again.
    Rollback,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The error of a read, which meets no conflict, or of a call that met one and whose transaction runs again.
pub(super) fn ended(stop: Stop) -> Error {
    match stop {
        Stop::Error(error) => error,
        Stop::Rollback => Error::Failed { engine: NAME, call: "read", cause: "rolled back".to_owned() },
    }
}

pub(super) type Step<T> = std::result::Result<T, Stop>;

fn step(call: &'static str, code: c_int) -> Step<()> {
    if is_rollback(code) { Err(Stop::Rollback) } else { Ok(check(call, code)?) }
}

/// As [`step`], where a row may be missing.
fn found(call: &'static str, code: c_int) -> Step<bool> {
    if is_not_found(code) { Ok(false) } else { step(call, code).map(|()| true) }
}

/// Waits before the next attempt.
fn back_off(attempt: u32) {
    match attempt {
        ..4 => std::thread::yield_now(),
        4..10 => std::thread::sleep(Duration::from_millis(1)),
        10..100 => std::thread::sleep(Duration::from_millis(5)),
        _ => std::thread::sleep(Duration::from_millis(10)),
    }
}

/// The session of a thread, with its cursors.
pub(super) struct Own {
    session: *mut ffi::Session,
    /// Where the consumer looks for the next row: the deleted ones before it need not be skipped again.
    hint: u64,
}

impl Own {
    /// Takes a new session.
    pub(super) const fn new(session: *mut ffi::Session) -> Self {
        Self { session, hint: 0 }
    }

    /// Takes a checkpoint of the database.
    pub(super) fn checkpoint(&self) -> Result<()> {
        // SAFETY: the session is open.
        check("checkpoint", unsafe { ffi::shim_checkpoint(self.session) })
    }

    /// Closes the bulk cursor of the session, which writes what is left.
    pub(super) fn end_bulk(self) -> Result<()> {
        // SAFETY: the session is open, and the shim knows of the cursor.
        check("close a bulk cursor", unsafe { ffi::shim_bulk_end(self.session) })
    }

    /// Runs a transaction, again after a conflict.
    pub(super) fn write<T>(&mut self, mut work: impl FnMut(&mut Self) -> Step<T>) -> Result<T> {
        for attempt in 1_u32.. {
            // SAFETY: the session is open, and no transaction runs.
            check("begin", unsafe { ffi::shim_begin(self.session) })?;
            let stop = match work(self) {
                // SAFETY: the transaction runs. It is over after this call, also where that fails.
                Ok(value) => match step("commit", unsafe { ffi::shim_commit(self.session) }) {
                    Ok(()) => return Ok(value),
                    Err(stop) => stop,
                },
                Err(stop) => {
                    // SAFETY: the transaction runs.
                    check("roll back", unsafe { ffi::shim_rollback(self.session) })?;
                    stop
                }
            };
            match stop {
                Stop::Rollback => back_off(attempt),
                Stop::Error(error) => return Err(error),
            }
        }
        unreachable!("only success and errors end the attempts")
    }

    /// Runs `work` in a transaction that only reads.
    fn read<T>(&mut self, work: impl FnOnce(&mut Self) -> Step<T>) -> Result<T> {
        // SAFETY: the session is open, and no transaction runs.
        check("begin", unsafe { ffi::shim_begin(self.session) })?;
        let value = work(self).map_err(ended);
        // SAFETY: the transaction runs.
        check("end a read", unsafe { ffi::shim_commit(self.session) })?;
        value
    }

    fn get_row(&mut self, table: Table, key: u64) -> Step<&[u8]> {
        Ok(self.find_row(table, key)?.ok_or_else(lost)?)
    }

    /// Returns a row, if there is one. It is valid until the cursor moves.
    fn find_row(&mut self, table: Table, key: u64) -> Step<Option<&[u8]>> {
        let (mut value, mut len) = (ptr::null(), 0);
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_get(self.session, table.index(), key, &mut value, &mut len) };
        if !found("search", code)? {
            return Ok(None);
        }
        // SAFETY: the value is valid until the cursor moves, which needs `&mut self`.
        Ok(Some(unsafe { std::slice::from_raw_parts(value.cast(), len) }))
    }

    pub(super) fn insert_row(&mut self, table: Table, key: u64, row: &[u8]) -> Step<()> {
        // SAFETY: the session is open, and the row lives through the call.
        let code = unsafe { ffi::shim_insert(self.session, table.index(), key, row.as_ptr().cast(), row.len()) };
        step("insert", code)
    }

    /// Returns the row at `code`, what a call that moved the cursor returned.
    fn row_at(code: c_int, key: u64, value: *const std::ffi::c_void, len: usize) -> Step<Option<(u64, &'static [u8])>> {
        if !found("move a cursor", code)? {
            return Ok(None);
        }
        // SAFETY: the callers shorten the lifetime to the time until the cursor moves.
        Ok(Some((key, unsafe { std::slice::from_raw_parts(value.cast(), len) })))
    }

    fn seek(&mut self, table: Table, from: u64) -> Step<Option<(u64, &[u8])>> {
        let (mut key, mut value, mut len) = (0, ptr::null(), 0);
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_seek(self.session, table.index(), from, &mut key, &mut value, &mut len) };
        Self::row_at(code, key, value, len)
    }

    pub(super) fn next(&mut self, table: Table) -> Step<Option<(u64, &[u8])>> {
        let (mut key, mut value, mut len) = (0, ptr::null(), 0);
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_next(self.session, table.index(), &mut key, &mut value, &mut len) };
        Self::row_at(code, key, value, len)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the session is not used again; closing it closes its cursors, and rolls back what runs.
        unsafe { ffi::shim_session_close(self.session) };
    }
}
