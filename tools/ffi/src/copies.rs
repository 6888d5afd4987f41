//! Copies of a database, their return, and repair.

use crate::db::fs_db;
use crate::guard::{elements, guard, object, store, text};
use crate::options::copied;
use foreshore::{Backup, Lsn, Restore, Restored, Timestamp, Until, repair, restore};
use foreshore_handles::{Fault, Result, Status};
use std::ffi::c_char;

/// Restores up to the end of the archive, or of the last backup without an archive.
pub const FS_UNTIL_END: u32 = 0;
/// Restores up to `until_lsn`.
pub const FS_UNTIL_LSN: u32 = 1;
/// Restores up to `until_secs` and `until_nanos`.
pub const FS_UNTIL_TIME: u32 = 2;

/// What a backup holds.
#[repr(C)]
pub struct fs_backup_info {
    /// All commits with a number up to this one are in the copy.
    pub csn: u64,
    /// Pages of the data file.
    pub pages: u64,
    /// Bytes of log.
    pub log_bytes: u64,
    /// Pages that are set aside as damaged, in the copy too.
    pub quarantined: u64,
}

/// Options of a restore. Set `struct_size` to `sizeof(fs_restore_options)`, and leave zero what is to have its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fs_restore_options {
    /// `sizeof(fs_restore_options)`.
    pub struct_size: usize,
    /// The directory to which the log was archived, or null.
    pub archive: *const c_char,
    /// The directories of the increments of the backup, in their order. Null if there are none.
    pub increments: *const *const c_char,
    /// Their number.
    pub increment_count: usize,
    /// `FS_UNTIL_END`, `FS_UNTIL_LSN` or `FS_UNTIL_TIME`.
    pub until: u32,
    /// Nanoseconds of the time, below 1000000000.
    pub until_nanos: u32,
    /// The position: commits whose records have LSNs up to this one, as `fs_archive` returns it.
    pub until_lsn: u64,
    /// Seconds since 1970: commits that were written to the log by then.
    pub until_secs: i64,
}

/// What was restored, or would be.
#[repr(C)]
pub struct fs_restored {
    /// The position: the commits whose records have LSNs up to it, and no others.
    pub lsn: u64,
    /// The position as a number of commits.
    pub csn: u64,
    /// The end of the last backup: the first position that can be restored from it.
    pub backup_lsn: u64,
    /// Pages of the data file.
    pub pages: u64,
    /// Bytes of log.
    pub log_bytes: u64,
    /// Pages that are set aside as damaged. What they held is lost.
    pub quarantined: u64,
    /// When the last group of the log was written, in seconds since 1970. Zero if the log does not say.
    pub time_secs: i64,
    /// Nanoseconds of that time, below 1000000000.
    pub time_nanos: u32,
}

/// What a repair has done, or would do.
#[repr(C)]
pub struct fs_repaired {
    /// Pages of the database.
    pub pages: u64,
    /// Damaged pages that were repaired.
    pub repaired: u64,
    /// Damaged pages that were not.
    pub unrepaired: u64,
}

/// Copies the database to the directory `dir` while it is in use. The copy can be opened. `info` may be null.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_backup(db: *const fs_db, dir: *const c_char, info: *mut fs_backup_info) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, dir) = unsafe { (object(db, "db")?, text(dir, "dir")?) };
        let done = db.inner.get()?.backup(dir)?;
        // SAFETY: as the caller promises.
        unsafe { tell(info, &done) };
        Ok(())
    })
}

/// Copies to the directory `dir` what has changed since the backup in the directory `base`. `fs_restore` takes it as an
/// increment of that one. `info` may be null. `FS_BAD_BACKUP` if the database does not know the base.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_backup_since(
    db: *const fs_db,
    dir: *const c_char,
    base: *const c_char,
    info: *mut fs_backup_info,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, dir, base) = unsafe { (object(db, "db")?, text(dir, "dir")?, text(base, "base")?) };
        let done = db.inner.get()?.backup_since(dir, base)?;
        // SAFETY: as the caller promises.
        unsafe { tell(info, &done) };
        Ok(())
    })
}

/// Copies the durable log to the archive, and stores the LSN up to which it is archived, unless `lsn` is null. It is
/// the position of all commits that were durable before the call. Zero without an archive.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_archive(db: *const fs_db, lsn: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let upto = unsafe { object(db, "db") }?.inner.get()?.archive()?;
        // SAFETY: as the caller promises.
        unsafe { store(lsn, upto.0) };
        Ok(())
    })
}

/// Restores the backup in the directory `backup`, its increments and the log of an archive to the directory `target`,
/// which is empty or absent. It is a database with another id: give it an archive of its own. Backup and archive are
/// only read. `options` and `restored` may be null. `FS_BAD_BACKUP` if log is missing or the position cannot be
/// reached.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_restore(
    backup: *const c_char,
    target: *const c_char,
    options: *const fs_restore_options,
    restored: *mut fs_restored,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (backup, target) = unsafe { (text(backup, "backup")?, text(target, "target")?) };
        // SAFETY: as the caller promises.
        let done = unsafe { prepared(backup, target, options) }?.run()?;
        // SAFETY: as the caller promises.
        unsafe { tell_restored(restored, &done) };
        Ok(())
    })
}

/// Reads and checks all that `fs_restore` would read, and writes nothing.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_verify_backup(
    backup: *const c_char,
    options: *const fs_restore_options,
    restored: *mut fs_restored,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let backup = unsafe { text(backup, "backup") }?;
        // SAFETY: as the caller promises.
        let done = unsafe { prepared(backup, "", options) }?.verify()?;
        // SAFETY: as the caller promises.
        unsafe { tell_restored(restored, &done) };
        Ok(())
    })
}

/// Repairs damaged pages of the closed database in the directory `dir` from its backup and the log since, of which an
/// archive, or null, may have a part. If `dry_run` is not zero, nothing is written. `repaired` may be null.
/// `FS_CORRUPTED` if a page stays damaged, which the message explains; `repaired` is filled in all the same.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_repair(
    dir: *const c_char,
    backup: *const c_char,
    archive: *const c_char,
    dry_run: i32,
    repaired: *mut fs_repaired,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let mut work = unsafe { repair(text(dir, "dir")?, text(backup, "backup")?) };
        if !archive.is_null() {
            // SAFETY: as the caller promises.
            work = work.archive(unsafe { text(archive, "archive") }?);
        }
        let done = if dry_run == 0 { work.run() } else { work.dry_run() }?;
        // SAFETY: as the caller promises.
        if let Some(out) = unsafe { repaired.as_mut() } {
            let (repaired, unrepaired) = (done.repaired.len() as u64, done.unrepaired.len() as u64);
            *out = fs_repaired { pages: done.pages, repaired, unrepaired };
        }
        let Some(page) = done.unrepaired.first() else { return Ok(()) };
        let count = done.unrepaired.len();
        Err(Fault::new(
            Status::Corrupted,
            format!("{count} pages stay damaged, the first: {:?}: {}", page.page, page.why),
        ))
    })
}

/// # Safety
/// `info` is null or of its type.
unsafe fn tell(info: *mut fs_backup_info, done: &Backup) {
    // SAFETY: as the caller promises.
    if let Some(info) = unsafe { info.as_mut() } {
        let (csn, pages) = (done.csn.0, done.pages);
        *info = fs_backup_info { csn, pages, log_bytes: done.log_bytes, quarantined: done.quarantined };
    }
}

/// # Safety
/// `restored` is null or of its type.
unsafe fn tell_restored(restored: *mut fs_restored, done: &Restored) {
    // SAFETY: as the caller promises.
    if let Some(restored) = unsafe { restored.as_mut() } {
        *restored = fs_restored {
            lsn: done.lsn.0,
            csn: done.csn.0,
            backup_lsn: done.backup_lsn.0,
            pages: done.pages,
            log_bytes: done.log_bytes,
            quarantined: done.quarantined,
            time_secs: done.time.map_or(0, |time| time.secs()),
            time_nanos: done.time.map_or(0, |time| time.nanos()),
        };
    }
}

/// Returns the restore that the options describe.
///
/// # Safety
/// As the header says of the struct.
unsafe fn prepared(backup: &str, target: &str, options: *const fs_restore_options) -> Result<Restore> {
    let mut work = restore(backup, target);
    // SAFETY: as the caller promises.
    let Some(given) = (unsafe { copied(options, "options of a restore") })? else { return Ok(work) };
    if !given.archive.is_null() {
        // SAFETY: as the caller promises.
        work = work.archive(unsafe { text(given.archive, "archive") }?);
    }
    // SAFETY: as the caller promises.
    for &increment in unsafe { elements(given.increments, given.increment_count, "increments") }? {
        // SAFETY: as the caller promises.
        work = work.increment(unsafe { text(increment, "increment") }?);
    }
    let until = match given.until {
        FS_UNTIL_END => Until::End,
        FS_UNTIL_LSN => Until::Lsn(Lsn(given.until_lsn)),
        FS_UNTIL_TIME => match Timestamp::new(given.until_secs, given.until_nanos) {
            Some(time) => Until::Time(time),
            None => {
                return Err(Fault::new(Status::Invalid, format!("`until_nanos` {} are a second", given.until_nanos)));
            }
        },
        other => return Err(Fault::new(Status::Invalid, format!("there is no end `until` {other} of a restore"))),
    };
    Ok(work.until(until))
}
