//! Counters of an open database.

use crate::damage::MAX_KNOWN;
use crate::engine::Engine;
use crate::{DamageStats, Error, HeldRows, MemoryShares, MemoryUse};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_btree::TreeStats;
use foreshore_buffer::PoolStats;
use foreshore_lock::{LockStats, UNIT_BYTES};
use foreshore_recovery::{CheckpointStats, RecoveryStats};
use foreshore_space::SpaceStats;
use foreshore_txn::{OldestSnapshot, OldestTransaction, TxnStats};
use foreshore_wal::{ArchiveStats, LogStats};

/// Counters of every layer since the database was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The log.
    pub log: LogStats,
    /// Bytes of log kept for restart, or for the archive.
    pub log_retained_bytes: u64,
    /// The archive of the log, if there is one.
    pub archive: Option<ArchiveStats>,
    /// The error of the archive, if the last attempt to write to it failed.
    pub archive_failure: Option<Error>,
    /// What is wrong with the newest file of the archive that was not sound when the database was opened.
    pub archive_damage: Option<Error>,
    /// The buffer pool.
    pub pool: PoolStats,
    /// Pages of the data file.
    pub space: SpaceStats,
    /// Dropped tables whose pages are kept because a snapshot from before the drop is in use, or the drop is not
    /// durable yet.
    pub held_tables: u64,
    /// Changes of the structure of trees.
    pub tree: TreeStats,
    /// Deleted rows that are kept for snapshots, by table.
    pub held: Vec<HeldRows>,
    /// Transactions.
    pub txn: TxnStats,
    /// Prepared transactions. Each keeps its log.
    pub prepared: u64,
    /// The running transaction with the oldest log record, and what is kept for it.
    pub oldest_transaction: Option<OldestTransaction>,
    /// The oldest snapshot in use, and what is kept for it.
    pub oldest_snapshot: Option<OldestSnapshot>,
    /// Waits for locks.
    pub lock: LockStats,
    /// Checkpoints.
    pub checkpoint: CheckpointStats,
    /// Known damaged pages: quarantined ones, and those that were met since the database was opened.
    pub damage: DamageStats,
    /// Work of the recovery when the database was opened.
    pub recovery: RecoveryStats,
    /// Shares of the memory limit.
    pub memory: MemoryShares,
    /// Bytes of each share that are in use. The staging share is in use as a whole while anything is written.
    pub memory_use: MemoryUse,
    /// The storage in use: `direct`, `buffered`, `null`, `delay:300us` …
    pub backend: String,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Self {
        let Engine { storage, admission, catalogue, reclaimer, purger, prepared, damage, options, .. } = engine;
        let txns = admission.txns();
        damage.note_redone(storage.pool(), &storage.checkpointer().redo_quarantined(MAX_KNOWN));
        let (txn, log, pool) = (txns.stats(), storage.log().stats(), storage.pool().stats());
        let memory_use = MemoryUse {
            log: log.buffer_bytes,
            undo: txn.undo_bytes as u64,
            status: txn.status_used * size_of::<u64>() as u64,
            locks: txn.locks.units_borrowed * UNIT_BYTES as u64,
            pool: (pool.frames - pool.frames_free) * PAGE_SIZE as u64,
        };
        Self {
            log,
            log_retained_bytes: storage.log().retained_bytes(),
            archive: storage.log().archive_stats(),
            archive_failure: storage.log().archive_failure().map(Into::into),
            archive_damage: storage.log().archive_damage().map(Into::into),
            pool,
            space: storage.space().stats(),
            held_tables: reclaimer.held(),
            tree: catalogue.trees().stats(),
            held: purger.held(),
            prepared: prepared.count() as u64,
            oldest_transaction: txns.xids().oldest_transaction(),
            oldest_snapshot: txns.visibility().oldest_snapshot(),
            lock: txn.locks,
            txn,
            checkpoint: storage.checkpointer().stats(),
            damage: damage.stats(catalogue),
            recovery: storage.recovery(),
            memory: options.shares().expect("checked when the database was opened"),
            memory_use,
            backend: storage.backend().to_owned(),
        }
    }
}
