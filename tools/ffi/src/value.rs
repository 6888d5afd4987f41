//! Values that are written and read in parts, or changed by a function.

use crate::buffer::fs_buffer;
use crate::guard::{bytes, found, free, guard, guard_status, hand_out, null, object, object_mut, store};
use crate::table::fs_table;
use foreshore_handles::{Fault, Status, ValueReader};
use std::ffi::{c_int, c_void};
use std::io::{self, Read};
use std::slice;

/// Stores the next bytes of a value in `buffer`, at most `len`, and returns their number. Zero at the end, and -1 if it
/// fails. It must not use the transaction.
pub type fs_read = Option<unsafe extern "C" fn(arg: *mut c_void, buffer: *mut c_void, len: usize) -> isize>;

/// What the function of `fs_update_with` returns to remove the row. It is no status and no usual number of an error.
pub const FS_REMOVE_ROW: i32 = 1_000_000;

/// Changes a value. `old` is null if there is no row. The new value goes to `new_value` by `fs_buffer_set`. Returns
/// zero to store it, `FS_REMOVE_ROW` to remove the row, and anything else, such as a status, to leave it as it is. It
/// may use the transaction. `new_value` belongs to the library and ends with the call: do not free it. No exception of
/// C++ and no `longjmp` may leave the function.
pub type fs_change = Option<
    unsafe extern "C" fn(arg: *mut c_void, old: *const c_void, old_len: usize, new_value: *mut fs_buffer) -> c_int,
>;

/// A reader of one value. It returns the same bytes until its transaction ends.
pub struct fs_reader {
    inner: ValueReader,
}

/// A function of the program as a reader.
struct OfProgram {
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> isize,
    arg: *mut c_void,
}

impl Read for OfProgram {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: as the caller of `fs_put_reader` promises.
        let read = unsafe { (self.read)(self.arg, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(read) {
            Ok(count) if count <= buffer.len() => Ok(count),
            _ => Err(io::Error::other(format!("the function has returned {read}"))),
        }
    }
}

/// Sets the value of a key to the bytes that `read` returns, and stores their number, unless `count` is null. No whole
/// value is in memory, unless the table has indexes. `FS_READER_FAILED` if `read` fails; then the row is unchanged and
/// the transaction goes on.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes. `read` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_put_reader(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    read: fs_read,
    arg: *mut c_void,
    count: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        let read = read.ok_or_else(|| null("read"))?;
        let written = table.inner.put_reader(key, OfProgram { read, arg }, None)?;
        // SAFETY: as the caller promises.
        unsafe { store(count, written) };
        Ok(())
    })
}

/// Makes a reader of the value of a key. `FS_NOT_FOUND` if there is none. Free it with `fs_reader_free`.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_get_reader(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    reader: *mut *mut fs_reader,
) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        // SAFETY: as the caller promises.
        let out = unsafe { object_mut(reader, "reader") }?;
        let Some(inner) = table.inner.reader(key)? else { return Ok(Status::NotFound) };
        hand_out(out, fs_reader { inner });
        Ok(Status::Ok)
    })
}

/// Returns the length of the value in bytes. Zero for a null reader.
///
/// # Safety
/// `reader` is null or a reader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_reader_len(reader: *const fs_reader) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { reader.as_ref() }.map_or(0, |reader| reader.inner.len())
}

/// Copies the bytes from `at` on to `buffer`, at most `len`, as far as the value goes. Stores how many there were in
/// `count`.
///
/// # Safety
/// Each pointer is null or of its type, and `buffer` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_read_at(
    reader: *const fs_reader,
    at: u64,
    buffer: *mut c_void,
    len: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, count) = unsafe { (object(reader, "reader")?, object_mut(count, "count")?) };
        *count = 0;
        if len == 0 {
            return Ok(());
        }
        if buffer.is_null() {
            return Err(null("buffer"));
        }
        if isize::try_from(len).is_err() {
            return Err(Fault::new(Status::Invalid, format!("`buffer` has {len} bytes")));
        }
        // SAFETY: as the caller promises. The engine writes to it, and reads nothing of it.
        let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast(), len) };
        *count = reader.inner.read_at(at, buffer)?;
        Ok(())
    })
}

/// Frees a reader. Null is allowed.
///
/// # Safety
/// `reader` is null or a reader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_reader_free(reader: *mut fs_reader) {
    // SAFETY: as the caller promises.
    unsafe { free(reader) };
}

/// Changes the value of a key by a function, under a lock of the row: a merge of it with what the function knows. So no
/// change of another transaction is lost. Copies the new value to `value`, which may be null. `FS_NOT_FOUND` if there
/// is no row afterwards. `FS_ABORTED` if the function has refused; then the row is locked and unchanged. `result`,
/// unless it is null, gets what the function has returned, if it was called.
///
/// # Safety
/// Each pointer is null or of its type, and `key` has `key_len` bytes. `change` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_update_with(
    table: *const fs_table,
    key: *const c_void,
    key_len: usize,
    change: fs_change,
    arg: *mut c_void,
    value: *mut fs_buffer,
    result: *mut c_int,
) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, key) = unsafe { (object(table, "table")?, bytes(key, key_len, "key")?) };
        let change = change.ok_or_else(|| null("change"))?;
        let new = table.inner.update_with(key, |old| {
            let mut new = fs_buffer::default();
            let (pointer, len) = old.map_or((std::ptr::null(), 0), |old| (old.as_ptr().cast(), old.len()));
            // SAFETY: as the caller promises.
            let number = unsafe { change(arg, pointer, len, &raw mut new) };
            // SAFETY: as the caller promises.
            if let Some(result) = unsafe { result.as_mut() } {
                *result = number;
            }
            match number {
                0 => Ok(Some(new.bytes)),
                FS_REMOVE_ROW => Ok(None),
                other => Err(Fault::new(Status::Aborted, format!("the function of the change has returned {other}"))),
            }
        })?;
        let is_found = new.is_some();
        // SAFETY: as the caller promises.
        if let Some(value) = unsafe { value.as_mut() } {
            value.bytes = new.unwrap_or_default();
        }
        Ok(found(is_found))
    })
}
