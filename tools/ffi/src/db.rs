//! Databases.

use crate::buffer::fs_buffer;
use crate::guard::{free, guard, hand_out, object, object_mut, text};
use crate::options::{self, fs_options};
use foreshore_handles::{Database, Status, stats_json};
use std::ffi::{CStr, c_char};
use std::time::Duration;

/// An open database. Any thread may use it, and several at once.
pub struct fs_db {
    pub(crate) inner: Database,
}

/// What a check has found.
#[repr(C)]
pub struct fs_report {
    /// Tables.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Pages in use.
    pub pages: u64,
    /// Damaged pages.
    pub damaged: u64,
}

/// Opens the database in the directory `path`, and creates it if there is none. Close and free it with `fs_db_free`.
///
/// `options` may be null. `path` may be null with `FS_OPEN_IN_MEMORY`.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_open(path: *const c_char, options: *const fs_options, db: *mut *mut fs_db) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { object_mut(db, "db") }?;
        // SAFETY: as the caller promises.
        let (options, how, is_in_memory) = unsafe { options::database(options) }?;
        let path = if path.is_null() && is_in_memory {
            "memory"
        } else {
            // SAFETY: as the caller promises.
            unsafe { text(path, "path") }?
        };
        hand_out(out, fs_db { inner: Database::open(&options, path, how)? });
        Ok(())
    })
}

/// Closes the database: refuses new transactions, waits at most `wait_ms` for running ones, and releases the directory.
/// What needs the database returns `FS_CLOSED` afterwards, of a new transaction its first operation. The handle stays
/// until `fs_db_free`.
///
/// # Safety
/// `db` is null or a database that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_close(db: *const fs_db, wait_ms: u64) -> Status {
    // SAFETY: as the caller promises.
    guard(|| Ok(unsafe { object(db, "db") }?.inner.get()?.close(Duration::from_millis(wait_ms))?))
}

/// Frees a database, and closes it first if it is open: transactions that run are rolled back. Null is allowed. In the
/// child of a fork the memory stays in use and nothing is closed.
///
/// # Safety
/// `db` is null or a database that was not freed, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_db_free(db: *mut fs_db) {
    // SAFETY: as the caller promises.
    unsafe { free(db) };
}

/// Waits until every commit before the call is durable, relaxed ones too.
///
/// # Safety
/// `db` is null or a database that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_sync(db: *const fs_db) -> Status {
    // SAFETY: as the caller promises.
    guard(|| Ok(unsafe { object(db, "db") }?.inner.get()?.sync()?))
}

/// Takes a checkpoint: a restart then has almost nothing to redo.
///
/// # Safety
/// `db` is null or a database that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_checkpoint(db: *const fs_db) -> Status {
    // SAFETY: as the caller promises.
    guard(|| Ok(unsafe { object(db, "db") }?.inner.get()?.checkpoint()?))
}

/// Makes the file of the database as short as its rows allow, while others read and write. Stores the bytes by which it
/// is shorter, unless `truncated` is null. It is for a database of which much was removed.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_compact(db: *const fs_db, truncated: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let done = unsafe { object(db, "db") }?.inner.get()?.compact()?;
        // SAFETY: as the caller promises.
        if let Some(truncated) = unsafe { truncated.as_mut() } {
            *truncated = done.truncated;
        }
        Ok(())
    })
}

/// Stores the number of the newest durable commit. All commits before it are durable, too.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_durable_csn(db: *const fs_db, csn: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, csn) = unsafe { (object(db, "db")?, object_mut(csn, "csn")?) };
        *csn = db.inner.get()?.durable_csn().0;
        Ok(())
    })
}

/// Checks every page and every table while the database is in use. `FS_CORRUPTED` if a page is damaged; `report`, which
/// may be null, is filled in all the same.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_check(db: *const fs_db, report: *mut fs_report) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let db = unsafe { object(db, "db") }?.inner.get()?;
        let found = db.examine()?;
        // SAFETY: as the caller promises.
        if let Some(report) = unsafe { report.as_mut() } {
            let damaged = found.damaged.len() as u64;
            *report = fs_report { tables: found.tables, rows: found.rows, pages: found.pages, damaged };
        }
        if let Some(page) = found.damaged.first() {
            let message = format!("{} of {} pages are damaged, the first: {page:?}", found.damaged.len(), found.pages);
            return Err(foreshore_handles::Fault::new(Status::Corrupted, message));
        }
        Ok(())
    })
}

/// Stores the counters of the database as a JSON object, with an object of numbers for each layer, and some numbers of
/// the whole.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_stats_json(db: *const fs_db, json: *mut fs_buffer) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, json) = unsafe { (object(db, "db")?, object_mut(json, "json")?) };
        json.set(stats_json(&db.inner.get()?.stats()).as_bytes());
        Ok(())
    })
}

/// Returns not zero if the same transaction may succeed when it is run again.
#[unsafe(no_mangle)]
pub extern "C" fn fs_is_retryable(status: i32) -> i32 {
    i32::from((20..40).contains(&status))
}

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn fs_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}
