//! Options, as structs whose zero bytes mean the defaults.

use crate::guard::text;
use foreshore::{Durability, Isolation, Options, ReadOptions, TxnOptions};
use foreshore_handles::{Fault, Open, Result, Status, label, with_device, with_doublewrite, with_group_window};
use std::ffi::c_char;
use std::mem::size_of;
use std::ptr;
use std::time::Duration;

/// The database lives in memory, and is gone when it is closed.
pub const FS_OPEN_IN_MEMORY: u32 = 1;
/// The database must exist, was closed, and no byte of it changes.
pub const FS_OPEN_READ_ONLY: u32 = 2;
/// The database must exist.
pub const FS_OPEN_EXISTING: u32 = 4;

/// Isolation: serializable, the default.
pub const FS_SERIALIZABLE: u32 = 0;
/// Isolation: all reads are of one moment.
pub const FS_SNAPSHOT: u32 = 1;
/// Isolation: each read is of what is committed.
pub const FS_READ_COMMITTED: u32 = 2;

/// Durability: the commit survives power loss, the default.
pub const FS_DURABLE: u32 = 0;
/// Durability: the commit is in the log buffer, and survives power loss soon after.
pub const FS_RELAXED: u32 = 1;

/// No group-commit window: a group is written as soon as the device is free.
pub const FS_NO_WINDOW: u64 = u64::MAX;

/// Options of a database. Set `struct_size` to `sizeof(fs_options)`, and leave zero what is to have its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fs_options {
    /// `sizeof(fs_options)`.
    pub struct_size: usize,
    /// `FS_OPEN_IN_MEMORY`, `FS_OPEN_READ_ONLY`, `FS_OPEN_EXISTING`.
    pub flags: u32,
    /// Transactions that may run at once, up to 1024, the default.
    pub max_transactions: u32,
    /// Bytes of memory; 1 GiB by default.
    pub memory_limit: u64,
    /// Milliseconds that a transaction waits for a lock; 10000 by default.
    pub lock_timeout_ms: u64,
    /// Bytes of log that a restart reads; 512 MiB by default.
    pub log_budget: u64,
    /// Bytes of a temporary file for undo; none by default.
    pub spill_limit: u64,
    /// Milliseconds that a restart after a crash may take: the log that it reads follows from that, up to `log_budget`.
    /// By default only `log_budget` bounds it.
    pub restart_target_ms: u64,
    /// The directory to which the log is copied before it is reused, for `fs_restore`; null for none.
    pub archive: *const c_char,
    /// Bytes that the archive may have, beyond which its oldest files are removed. No limit by default.
    pub archive_limit: u64,
    /// Milliseconds after which a snapshot is cancelled, with `FS_SNAPSHOT_TOO_OLD`. No limit by default.
    pub snapshot_max_age_ms: u64,
    /// Bytes of old versions that one snapshot may keep. No limit by default.
    pub snapshot_max_bytes: u64,
    /// Milliseconds after which a transaction is rolled back, with `FS_TRANSACTION_TOO_OLD`. No limit by default.
    pub transaction_max_age_ms: u64,
    /// How the files are written: `direct`, past the page cache, `buffered`, through it, or `auto`. Null for `auto`,
    /// which is `direct` where the file system allows it. With `null` or `delay:TIME` nothing is on a disk.
    pub device: *const c_char,
    /// Whether pages are written to the doublewrite file first, so that power loss leaves none torn: `auto`, `on` or
    /// `off`. Null for `auto`, which writes them there unless the device writes pages whole. With `off` a torn page may
    /// lose rows.
    pub doublewrite: *const c_char,
    /// Microseconds that a group of commits may wait for further ones; 50 by default. `FS_NO_WINDOW` for none.
    pub group_window_us: u64,
}

/// Options of a transaction. Set `struct_size` to `sizeof(fs_tx_options)`, and leave zero what is to have its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fs_tx_options {
    /// `sizeof(fs_tx_options)`.
    pub struct_size: usize,
    /// `FS_SERIALIZABLE`, `FS_SNAPSHOT` or `FS_READ_COMMITTED`.
    pub isolation: u32,
    /// `FS_DURABLE` or `FS_RELAXED`.
    pub durability: u32,
    /// Milliseconds that the transaction waits for a lock; those of the database by default.
    pub lock_timeout_ms: u64,
    /// Milliseconds after which no wait goes on, and `fs_run` runs the function no more. By default no wait has such an
    /// end, and `fs_run` stops after three lock timeouts.
    pub deadline_ms: u64,
    /// A name that errors of other transactions show, or null. A process may use 1024 names.
    pub label: *const c_char,
    /// For `fs_begin_read`: not zero to read commits that are not durable yet, too.
    pub latest: u32,
    /// Milliseconds after which its snapshot is cancelled; those of the database by default.
    pub snapshot_max_age_ms: u64,
    /// Bytes of old versions that its snapshot may keep; those of the database by default.
    pub snapshot_max_bytes: u64,
}

/// Copies a struct of options of the size that the caller knows.
///
/// # Safety
/// `options` is null, or points to a struct of the size that its first field says.
pub(crate) unsafe fn copied<T: Copy>(options: *const T, what: &str) -> Result<Option<T>> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: the first field is the size, as the caller promises.
    let size = unsafe { ptr::read_unaligned(options.cast::<usize>()) };
    if size < size_of::<usize>() {
        return Err(Fault::new(Status::Invalid, format!("`struct_size` of the {what} is {size}, not their size")));
    }
    let mut copy = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have as many bytes. All fields are numbers and pointers, so zero bytes are a value of each.
    Ok(Some(unsafe {
        ptr::copy_nonoverlapping(options.cast::<u8>(), copy.as_mut_ptr().cast(), size.min(size_of::<T>()));
        copy.assume_init()
    }))
}

/// Returns the options, how to open, and whether the database is in memory.
///
/// # Safety
/// As the header says of the struct.
pub(crate) unsafe fn database(options: *const fs_options) -> Result<(Options, Open, bool)> {
    // SAFETY: as the caller promises.
    let given = unsafe { copied(options, "options of a database") }?;
    let Some(given) = given else { return Ok((Options::new(), Open::OrCreate, false)) };
    let is_in_memory = given.flags & FS_OPEN_IN_MEMORY != 0;
    let how = match given.flags & !FS_OPEN_IN_MEMORY {
        0 => Open::OrCreate,
        FS_OPEN_EXISTING => Open::Existing,
        FS_OPEN_READ_ONLY => Open::ReadOnly,
        flags => return Err(Fault::new(Status::Invalid, format!("`flags` {flags} are unknown or exclude each other"))),
    };
    let mut options = if is_in_memory { Options::in_memory() } else { Options::new() };
    if given.max_transactions > 0 {
        options = options.max_transactions(given.max_transactions as usize);
    }
    if given.memory_limit > 0 {
        options = options.memory_limit(given.memory_limit);
    }
    if given.lock_timeout_ms > 0 {
        options = options.lock_timeout(Duration::from_millis(given.lock_timeout_ms));
    }
    if given.log_budget > 0 {
        options = options.log_budget(given.log_budget);
    }
    if given.restart_target_ms > 0 {
        options = options.restart_target(Duration::from_millis(given.restart_target_ms));
    }
    if !given.archive.is_null() {
        // SAFETY: as the caller promises.
        options = options.archive(unsafe { text(given.archive, "archive") }?).archive_limit(given.archive_limit);
    }
    if given.snapshot_max_age_ms > 0 {
        options = options.snapshot_max_age(Duration::from_millis(given.snapshot_max_age_ms));
    }
    if given.snapshot_max_bytes > 0 {
        options = options.snapshot_max_bytes(given.snapshot_max_bytes);
    }
    if given.transaction_max_age_ms > 0 {
        options = options.transaction_max_age(Duration::from_millis(given.transaction_max_age_ms));
    }
    // SAFETY: as the caller promises.
    let options = unsafe { written(options.spill_limit(given.spill_limit), &given) }?;
    Ok((options, how, is_in_memory))
}

/// Sets how the files are written.
///
/// # Safety
/// As the header says of the struct.
unsafe fn written(mut options: Options, given: &fs_options) -> Result<Options> {
    if !given.device.is_null() {
        // SAFETY: as the caller promises.
        options = with_device(options, unsafe { text(given.device, "device") }?)?;
    }
    if !given.doublewrite.is_null() {
        // SAFETY: as the caller promises.
        options = with_doublewrite(options, unsafe { text(given.doublewrite, "doublewrite") }?)?;
    }
    Ok(match given.group_window_us {
        0 => options,
        FS_NO_WINDOW => with_group_window(options, Duration::ZERO),
        window => with_group_window(options, Duration::from_micros(window)),
    })
}

/// Returns the options of a transaction.
///
/// # Safety
/// As the header says of the struct.
pub(crate) unsafe fn transaction(options: *const fs_tx_options) -> Result<TxnOptions> {
    // SAFETY: as the caller promises.
    let given = unsafe { copied(options, "options of a transaction") }?;
    let Some(given) = given else { return Ok(TxnOptions::new()) };
    let isolation = match given.isolation {
        FS_SERIALIZABLE => Isolation::Serializable,
        FS_SNAPSHOT => Isolation::Snapshot,
        FS_READ_COMMITTED => Isolation::ReadCommitted,
        other => return Err(Fault::new(Status::Invalid, format!("there is no isolation {other}"))),
    };
    let durability = match given.durability {
        FS_DURABLE => Durability::Durable,
        FS_RELAXED => Durability::Relaxed,
        other => return Err(Fault::new(Status::Invalid, format!("there is no durability {other}"))),
    };
    let mut options = TxnOptions::new().isolation(isolation).durability(durability);
    if given.lock_timeout_ms > 0 {
        options = options.lock_timeout(Duration::from_millis(given.lock_timeout_ms));
    }
    if given.deadline_ms > 0 {
        options = options.deadline(Duration::from_millis(given.deadline_ms));
    }
    if given.snapshot_max_age_ms > 0 {
        options = options.snapshot_max_age(Duration::from_millis(given.snapshot_max_age_ms));
    }
    if given.snapshot_max_bytes > 0 {
        options = options.snapshot_max_bytes(given.snapshot_max_bytes);
    }
    // SAFETY: as the caller promises.
    Ok(options.label(unsafe { label_of(given.label) }?))
}

/// Returns the options of a transaction that only reads.
///
/// # Safety
/// As the header says of the struct.
pub(crate) unsafe fn reader(options: *const fs_tx_options) -> Result<ReadOptions> {
    // SAFETY: as the caller promises.
    let given = unsafe { copied(options, "options of a transaction") }?;
    let Some(given) = given else { return Ok(ReadOptions::new()) };
    // SAFETY: as the caller promises.
    let mut options = ReadOptions::new().label(unsafe { label_of(given.label) }?);
    if given.snapshot_max_age_ms > 0 {
        options = options.snapshot_max_age(Duration::from_millis(given.snapshot_max_age_ms));
    }
    if given.snapshot_max_bytes > 0 {
        options = options.snapshot_max_bytes(given.snapshot_max_bytes);
    }
    Ok(if given.latest != 0 { options.latest() } else { options })
}

/// # Safety
/// `pointer` is null or a text.
unsafe fn label_of(pointer: *const c_char) -> Result<&'static str> {
    if pointer.is_null() {
        return Ok("");
    }
    // SAFETY: as the caller promises.
    label(unsafe { text(pointer, "label") }?)
}
