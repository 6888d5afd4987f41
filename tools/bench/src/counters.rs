//! The engine's counters that a row reports, as differences over its window but where it says something else.

use foreshore::Db;
use std::ops::Sub;

/// Counts since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Since the open.
    pub(crate) commits: u64,
    pub(crate) log_bytes: u64,
    pub(crate) log_groups: u64,
    pub(crate) log_writes: u64,
    pub(crate) data_syncs: u64,
    pub(crate) pages_read: u64,
    pub(crate) pages_written: u64,
    pub(crate) checkpoints: u64,
    pub(crate) slowed_nanos: u64,
    /// Since the open.
    pub(crate) snapshots_killed: u64,
    /// At the moment.
    pub(crate) undo_spilled_bytes: u64,
}

impl Counters {
    pub(crate) fn read(db: &Db) -> Self {
        let stats = db.stats();
        Self {
            commits: stats.txn.commits,
            log_bytes: stats.log.group_bytes,
            log_groups: stats.log.groups,
            log_writes: stats.log.writes,
            data_syncs: stats.pool.data_syncs,
            pages_read: stats.pool.pages_read,
            pages_written: stats.pool.pages_written,
            checkpoints: stats.checkpoint.checkpoints,
            slowed_nanos: stats.log.slowed_nanos,
            snapshots_killed: stats.txn.snapshots_cancelled,
            undo_spilled_bytes: stats.txn.undo_spilled_bytes as u64,
        }
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            commits: self.commits,
            log_bytes: self.log_bytes - before.log_bytes,
            log_groups: self.log_groups - before.log_groups,
            log_writes: self.log_writes - before.log_writes,
            data_syncs: self.data_syncs - before.data_syncs,
            pages_read: self.pages_read - before.pages_read,
            pages_written: self.pages_written - before.pages_written,
            checkpoints: self.checkpoints - before.checkpoints,
            slowed_nanos: self.slowed_nanos - before.slowed_nanos,
            snapshots_killed: self.snapshots_killed,
            undo_spilled_bytes: self.undo_spilled_bytes,
        }
    }
}
