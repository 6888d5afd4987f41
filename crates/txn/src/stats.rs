//! What the transaction manager counts.

use crate::manager::TxnManager;
use foreshore_base::Lockable;
use foreshore_lock::LockStats;
use foreshore_sync::Hot;

/// What the transaction manager has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back.
    pub aborts: u64,
    /// Rollbacks that are parked now: they wait for free space, or for a restart where a page is damaged (see
    /// [`TxnManager::parked`]).
    pub parked: usize,
    /// Sessions that transactions have, one after another. One that was made stays.
    pub sessions: usize,
    /// Lock waits, deadlocks and lock time-outs.
    pub locks: LockStats,
    /// Xids that have a word in the status window, pinned ones included.
    pub status_used: u64,
    /// Pinned xids: their transactions still run, though as many were drawn since as half the window has words.
    pub status_pinned: u64,
    /// Words of the status window.
    pub status_capacity: u64,
    /// Bytes of undo memory in use, in chunks of 8 KiB.
    pub undo_bytes: usize,
    /// Bytes of undo in its file.
    pub undo_spilled_bytes: usize,
    /// Chunks of undo that were read back from there.
    pub undo_fetches: u64,
    /// Old versions of rows that were taken out from between others because no reader sees them, while an older one stayed.
    pub versions_pruned: u64,
    /// Snapshots that were given up, because they were too old or what they kept took too much room.
    pub snapshots_killed: u64,
}

impl TxnManager {
    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> TxnStats {
        let (undo_spilled_bytes, undo_fetches) = self.undo.spilled();
        let status_pinned = self.window.pinned() as u64;
        TxnStats {
            commits: self.commits.sum(),
            aborts: self.aborts.sum(),
            parked: self.parked.count(),
            sessions: self.leases(false).made() + self.leases(true).made(),
            locks: self.locks.stats(),
            status_used: self.xids.next().0.saturating_sub(self.window.lo().0) + status_pinned,
            status_pinned,
            status_capacity: self.window.capacity() as u64,
            undo_bytes: self.undo.used_bytes(),
            undo_spilled_bytes,
            undo_fetches,
            versions_pruned: self.undo.pruned(),
            snapshots_killed: self.kills.sum(),
        }
    }

    /// What measured threads (see [`foreshore_sync::spent`]) have waited longest for.
    #[must_use]
    pub fn hot(&self) -> Vec<Hot<Lockable>> {
        self.locks.hot()
    }
}
