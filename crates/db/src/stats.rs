//! Counters of an open database.

use crate::MemoryShares;
use crate::engine::Engine;
use foreshore_btree::TreeStats;
use foreshore_buffer::PoolStats;
use foreshore_lock::LockStats;
use foreshore_recovery::{CheckpointStats, RecoveryStats};
use foreshore_space::SpaceStats;
use foreshore_txn::TxnStats;
use foreshore_wal::LogStats;

/// Counters of every layer since the database was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The log.
    pub log: LogStats,
    /// Bytes of log kept for restart.
    pub log_retained_bytes: u64,
    /// The buffer pool.
    pub pool: PoolStats,
    /// Pages of the data file.
    pub space: SpaceStats,
    /// Changes of the structure of trees.
    pub tree: TreeStats,
    /// Transactions.
    pub txn: TxnStats,
    /// Waits for locks.
    pub lock: LockStats,
    /// Checkpoints.
    pub checkpoint: CheckpointStats,
    /// What opening the database had to do.
    pub recovery: RecoveryStats,
    /// How the memory limit is shared out.
    pub memory: MemoryShares,
    /// The storage in use: `direct`, `buffered`, `null`, `delay:300us` …
    pub backend: String,
}

impl Engine {
    pub(crate) fn stats(&self) -> Stats {
        let txn = self.txns.stats();
        Stats {
            log: self.log.stats(),
            log_retained_bytes: self.log.retained_bytes(),
            pool: self.pool.stats(),
            space: self.space.stats(),
            tree: self.trees.stats(),
            lock: txn.locks,
            txn,
            checkpoint: self.checkpointer.stats(),
            recovery: self.recovery,
            memory: self.memory,
            backend: self.backend.clone(),
        }
    }
}
