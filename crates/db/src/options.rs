//! What a caller may choose: for a database when it is opened, for a transaction when it begins.

mod transaction;

pub use transaction::{Durability, ReadOptions, TxnOptions};

use crate::memory::MemoryShares;
use crate::{Db, engine::Engine};
use foreshore_base::{Error, Result};
use foreshore_buffer::{DoublewriteKind, ReplacementKind};
use foreshore_io::{Device, Fs};
use foreshore_lock::IntentKind;
use foreshore_space::Growth;
use foreshore_txn::table::StatusKind;
use foreshore_txn::{EarlyRelease, SnapshotLimits};
use foreshore_wal::{BufferKind, GroupPolicy, WaitKind};
use std::{path::Path, sync::Arc, time::Duration};

/// Smallest log segment, in bytes.
const MIN_SEGMENT: u64 = 64 << 10;
/// Largest log segment, in bytes.
const MAX_SEGMENT: u64 = 1 << 30;
/// The longest file for undo.
const MAX_SPILL: u64 = 1 << 40;
/// The fewest bytes that a snapshot may be limited to: a chunk of undo.
const MIN_SNAPSHOT: u64 = 8 << 10;
/// Most transactions at once that may be asked for: what one checkpoint record lists.
const MAX_TRANSACTIONS: usize = foreshore_recovery::MAX_ACTIVE;

/// How to open a database.
///
/// | option | default |
/// |---|---|
/// | [`memory_limit`](Self::memory_limit) | 1 GiB |
/// | [`device`](Self::device) | `auto` |
/// | [`segment_bytes`](Self::segment_bytes) | 16 MiB |
/// | [`log_buffer`](Self::log_buffer) | `lanes` |
/// | [`log_wait`](Self::log_wait) | `park` |
/// | [`log_slots`](Self::log_slots) | 4 |
/// | [`group`](Self::group) | `greedy` |
/// | [`log_budget`](Self::log_budget) | 512 MiB |
/// | [`early_release`](Self::early_release) | `full` |
/// | [`replacement`](Self::replacement) | `s3c` |
/// | [`status`](Self::status) | `csnmap` |
/// | [`intents`](Self::intents) | `fastpath` |
/// | [`growth`](Self::growth) | `ahead` |
/// | [`doublewrite`](Self::doublewrite) | `auto` |
/// | [`lock_timeout`](Self::lock_timeout) | 10 s |
/// | [`undo_limit`](Self::undo_limit) | an eighth of the memory limit |
/// | [`spill_limit`](Self::spill_limit) | none |
/// | [`snapshot_max_age`](Self::snapshot_max_age) | none |
/// | [`snapshot_max_bytes`](Self::snapshot_max_bytes) | none |
/// | [`transaction_max_age`](Self::transaction_max_age) | none |
/// | [`max_transactions`](Self::max_transactions) | 1024 |
/// | [`profile`](Self::profile) | off |
/// | [`background`](Self::background) | on |
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) memory_limit: u64,
    pub(crate) device: Device,
    pub(crate) fs: Option<Arc<dyn Fs>>,
    pub(crate) segment_bytes: u64,
    pub(crate) log_buffer: BufferKind,
    pub(crate) log_wait: WaitKind,
    pub(crate) log_slots: usize,
    pub(crate) group: GroupPolicy,
    pub(crate) log_budget: u64,
    pub(crate) early_release: EarlyRelease,
    pub(crate) replacement: ReplacementKind,
    pub(crate) status: StatusKind,
    pub(crate) intents: IntentKind,
    pub(crate) growth: Growth,
    pub(crate) doublewrite: DoublewriteKind,
    pub(crate) lock_timeout: Duration,
    pub(crate) undo_limit: Option<u64>,
    pub(crate) spill_limit: u64,
    pub(crate) snapshot_limits: SnapshotLimits,
    pub(crate) transaction_max_age: Option<Duration>,
    pub(crate) max_transactions: usize,
    pub(crate) profile: bool,
    pub(crate) background: bool,
    pub(crate) step_seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults of the table above.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory_limit: 1 << 30,
            device: Device::Auto,
            fs: None,
            segment_bytes: 16 << 20,
            log_buffer: BufferKind::default(),
            log_wait: WaitKind::default(),
            log_slots: 4,
            group: GroupPolicy::Greedy,
            log_budget: 512 << 20,
            replacement: ReplacementKind::default(),
            status: StatusKind::default(),
            intents: IntentKind::default(),
            growth: Growth::default(),
            early_release: EarlyRelease::default(),
            doublewrite: DoublewriteKind::default(),
            lock_timeout: Duration::from_secs(10),
            undo_limit: None,
            spill_limit: 0,
            snapshot_limits: SnapshotLimits::NONE,
            transaction_max_age: None,
            max_transactions: 1024,
            profile: false,
            background: true,
            step_seed: 1,
        }
    }

    /// Bytes of memory that the engine may use, at least 4 MiB. Most of it is the buffer pool;
    /// [`Stats::memory`](crate::Stats::memory) shows the shares.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Where the files are kept and how they are written.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// A file system to use instead of opening the device: one in memory that outlives the database, or a simulated one.
    #[must_use]
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = Some(fs);
        self
    }

    /// Bytes of a log segment: a power of two from 64 KiB to 1 GiB.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// The log buffer.
    #[must_use]
    pub fn log_buffer(mut self, kind: BufferKind) -> Self {
        self.log_buffer = kind;
        self
    }

    /// How appends wait for each other in the log buffers that make them wait.
    #[must_use]
    pub fn log_wait(mut self, wait: WaitKind) -> Self {
        self.log_wait = wait;
        self
    }

    /// Places where threads consolidate, 1 to 64, in the log buffers that have such.
    #[must_use]
    pub fn log_slots(mut self, slots: usize) -> Self {
        self.log_slots = slots;
        self
    }

    /// When a group of commits goes to the disk.
    #[must_use]
    pub fn group(mut self, policy: GroupPolicy) -> Self {
        self.group = policy;
        self
    }

    /// Bytes of log that a restart reads for pages, or half the memory limit, if that is less. At least four segments. Writers
    /// are slowed down where the disk does not write pages as fast. A transaction that stays open keeps its log beyond it.
    #[must_use]
    pub fn log_budget(mut self, bytes: u64) -> Self {
        self.log_budget = bytes;
        self
    }

    /// Which page leaves the buffer pool.
    #[must_use]
    pub fn replacement(mut self, kind: ReplacementKind) -> Self {
        self.replacement = kind;
        self
    }

    /// How much a commit releases before it is durable.
    #[must_use]
    pub fn early_release(mut self, early_release: EarlyRelease) -> Self {
        self.early_release = early_release;
        self
    }

    /// What is asked whether a transaction has committed, beside the window that orders commits: for comparison.
    #[must_use]
    pub fn status(mut self, kind: StatusKind) -> Self {
        self.status = kind;
        self
    }

    /// Where transactions enter that they use a table: `table` is for comparison.
    #[must_use]
    pub fn intents(mut self, kind: IntentKind) -> Self {
        self.intents = kind;
        self
    }

    /// When the data file grows.
    #[must_use]
    pub fn growth(mut self, growth: Growth) -> Self {
        self.growth = growth;
        self
    }

    /// Whether pages are written to the doublewrite file before they go home, so that power loss tears none for good. `off` on
    /// a device that tears pages gives that up: see [`DoublewriteKind`]. [`Stats::pool`](crate::Stats::pool) says what the
    /// device offers, and what is in use.
    #[must_use]
    pub fn doublewrite(mut self, kind: DoublewriteKind) -> Self {
        self.doublewrite = kind;
        self
    }

    /// How long a transaction waits for a lock unless it says otherwise. Deadlocks are found at once, without it.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Bytes of memory for what running transactions would have to take back, and for old versions of rows that readers see: from
    /// 64 KiB to a quarter of the memory limit. Where they are spent, some of it goes to a file, if there is one (see
    /// [`spill_limit`](Self::spill_limit)); then the oldest snapshots are given up, and their readers get
    /// [`SnapshotTooOld`](Error::SnapshotTooOld). A transaction that others keep from its share waits for them, for ten seconds at most. If
    /// they wait for it too, it gets [`UndoMemory`](Error::UndoMemory), and [`Db::run`](crate::Db::run) runs it again. One that does not
    /// fit while no other holds any gets [`TransactionTooLarge`](Error::TransactionTooLarge).
    #[must_use]
    pub fn undo_limit(mut self, bytes: u64) -> Self {
        self.undo_limit = Some(bytes);
        self
    }

    /// Bytes of a temporary file in the directory for what [`undo_limit`](Self::undo_limit) leaves no room for in memory: old versions,
    /// then changes of running transactions, but for those behind a savepoint. None if zero; no more than 32 times the memory are used.
    /// An open scan that has read old versions from the file keeps up to 5 MiB for that, and takes up to 4.5 MiB more while it reads them.
    /// Both are beside the old values of the rows of one leaf, and the memory limit counts none of it.
    /// The name of the file goes as soon as it is open. It never shrinks while the database is open: what is free in it is used again.
    /// Writers go on without it while it cannot be written. A thread that finds no room then
    /// gets that error; a transaction that cannot read back what it has to take back stops the database.
    #[must_use]
    pub fn spill_limit(mut self, bytes: u64) -> Self {
        self.spill_limit = bytes;
        self
    }

    /// How old a snapshot may be, more than zero, when writers begin to look for room: an older one is given up, and its reader gets
    /// [`SnapshotTooOld`](Error::SnapshotTooOld). While no thread writes, it stays. [`Stats::oldest_snapshot`](crate::Stats::oldest_snapshot)
    /// tells the oldest by its label. A transaction may have a limit of its own: see [`TxnOptions`](crate::TxnOptions::snapshot_max_age)
    /// and [`ReadOptions`](crate::ReadOptions::snapshot_max_age).
    #[must_use]
    pub fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_limits.max_age = age;
        self
    }

    /// How many bytes may be kept for the oldest snapshot alone, at least 8 KiB, when writers begin to look for room, and while tables
    /// that were dropped are kept: beyond that it is given up, as one that is too old. These are old versions, in chunks of 8 KiB, and
    /// the pages of tables that were dropped since, as in [`Stats::oldest_snapshot`](crate::Stats::oldest_snapshot). A transaction may
    /// have a limit of its own.
    #[must_use]
    pub fn snapshot_max_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_limits.max_bytes = bytes;
        self
    }

    /// How long a transaction may run, more than zero. An older one is rolled back, and its operations and its commit answer
    /// [`TransactionTooOld`](Error::TransactionTooOld). A background thread rolls back those that are idle, so that their locks, log
    /// and versions are free. An operation under way is not interrupted; the next one answers the error. Prepared transactions, those
    /// that only read, checks and background work have no such limit. [`Stats::oldest_transaction`](crate::Stats::oldest_transaction)
    /// tells which one keeps the most log.
    #[must_use]
    pub fn transaction_max_age(mut self, age: Duration) -> Self {
        self.transaction_max_age = Some(age);
        self
    }

    /// How many transactions may run at once, from 1 to 1024.
    #[must_use]
    pub fn max_transactions(mut self, count: usize) -> Self {
        self.max_transactions = count;
        self
    }

    /// Whether it is measured where the time of transactions goes, for [`Db::profile`]. One transaction in
    /// [`Profile::ONE_IN`](crate::Profile::ONE_IN) of a thread is measured, on average. It can be switched while the database is open ([`Db::set_profiling`]).
    #[must_use]
    pub fn profile(mut self, on: bool) -> Self {
        self.profile = on;
        self
    }

    /// Whether threads do the background work. Without them the owner calls [`Db::step`]: a simulator decides what runs
    /// when, from one thread.
    #[must_use]
    pub fn background(mut self, threads: bool) -> Self {
        self.background = threads;
        self
    }

    /// Seed of the order in which [`Db::step`] takes up background work.
    #[must_use]
    pub fn step_seed(mut self, seed: u64) -> Self {
        self.step_seed = seed;
        self
    }

    /// Opens the database in directory `path`; creates it where there is none; recovers it where it was not closed.
    ///
    /// # Errors
    /// `Locked` if it is open already, here or in another process. `InvalidOption` for an option out of range. What is
    /// wrong with the files, typed: `Foreign`, `Newer`, `Truncated`, `Corrupted`, `LostLog`; nothing was written then.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        Engine::open(path.as_ref(), self).map(Db::new)
    }

    fn check(&self) -> Result<()> {
        MemoryShares::of(self.memory_limit, self.undo_limit)?;
        check_limits(self.snapshot_limits)?;
        if self.transaction_max_age.is_some_and(|age| age.is_zero()) {
            return Err(out_of_range("transaction_max_age", 0, "more than no time"));
        }
        if !self.segment_bytes.is_power_of_two() || !(MIN_SEGMENT..=MAX_SEGMENT).contains(&self.segment_bytes) {
            return Err(out_of_range("segment_bytes", self.segment_bytes, "a power of two from 64 KiB to 1 GiB"));
        }
        if self.spill_limit > MAX_SPILL {
            return Err(out_of_range("spill_limit", self.spill_limit, "up to 1 TiB"));
        }
        if self.log_budget < 4 * self.segment_bytes {
            return Err(out_of_range("log_budget", self.log_budget, "at least four segments"));
        }
        if !(1..=MAX_TRANSACTIONS).contains(&self.max_transactions) {
            return Err(out_of_range("max_transactions", self.max_transactions as u64, "1 to 1024"));
        }
        Ok(())
    }
}

/// Refuses limits of snapshots that are out of range: the database's, and those of one transaction.
pub(crate) fn check_limits(limits: SnapshotLimits) -> Result<()> {
    if limits.max_age.is_zero() {
        return Err(out_of_range("snapshot_max_age", 0, "more than no time"));
    }
    if limits.max_bytes < MIN_SNAPSHOT {
        return Err(out_of_range("snapshot_max_bytes", limits.max_bytes, "at least 8 KiB"));
    }
    Ok(())
}

fn out_of_range(name: &'static str, value: u64, expected: &str) -> Error {
    Error::InvalidOption { name, value: value.to_string(), expected: expected.to_owned() }
}
