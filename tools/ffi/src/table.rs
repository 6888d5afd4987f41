//! Tables.

use crate::buffer::fs_buffer;
use crate::guard::{bytes, found, free, guard, guard_status, hand_out, object, object_mut, text};
use crate::range::{bounds, fs_range};
use crate::tx::fs_tx;
use foreshore_handles::{Status, Table};
use std::ffi::{c_char, c_void};

/// A table that is open in a transaction: keys and values are bytes, and keys are in the order of their bytes.
pub struct fs_table {
    pub(crate) inner: Table,
    /// The name of the type of its keys, unless it was opened without it.
    pub(crate) key_type: Option<String>,
}

/// Opens the table `name` of bytes, and creates it if there is none and the transaction writes. Free it with
/// `fs_table_free`.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_table_open(tx: *const fs_tx, name: *const c_char, table: *mut *mut fs_table) -> Status {
    // SAFETY: as the caller promises.
    unsafe { fs_table_open_typed(tx, name, c"bytes".as_ptr(), c"bytes".as_ptr(), table) }
}

/// Opens the table `name` like `fs_table_open`, with the names of its types as Rust programs see them: `u64`, `str`,
/// `(u64,str)`. Keys and values must be encoded as these types are, which nothing checks.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_table_open_typed(
    tx: *const fs_tx,
    name: *const c_char,
    key_type: *const c_char,
    value_type: *const c_char,
    table: *mut *mut fs_table,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, name, out) = unsafe { (object(tx, "tx")?, text(name, "name")?, object_mut(table, "table")?) };
        // SAFETY: as the caller promises.
        let (key_type, value_type) = unsafe { (text(key_type, "key_type")?, text(value_type, "value_type")?) };
        hand_out(
            out,
            fs_table {
                inner: Table::open(&tx.inner, name, key_type, value_type)?,
                key_type: Some(key_type.to_owned()),
            },
        );
        Ok(())
    })
}

/// Opens the table `name`, whatever its types, and creates none. Keys and values are those types' encodings.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_table_open_existing(
    tx: *const fs_tx,
    name: *const c_char,
    table: *mut *mut fs_table,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, name, out) = unsafe { (object(tx, "tx")?, text(name, "name")?, object_mut(table, "table")?) };
        hand_out(out, fs_table { inner: Table::open_existing(&tx.inner, name)?, key_type: None });
        Ok(())
    })
}

/// Frees a table. Its transaction and its cursors go on. Null is allowed.
///
/// # Safety
/// `table` is null or a table that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_table_free(table: *mut fs_table) {
    // SAFETY: as the caller promises.
    unsafe { free(table) };
}

/// Copies the value of a key to `value`. `FS_NOT_FOUND` if there is none; then the buffer is empty.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_get(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    value: *mut fs_buffer,
) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        // SAFETY: as the caller promises.
        let value = unsafe { object_mut(value, "value") }?;
        value.bytes.clear();
        Ok(found(table.inner.get(key, |bytes| value.set(bytes))?.is_some()))
    })
}

/// Copies the value of a key to `value` like `fs_get`, and locks the row for a write in this transaction. That avoids
/// the deadlock of two transactions that both read a row and then both write it.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_get_for_update(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    value: *mut fs_buffer,
) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        // SAFETY: as the caller promises.
        let value = unsafe { object_mut(value, "value") }?;
        value.bytes.clear();
        let row = table.inner.get_for_update(key)?;
        let is_found = row.is_some();
        value.bytes = row.unwrap_or_default();
        Ok(found(is_found))
    })
}

/// Returns `FS_OK` if there is a row of the key, and `FS_NOT_FOUND` if there is none.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_contains(table: *const fs_table, key: *const c_void, key_len: usize) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        Ok(found(table.inner.contains(key)?))
    })
}

/// Sets the value of a key, whether there is a row of it or not.
///
/// # Safety
/// Each pointer is null or of its type, and has as many bytes as its length says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_put(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        // SAFETY: as the caller promises.
        table.inner.put(key, unsafe { bytes(value, value_len, "value") }?)
    })
}

/// Sets the value of a new key. `FS_KEY_EXISTS` if there is a row of it.
///
/// # Safety
/// Each pointer is null or of its type, and has as many bytes as its length says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_insert(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        // SAFETY: as the caller promises.
        table.inner.insert(key, unsafe { bytes(value, value_len, "value") }?)
    })
}

/// Removes the row of a key. `FS_NOT_FOUND` if there is none.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_delete(table: *const fs_table, key: *const c_void, key_len: usize) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        Ok(found(table.inner.remove(key)?.is_some()))
    })
}

/// Removes the rows of a range, which may be null for all rows. Stores how many there were, unless `count` is null.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_delete_range(table: *const fs_table, range: *const fs_range, count: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, bounds) = unsafe { (object(table, "table")?, bounds(range)?) };
        let removed = table.inner.remove_range(&bounds)?;
        // SAFETY: as the caller promises.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = removed;
        }
        Ok(())
    })
}

/// Counts the rows of a range, which may be null for all rows, by a scan.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_count(table: *const fs_table, range: *const fs_range, count: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, bounds) = unsafe { (object(table, "table")?, bounds(range)?) };
        // SAFETY: as the caller promises.
        *unsafe { object_mut(count, "count") }? = table.inner.count(&bounds)?;
        Ok(())
    })
}

/// Stores a number for a new row, from 1 on. No two calls get the same one, also after a crash.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_next_id(table: *const fs_table, id: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, id) = unsafe { (object(table, "table")?, object_mut(id, "id")?) };
        *id = table.inner.next_id()?;
        Ok(())
    })
}

/// Makes the numbers of `fs_next_id` begin above `last`, for calls that begin later: after a load of rows that have
/// numbers. It takes effect at once, durably, and no rollback takes it back. A smaller `last` changes nothing.
///
/// # Safety
/// `table` is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_skip_ids(table: *const fs_table, last: u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { object(table, "table") }?.inner.skip_ids(last)
    })
}
