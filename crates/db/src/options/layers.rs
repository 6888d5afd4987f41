//! The options of the layers below, from those of a database.

use super::{LabOptions, MIN_SEGMENTS, Options};
use crate::memory::MemoryShares;
use foreshore_base::{InvalidOption, Result};
use foreshore_buffer::PoolOptions;
use foreshore_io::{Device, Fs, Overlay, ReadOnly};
use foreshore_lock::LockOptions;
use foreshore_recovery::RestartBudget;
use foreshore_space::SpaceOptions;
use foreshore_txn::{SnapshotLimits, SpillFile, TxnManagerOptions};
use foreshore_wal::{ArchiveOptions, LogOptions};
use std::{path::Path, sync::Arc, time::Duration};

/// Transactions besides those of users: one to free pages, one to purge, one for a check, one to reserve numbers, one
/// for the losers of a restart.
const OWN_TRANSACTIONS: usize = 5;
/// Log sessions besides those of transactions: one for the checkpointer, one for creation or undo.
const OWN_SESSIONS: usize = 2;

impl Options {
    /// Returns the bytes of a log segment.
    pub(crate) const fn segment_bytes(&self) -> u64 {
        self.lab.segment_bytes
    }

    /// Returns what only the lab, the simulator and tests choose.
    pub(crate) const fn of_lab(&self) -> &LabOptions {
        &self.lab
    }

    /// Opens the file system of a database in `dir`.
    pub(crate) fn file_system(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        self.lab.fs.as_ref().map_or_else(|| self.device.open(dir), |fs| Ok(Arc::clone(fs)))
    }

    /// Opens the file system of `dir` to read what is there, without a trial of direct I/O.
    pub(crate) fn reader(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        self.lab.fs.as_ref().map_or_else(|| Device::Buffered.open(dir), |fs| Ok(Arc::clone(fs)))
    }

    /// Opens the file system of a database in `dir` that is only read. What is written stays in memory.
    pub(crate) fn overlay(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        let below = match (&self.lab.fs, self.device) {
            (Some(fs), _) => Arc::clone(fs),
            (None, memory @ (Device::Null | Device::Delay(_))) => memory.open(dir)?,
            (None, _) => Arc::new(ReadOnly::new(dir)?),
        };
        Ok(Arc::new(Overlay::new(below)))
    }

    /// Opens the file system of a backup in `dir`: that of the operating system, or of the lab. A database in memory
    /// has its backups on disk.
    pub(crate) fn backup_file_system(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        self.lab.fs.as_ref().map_or_else(|| Device::Auto.open(dir), |fs| Ok(Arc::clone(fs)))
    }

    /// Returns the archive of the log, if there is one.
    pub(crate) fn for_archive(&self) -> Result<Option<ArchiveOptions>> {
        let Some(dir) = &self.archive.dir else { return Ok(None) };
        let fs = self.backup_file_system(dir)?;
        Ok(Some(ArchiveOptions { fs, dir: dir.clone(), limit: self.archive.limit, budget: self.restart_budget().most }))
    }

    /// Divides the memory limit.
    pub(crate) fn shares(&self) -> Result<MemoryShares, InvalidOption> {
        MemoryShares::of(self.memory_limit, self.lab.undo_limit)
    }

    /// Returns the lock timeout and the snapshot limits of a transaction that sets none.
    pub(crate) const fn for_transaction(&self) -> (Duration, SnapshotLimits) {
        (self.lock_timeout, self.snapshot_limits)
    }

    /// Returns the largest age of a transaction, if there is a limit.
    pub(crate) const fn max_age(&self) -> Option<Duration> {
        self.transaction_max_age
    }

    /// Returns how much log a restart may have to redo. It reads the pages of that log through a pool of the memory
    /// limit, so a small pool gets a short log.
    pub(crate) fn restart_budget(&self) -> RestartBudget {
        let least = MIN_SEGMENTS * self.lab.segment_bytes;
        RestartBudget { most: self.restarts.log_budget.min(self.memory_limit / 2), least, target: self.restarts.target }
    }

    /// Returns the threads that redo the log; `None`: as many as pay. Without background work there are none.
    pub(crate) fn redo_workers(&self) -> Option<usize> {
        self.lab.redo_workers.or_else(|| (!self.lab.background).then_some(1))
    }

    pub(crate) fn for_log(&self, memory: &MemoryShares) -> LogOptions {
        LogOptions {
            segment_bytes: self.lab.segment_bytes,
            buffer: self.lab.log_buffer.clone(),
            ring_bytes: memory.ring_bytes(),
            lane_memory: usize::try_from(memory.log_buffer).expect("at most 64 MiB"),
            max_sessions: self.max_transactions + OWN_TRANSACTIONS + OWN_SESSIONS,
            group: self.group,
            group_from: self.lab.group.clone(),
            background: self.lab.background,
            ..LogOptions::default()
        }
    }

    pub(crate) fn for_pool(&self, memory: &MemoryShares) -> PoolOptions {
        PoolOptions {
            frames: memory.frames,
            background: self.lab.background,
            replacement: self.lab.replacement.clone(),
            doublewrite: self.doublewrite,
            read_around: self.lab.read_around,
        }
    }

    pub(crate) fn for_space(&self) -> SpaceOptions {
        SpaceOptions { growth: self.lab.growth, background: self.lab.background }
    }

    pub(crate) fn for_locks(&self, memory: &MemoryShares) -> LockOptions {
        let max_owners = self.max_transactions + OWN_TRANSACTIONS;
        let (memory_units, fast_intents) = (memory.memory_units(), self.lab.fast_intents);
        LockOptions { max_owners, memory_units, fast_intents, ..LockOptions::default() }
    }

    /// `spill` makes the spill file of undo, if the limit of its bytes is above zero.
    pub(crate) fn for_transactions(
        &self,
        memory: &MemoryShares,
        spill: impl FnOnce(usize) -> SpillFile,
    ) -> TxnManagerOptions {
        let bytes = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
        TxnManagerOptions {
            max_sessions: self.max_transactions,
            system_sessions: OWN_TRANSACTIONS,
            status_capacity: bytes(memory.status_words()),
            undo_limit_bytes: bytes(memory.undo),
            snapshot_limits: self.snapshot_limits,
            spill: (self.spill_limit > 0).then(|| spill(bytes(self.spill_limit))),
            hold_until_durable: self.lab.hold_until_durable,
            ..TxnManagerOptions::default()
        }
    }
}
