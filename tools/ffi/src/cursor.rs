//! Scans.

use crate::guard::{bytes, free, guard, guard_status, hand_out, object, object_mut};
use crate::range::{bounds, fs_range};
use crate::table::fs_table;
use foreshore_handles::{Bounds, Cursor, Direction, Fault, Result, Status};
use std::ffi::c_void;
use std::sync::{Mutex, TryLockError};

/// From the smallest key on.
pub const FS_FORWARD: u32 = 0;
/// From the largest key on.
pub const FS_BACKWARD: u32 = 1;

/// A scan of the rows of a table. It sees rows that its transaction writes ahead of it. It may read, and in a
/// serializable transaction lock, some rows ahead of those that it has returned.
pub struct fs_cursor {
    inner: Mutex<Cursor>,
}

impl fs_cursor {
    pub(crate) const fn new(cursor: Cursor) -> Self {
        Self { inner: Mutex::new(cursor) }
    }
}

pub(crate) fn direction(number: u32) -> Result<Direction> {
    match number {
        FS_FORWARD => Ok(Direction::Forward),
        FS_BACKWARD => Ok(Direction::Backward),
        other => Err(Fault::new(Status::Invalid, format!("there is no direction {other}"))),
    }
}

/// Begins a scan of a range, which may be null for all rows. Free it with `fs_cursor_free`.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_scan(
    table: *const fs_table,
    range: *const fs_range,
    direction: u32,
    cursor: *mut *mut fs_cursor,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, bounds, out) = unsafe { (object(table, "table")?, bounds(range)?, object_mut(cursor, "cursor")?) };
        hand_out(out, fs_cursor::new(table.inner.scan(bounds, self::direction(direction)?)?));
        Ok(())
    })
}

/// Begins a scan of the rows whose keys begin with `prefix`. Free it with `fs_cursor_free`.
///
/// # Safety
/// Each pointer is null or of its type, and `prefix` has `prefix_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_scan_prefix(
    table: *const fs_table,
    prefix: *const c_void,
    prefix_len: usize,
    direction: u32,
    cursor: *mut *mut fs_cursor,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, prefix) = unsafe { (object(table, "table")?, bytes(prefix, prefix_len, "prefix")?) };
        // SAFETY: as the caller promises.
        let out = unsafe { object_mut(cursor, "cursor") }?;
        let bounds = Bounds::prefix(prefix);
        hand_out(out, fs_cursor::new(table.inner.scan(bounds, self::direction(direction)?)?));
        Ok(())
    })
}

/// Stores the next row, which belongs to the cursor and stays until its next call, of whatever thread. `FS_NOT_FOUND`
/// at the end. After an error no row was passed over; an error of a scan by an index ends it, and the next call returns
/// it again. Pointers to what is not wanted may be null.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cursor_next(
    cursor: *const fs_cursor,
    key: *mut *const c_void,
    key_len: *mut usize,
    value: *mut *const c_void,
    value_len: *mut usize,
) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let cursor = unsafe { object(cursor, "cursor") }?;
        let mut cursor = match cursor.inner.try_lock() {
            Ok(cursor) => cursor,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Fault::new(Status::InUse, "another thread is in a call with this cursor"));
            }
        };
        let Some((found_key, found_value)) = cursor.next_row()? else { return Ok(Status::NotFound) };
        // SAFETY: as the caller promises.
        unsafe {
            store(key, found_key.as_ptr().cast());
            store(key_len, found_key.len());
            store(value, found_value.as_ptr().cast());
            store(value_len, found_value.len());
        }
        Ok(Status::Ok)
    })
}

/// # Safety
/// `out` is null or of its type.
unsafe fn store<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as the caller promises.
        unsafe { out.write(value) };
    }
}

/// Frees a cursor. Null is allowed.
///
/// # Safety
/// `cursor` is null or a cursor that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cursor_free(cursor: *mut fs_cursor) {
    // SAFETY: as the caller promises.
    unsafe { free(cursor) };
}
