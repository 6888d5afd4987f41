//! Loads of many rows.

use crate::guard::{bytes, guard, null, object, store};
use crate::options::copied;
use crate::table::fs_table;
use foreshore::LoadOptions;
use foreshore_handles::{Fault, Result, Status};
use std::ffi::{c_int, c_void};
use std::ptr;

/// Options of a load. Set `struct_size` to `sizeof(fs_load_options)`, and leave zero what is to have its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fs_load_options {
    /// `sizeof(fs_load_options)`.
    pub struct_size: usize,
    /// How much of each page is filled, in percent: 10 to 100, the default. The rest is for later rows between them.
    pub fill_percent: u32,
}

/// Stores the next row of a load, whose bytes stay until the next call. Returns zero if there is one, `FS_NOT_FOUND` at
/// the end, and anything else to load nothing. It must not use the transaction. No exception of C++ and no `longjmp`
/// may leave the function.
pub type fs_next_row = Option<
    unsafe extern "C" fn(
        arg: *mut c_void,
        key: *mut *const c_void,
        key_len: *mut usize,
        value: *mut *const c_void,
        value_len: *mut usize,
    ) -> c_int,
>;

/// Inserts the rows that `next` returns, whose keys ascend and are above all keys of the table. Stores their number,
/// unless `count` is null. That is much faster than single inserts. The table is locked until the transaction ends, and
/// its commit waits until it is durable. `options` may be null.
///
/// All rows are loaded or none. `FS_LOAD_ORDER` for a key that is not above those before it, and `FS_ABORTED` if `next`
/// has refused: the transaction goes on.
///
/// # Safety
/// Each pointer is null or of its type. `next` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_load(
    table: *const fs_table,
    options: *const fs_load_options,
    next: fs_next_row,
    arg: *mut c_void,
    count: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, options) = unsafe { (object(table, "table")?, load(options)?) };
        let next = next.ok_or_else(|| null("next"))?;
        // SAFETY: as the caller promises.
        let loaded = table.inner.load(options, || unsafe { row(next, arg) })?;
        // SAFETY: as the caller promises.
        unsafe { store(count, loaded) };
        Ok(())
    })
}

type NextRow =
    unsafe extern "C" fn(*mut c_void, *mut *const c_void, *mut usize, *mut *const c_void, *mut usize) -> c_int;

/// Copies the next row of the program.
///
/// # Safety
/// `next` may be called with `arg`, and stores what the header says.
unsafe fn row(next: NextRow, arg: *mut c_void) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (mut key, mut value) = (ptr::null(), ptr::null());
    let (mut key_len, mut value_len) = (0, 0);
    // SAFETY: as the caller promises.
    match unsafe { next(arg, &raw mut key, &raw mut key_len, &raw mut value, &raw mut value_len) } {
        0 => {}
        end if end == Status::NotFound as c_int => return Ok(None),
        other => {
            let message = format!("the function of the rows to load has returned {other}");
            return Err(Fault::new(Status::Aborted, message));
        }
    }
    // SAFETY: as the caller promises.
    Ok(Some(unsafe { (bytes(key, key_len, "key")?.to_vec(), bytes(value, value_len, "value")?.to_vec()) }))
}

/// Returns the options of a load.
///
/// # Safety
/// As the header says of the struct.
unsafe fn load(options: *const fs_load_options) -> Result<LoadOptions> {
    // SAFETY: as the caller promises.
    let given = unsafe { copied(options, "options of a load") }?;
    Ok(match given.map_or(0, |given| given.fill_percent) {
        0 => LoadOptions::new(),
        // More than 255 is refused as 255 is.
        percent => LoadOptions::new().fill_percent(u8::try_from(percent).unwrap_or(u8::MAX)),
    })
}
