//! Counters of checkpoints.

use foreshore_base::GroupNo;
use foreshore_space::SuperBlock;
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
    /// Bytes of log from `redo_start` on, which a restart would redo now. With background threads they stay within the
    /// budget, except for what is appended while a checkpoint is being written.
    pub redo_log_bytes: u64,
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

/// Counts checkpoints, and says where a restart from the newest one would begin.
pub(super) struct Taken {
    scan_start: AtomicU64,
    redo_start: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    /// KiB of log a second.
    speed: AtomicU64,
}

impl Taken {
    pub(super) const fn new(newest: &SuperBlock) -> Self {
        Self {
            scan_start: AtomicU64::new(newest.scan_start.0),
            redo_start: AtomicU64::new(newest.redo_start.0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            speed: AtomicU64::new(0),
        }
    }

    /// Notes the starts of a superblock that is durable.
    pub(super) fn set_starts(&self, newest: &SuperBlock) {
        // ORDERING: hint, for statistics.
        self.scan_start.store(newest.scan_start.0, Ordering::Relaxed);
        self.redo_start.store(newest.redo_start.0, Ordering::Relaxed);
    }

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
            scan_start: GroupNo(load(&self.scan_start)),
            redo_start: GroupNo(load(&self.redo_start)),
            checkpoints: load(&self.completed),
            failures: load(&self.failed),
            restart_speed: load(&self.speed) << 10,
            ..CheckpointStats::default()
        }
    }
}
