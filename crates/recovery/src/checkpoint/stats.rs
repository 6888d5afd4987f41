//! Counters of checkpoints.

use foreshore_base::GroupNo;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};

/// Counters of checkpoints since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints that failed.
    pub failures: u64,
    /// The log group where a restart would begin to read.
    pub scan_start: GroupNo,
    /// The log group from which a restart would apply changes to pages. Earlier log is kept only for transactions.
    pub redo_start: GroupNo,
    /// The log budget in effect, in bytes. It follows from the options, and with a target for restarts from their
    /// measured speed.
    pub budget: u64,
    /// The speed of restarts that was measured, in bytes of log a second; 0 before the first one that counts.
    pub restart_speed: u64,
    /// Bytes of log with changes of pages that are not home. Writers are slowed to keep it within the budget.
    pub page_log_bytes: u64,
    /// Bytes of earlier log that are kept only for open and prepared transactions. The budget does not bound them.
    pub transaction_log_bytes: u64,
}

/// Counts checkpoints.
#[derive(Default)]
pub(super) struct Taken {
    completed: AtomicU64,
    failed: AtomicU64,
    /// KiB of log a second.
    speed: AtomicU64,
}

impl Taken {
    pub(super) fn count(&self, is_completed: bool) {
        let counter = if is_completed { &self.completed } else { &self.failed };
        // ORDERING: hint, a counter.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the speed of restarts.
    pub(super) fn set_speed(&self, kib_per_s: u32) {
        // ORDERING: hint, for statistics.
        self.speed.store(u64::from(kib_per_s), Ordering::Relaxed);
    }

    /// Returns statistics with these counters alone.
    pub(super) fn stats(&self) -> CheckpointStats {
        // ORDERING: hint, for statistics.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CheckpointStats {
            checkpoints: load(&self.completed),
            failures: load(&self.failed),
            restart_speed: load(&self.speed) << 10,
            ..CheckpointStats::default()
        }
    }
}
