//! Options of a database, chosen when it is opened, and of a transaction, chosen when it begins.

mod lab;
mod layers;
mod transaction;

pub use lab::LabOptions;
pub use transaction::{Durability, ReadOptions, TxnOptions};

use foreshore_base::InvalidOption;
use foreshore_buffer::DoublewriteKind;
use foreshore_io::{Device, Mem};
use foreshore_txn::SnapshotLimits;
use foreshore_wal::Group;
use std::path::{Path, PathBuf};
use std::{sync::Arc, time::Duration};

/// Smallest log segment, in bytes.
const MIN_SEGMENT: u64 = 64 << 10;
/// Largest log segment, in bytes.
const MAX_SEGMENT: u64 = 1 << 30;
/// Segments that the least log budget has.
const MIN_SEGMENTS: u64 = 4;
/// Longest spill file for undo, in bytes.
const MAX_SPILL: u64 = 1 << 40;
/// Smallest limit of bytes for a snapshot: a chunk of undo.
const MIN_SNAPSHOT: u64 = 8 << 10;
/// Largest value of `max_transactions`: as many as one checkpoint record lists.
const MAX_TRANSACTIONS: usize = foreshore_recovery::MAX_ACTIVE;

/// How to open a database.
///
/// | option | default |
/// |---|---|
/// | [`memory_limit`](Self::memory_limit) | 1 GiB |
/// | [`device`](Self::device) | [`Device::Auto`] |
/// | [`group`](Self::group) | a window of 50 us |
/// | [`log_budget`](Self::log_budget) | 512 MiB |
/// | [`restart_target`](Self::restart_target) | none |
/// | [`doublewrite`](Self::doublewrite) | [`DoublewriteKind::Auto`] |
/// | [`lock_timeout`](Self::lock_timeout) | 10 s |
/// | [`spill_limit`](Self::spill_limit) | none |
/// | [`snapshot_max_age`](Self::snapshot_max_age) | none |
/// | [`snapshot_max_bytes`](Self::snapshot_max_bytes) | none |
/// | [`transaction_max_age`](Self::transaction_max_age) | none |
/// | [`max_transactions`](Self::max_transactions) | 1024 |
/// | [`archive`](Self::archive) | none |
/// | [`archive_limit`](Self::archive_limit) | none |
///
/// ```
/// # use foreshore::{Device, DoublewriteKind, Error, Group, Options};
/// # use std::time::Duration;
/// let options = Options::new()
///     .memory_limit(64 << 20)
///     .device(Device::Null)
///     .group(Group::Greedy)
///     .log_budget(256 << 20)
///     .restart_target(Duration::from_secs(5))
///     .doublewrite(DoublewriteKind::Auto)
///     .lock_timeout(Duration::from_secs(2))
///     .spill_limit(1 << 30)
///     .snapshot_max_age(Duration::from_secs(3600))
///     .snapshot_max_bytes(256 << 20)
///     .transaction_max_age(Duration::from_secs(60))
///     .max_transactions(200);
/// let db = options.open("/db")?;
/// assert_eq!(db.stats().memory.limit, 64 << 20);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    memory_limit: u64,
    device: Device,
    group: Group,
    restarts: Restarts,
    doublewrite: DoublewriteKind,
    lock_timeout: Duration,
    spill_limit: u64,
    snapshot_limits: SnapshotLimits,
    transaction_max_age: Option<Duration>,
    max_transactions: usize,
    archive: ArchiveFolder,
    lab: LabOptions,
}

/// What a restart may have to redo, and how long it may take.
#[derive(Clone, Copy, Debug)]
struct Restarts {
    log_budget: u64,
    target: Option<Duration>,
}

/// Where the log is archived.
#[derive(Clone, Debug, Default)]
struct ArchiveFolder {
    dir: Option<PathBuf>,
    /// The most bytes in it; 0 for no limit.
    limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the defaults of the table above.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory_limit: 1 << 30,
            device: Device::Auto,
            group: Group::default(),
            restarts: Restarts { log_budget: 512 << 20, target: None },
            doublewrite: DoublewriteKind::default(),
            lock_timeout: Duration::from_secs(10),
            spill_limit: 0,
            snapshot_limits: SnapshotLimits::NONE,
            transaction_max_age: None,
            max_transactions: 1024,
            archive: ArchiveFolder::default(),
            lab: LabOptions::default(),
        }
    }

    /// Returns the defaults for a database in memory: nothing is read from a disk or written to one.
    ///
    /// Each call makes a separate file system. A database can be opened again by its path as long as these options, or
    /// a clone of them, exist.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Options, TableDef};
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let options = Options::in_memory();
    /// options.open("/db")?.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// // Closed and opened again.
    /// assert_eq!(options.open("/db")?.read().open(STOCK)?.get(1)?, Some(10));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new().lab(|lab| lab.fs = Some(Arc::new(Mem::null())))
    }

    /// Sets the bytes of memory that the engine may use, at least 4 MiB. Most of it is the buffer pool;
    /// [`Stats::memory`](crate::Stats::memory) shows the shares.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Sets the storage of the files: disk or memory, and how it is written.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets the policy of group commit: when waiting commits are written to the log together.
    ///
    /// [`Group::Greedy`] writes as soon as the device is free. [`Group::Window`] waits for further commits, no longer
    /// than its bound and only while more of them are likely. It needs fewer writes, and less processor time per
    /// commit.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    /// Sets how many bytes of log a restart may have to read to redo pages, at least 64 MiB. The effective budget is
    /// the smaller of this and half the memory limit.
    ///
    /// Writers are throttled when page writes do not keep up with the log. An open transaction retains its log even
    /// beyond this budget.
    #[must_use]
    pub fn log_budget(mut self, bytes: u64) -> Self {
        self.restarts.log_budget = bytes;
        self
    }

    /// Sets how long a restart after a crash may take, above zero. The log budget is then what a restart redoes in that
    /// time. It is at most [`log_budget`](Self::log_budget) and half the memory limit, and at least four segments of
    /// the log, 64 MiB.
    ///
    /// The speed is measured at restarts after a crash, and is stored in the database. A restart counts if it redid a
    /// quarter of a budget or more. It halves the speed at most, or raises it by half. Until one has been measured,
    /// 32 MiB a second are assumed. [`CheckpointStats`](crate::CheckpointStats) has the speed and the budget in effect.
    ///
    /// The undo of open transactions comes on top of the time. So does log that is kept for open and prepared
    /// transactions, for the archive or for a backup.
    ///
    /// ```
    /// # use foreshore::{Error, Options};
    /// # use std::time::Duration;
    /// let options = Options::in_memory().restart_target(Duration::from_secs(4));
    /// assert_eq!(options.open("/db")?.stats().checkpoint.budget, 4 * (32 << 20));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn restart_target(mut self, time: Duration) -> Self {
        self.restarts.target = Some(time);
        self
    }

    /// Sets whether pages are written to the doublewrite file first, so that power loss leaves none torn.
    ///
    /// [`DoublewriteKind::Off`] disables that protection on a device that may tear pages: see [`DoublewriteKind`].
    /// [`Stats::pool`](crate::Stats::pool) says what the device offers, and what is in use.
    #[must_use]
    pub fn doublewrite(mut self, kind: DoublewriteKind) -> Self {
        self.doublewrite = kind;
        self
    }

    /// Sets how long a transaction waits for a lock, unless its [`TxnOptions`] say otherwise. Deadlocks are
    /// detected at once, whatever the timeout.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets the largest size of the spill file in bytes, at most 1 TiB; 0, the default, means no file.
    ///
    /// The memory for undo is an eighth of the memory limit. When it is full, undo moves to this temporary file in the
    /// directory: old versions first, then changes of running transactions that have no savepoint in use. At
    /// most 32 times the undo memory is used.
    ///
    /// - The file is unlinked as soon as it is open. It never shrinks while the database is open; its free space is
    ///   reused.
    /// - While the file cannot be written, undo stays in memory. A writer that finds no undo space then gets the
    ///   error of the failed write.
    /// - A rollback that cannot read its undo from the file stops the database.
    /// - An open scan that has read old versions from the file keeps up to 5 MiB of them, and uses 4.5 MiB more while
    ///   it reads. The memory limit counts neither.
    #[must_use]
    pub fn spill_limit(mut self, bytes: u64) -> Self {
        self.spill_limit = bytes;
        self
    }

    /// Sets the largest age of a snapshot, above zero.
    ///
    /// An older snapshot is cancelled when a writer or background work next computes which old versions are needed. Its
    /// reader then gets [`SnapshotTooOld`](crate::Error::SnapshotTooOld). While no transaction writes, it may stay.
    /// [`Stats::oldest_snapshot`](crate::Stats::oldest_snapshot) shows the oldest by its label. A transaction may have
    /// a limit of its own: see [`TxnOptions`](crate::TxnOptions::snapshot_max_age) and
    /// [`ReadOptions`](crate::ReadOptions::snapshot_max_age).
    #[must_use]
    pub fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_limits.max_age = age;
        self
    }

    /// Sets how many bytes may be kept for the oldest snapshot alone, at least 8 KiB.
    ///
    /// The bytes are those of old versions, in chunks of 8 KiB, and of the pages of tables dropped since the snapshot.
    /// [`Stats::oldest_snapshot`](crate::Stats::oldest_snapshot) shows both. A snapshot above the limit is cancelled at
    /// the same moments as with [`snapshot_max_age`](Self::snapshot_max_age), and its reader gets the same error. A
    /// transaction may have a limit of its own.
    #[must_use]
    pub fn snapshot_max_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_limits.max_bytes = bytes;
        self
    }

    /// Sets the largest age of a transaction, above zero.
    ///
    /// An older transaction is rolled back, and its operations and its commit return
    /// [`TransactionTooOld`](crate::Error::TransactionTooOld). A background thread rolls back those that are idle,
    /// which releases their locks, log and old versions. An operation in progress is not interrupted; the next one
    /// returns the error.
    ///
    /// Prepared transactions, read transactions, checks and background work have no such limit.
    /// [`Stats::oldest_transaction`](crate::Stats::oldest_transaction) shows the transaction that keeps the most log.
    #[must_use]
    pub fn transaction_max_age(mut self, age: Duration) -> Self {
        self.transaction_max_age = Some(age);
        self
    }

    /// Sets how many transactions may run at once, from 1 to 1024.
    #[must_use]
    pub fn max_transactions(mut self, count: usize) -> Self {
        self.max_transactions = count;
        self
    }

    /// Sets a directory to which the log is copied before its segments are reused, for [`restore`](crate::restore). It
    /// is created if it is missing. It may be on another device, and holds the archive of this database alone.
    ///
    /// - A segment is copied when it is full. The end of the log is copied once a minute, at the close, and by
    ///   [`Db::archive`](crate::Db::archive).
    /// - While the directory cannot be written, the log is kept, up to twice its budget. Then, or when writers find the
    ///   disk full, the oldest log is reused, and the archive has a gap.
    /// - A device that takes 20 seconds for one file counts as one that cannot be written.
    /// - A damaged file of the archive does not prevent an open.
    ///
    /// [`Stats::archive`](crate::Stats::archive) shows failures, gaps and damaged files.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("foreshore-doc-options-{}", std::process::id()));
    /// # std::fs::create_dir(&dir).unwrap();
    /// let options = foreshore::Options::new().archive(dir.join("archive")).archive_limit(8 << 30);
    /// assert!(options.open(dir.join("db"))?.stats().archive.is_some());
    /// # std::fs::remove_dir_all(dir).unwrap();
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    #[must_use]
    pub fn archive(mut self, dir: impl AsRef<Path>) -> Self {
        self.archive.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the largest size of the archive in bytes; 0, the default, means no limit. When it is exceeded, the oldest
    /// files are removed, damaged ones too; [`ArchiveStats::dropped_upto`](crate::ArchiveStats::dropped_upto) is the
    /// LSN up to which log was removed. The newest file always stays.
    #[must_use]
    pub fn archive_limit(mut self, bytes: u64) -> Self {
        self.archive.limit = bytes;
        self
    }

    /// Sets what only the lab, the simulator and tests choose.
    #[doc(hidden)]
    #[must_use]
    pub fn lab(mut self, set: impl FnOnce(&mut LabOptions)) -> Self {
        set(&mut self.lab);
        self
    }

    /// Refuses options out of range.
    pub(crate) fn check(&self) -> Result<(), InvalidOption> {
        self.shares()?;
        check_limits(self.snapshot_limits)?;
        if self.transaction_max_age.is_some_and(|age| age.is_zero()) {
            return Err(out_of_range("transaction_max_age", 0, "above zero"));
        }
        if !self.lab.segment_bytes.is_power_of_two() || !(MIN_SEGMENT..=MAX_SEGMENT).contains(&self.lab.segment_bytes) {
            return Err(out_of_range("segment_bytes", self.lab.segment_bytes, "a power of two from 64 KiB to 1 GiB"));
        }
        if self.spill_limit > MAX_SPILL {
            return Err(out_of_range("spill_limit", self.spill_limit, "at most 1 TiB"));
        }
        if self.restarts.target.is_some_and(|time| time.is_zero()) {
            return Err(out_of_range("restart_target", 0, "above zero"));
        }
        if self.restarts.log_budget < MIN_SEGMENTS * self.lab.segment_bytes {
            let expected = format!("at least {} (four segments)", MIN_SEGMENTS * self.lab.segment_bytes);
            return Err(out_of_range("log_budget", self.restarts.log_budget, &expected));
        }
        if !(1..=MAX_TRANSACTIONS).contains(&self.max_transactions) {
            return Err(out_of_range("max_transactions", self.max_transactions as u64, "1 to 1024"));
        }
        Ok(())
    }
}

/// Refuses snapshot limits that are out of range: the database's, or those of one transaction.
pub(crate) fn check_limits(limits: SnapshotLimits) -> Result<(), InvalidOption> {
    if limits.max_age.is_zero() {
        return Err(out_of_range("snapshot_max_age", 0, "above zero"));
    }
    if limits.max_bytes < MIN_SNAPSHOT {
        return Err(out_of_range("snapshot_max_bytes", limits.max_bytes, "at least 8 KiB"));
    }
    Ok(())
}

fn out_of_range(name: &'static str, value: u64, expected: &str) -> InvalidOption {
    InvalidOption { name, value: value.to_string(), expected: expected.to_owned() }
}
