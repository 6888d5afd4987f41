//! The numbers of a row, by what they are about.

use super::{breakdown::Breakdown, checks::Checks};
use crate::{
    stepper::{Counts, Site},
    units::thousandths,
};
use serde::Serialize;

/// One measured row. In JSON all its numbers are fields of one object.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Worker threads.
    pub threads: usize,
    /// Transactions in flight per thread.
    pub clients: usize,
    /// Commits per second.
    pub tps: f64,
    /// The transactions.
    #[serde(flatten)]
    pub ended: Ended,
    /// How long commits took.
    #[serde(flatten)]
    pub latency: Latency,
    /// What the cores did.
    #[serde(flatten)]
    pub time: TimeUse,
    /// What was logged.
    #[serde(flatten)]
    pub log: LogUse,
    /// What the data file took.
    #[serde(flatten)]
    pub data: DataUse,
    /// Memory, and what had no room in it.
    #[serde(flatten)]
    pub memory: MemoryUse,
    /// Read-modify-writes, if they were counted.
    #[serde(flatten)]
    pub rmw: CountedRmw,
    /// Whether the rows are sound and no commit is missing.
    pub checks: Checks,
    /// The other repeats of this row, if there were any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Row>,
}

/// Transactions of the window, by their end.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// Length of the window.
    pub seconds: f64,
    /// Commits acknowledged in the window.
    pub commits: u64,
    /// Transactions that the workload rolled back, as its specification says. They are not commits.
    pub rollbacks: u64,
    /// Transactions given back to the caller.
    pub aborts: u64,
    /// Transactions run again.
    pub retries: u64,
    /// Commits in each whole second, at pre-commit.
    pub tps_each_second: Vec<u64>,
    /// What the transactions were, if the workload has several kinds, warm-up included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
}

/// Transactions of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// Its name in the specification of the workload.
    pub kind: &'static str,
    /// How many ended, committed or rolled back by the workload.
    pub transactions: u64,
    /// How many of them did what they are for. The others found no row, or one where there must be none.
    pub succeeded: u64,
}

/// Microseconds from begin to acknowledgement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Median latency.
    pub p50_us: f64,
    /// 95 of 100 are faster.
    pub p95_us: f64,
    /// 99 of 100 are faster.
    pub p99_us: f64,
    /// 999 of 1000 are faster.
    pub p999_us: f64,
}

/// Time of the cores, over wall time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TimeUse {
    /// User and system time over wall time.
    pub cpu_cores: f64,
    /// Of it user time, in ticks of the kernel.
    pub cpu_user_cores: f64,
    /// Of it system time, in ticks of the kernel.
    pub cpu_system_cores: f64,
    /// Time that a hypervisor took from cores with work, over wall time: rows are alike only where it is next to none.
    pub cpu_stolen_cores: f64,
    /// Times that a thread gave up its core, per commit: slept, or yielded while it waited for the log.
    pub voluntary_switches_per_txn: f64,
    /// Where the time went, if that was measured.
    pub breakdown: Option<Breakdown>,
}

/// What the log took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LogUse {
    /// Bytes of log groups, headers and padding included, per commit.
    pub log_bytes_per_txn: f64,
    /// Log groups sealed.
    pub log_groups: u64,
    /// Commits per log group.
    pub txns_per_group: f64,
    /// Writes of the log.
    pub log_writes: u64,
    /// Most bytes of log kept for a restart at any look, of which there are a hundred a second.
    pub log_retained_peak_bytes: u64,
    /// Part of the time of all threads that they were slowed down for the log budget.
    pub log_slowed: f64,
}

/// What the data file took.
#[derive(Clone, Debug, Serialize)]
pub struct DataUse {
    /// Size of the data file at the end of each whole second.
    pub file_bytes_each_second: Vec<u64>,
    /// Syncs of the data file.
    pub data_syncs: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Pages written, home and doublewrite.
    pub pages_written: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
}

/// Memory of the process, and undo that it had no room for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryUse {
    /// Highest resident size from the open to the end of the live checks.
    pub rss_peak_bytes: u64,
    /// Resident size just after the open.
    pub rss_open_bytes: u64,
    /// Snapshots that were given up, if one was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_killed: Option<u64>,
    /// Undo in its file at the end, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_spilled_bytes: Option<u64>,
}

/// What was stepped through, if that was asked for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CountedRmw {
    /// Read-modify-writes of a transaction to cache lines that two threads write.
    pub contended_rmw_per_txn: Option<f64>,
    /// All read-modify-writes of a transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tagged_rmw_per_txn: Option<f64>,
    /// Instructions of a transaction outside the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_txn: Option<f64>,
    /// Where the contended read-modify-writes are: the most frequent places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended_rmw_sites: Option<Vec<Site>>,
}

impl Row {
    /// The row with the median rate, the others as its repeats in the order in which they ran. Of an even number, the
    /// lower of the middle two.
    ///
    /// # Panics
    /// If `rows` is empty.
    #[must_use]
    pub fn median(mut rows: Vec<Self>) -> Self {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| rows[a].tps.total_cmp(&rows[b].tps));
        let mut median = rows.remove(order[(order.len() - 1) / 2]);
        median.repeats = rows;
        median
    }

    /// Adds whether the rows were sound when the run began.
    pub(crate) fn begun(self, rows: &str, was_sound: bool) -> Self {
        Self { checks: self.checks.with([(format!("{rows}_begun"), was_sound)]), ..self }
    }

    /// Adds what [`stepper::count`](crate::stepper::count) has counted, with the most frequent sites.
    pub fn counted(&mut self, counts: &Counts) {
        const SITES: usize = 12;
        let per = |count: u64| Some(thousandths(count as f64 / counts.operations.max(1) as f64));
        self.rmw = CountedRmw {
            contended_rmw_per_txn: per(counts.contended),
            tagged_rmw_per_txn: per(counts.rmw),
            instructions_per_txn: per(counts.instructions),
            contended_rmw_sites: Some(counts.sites.iter().take(SITES).cloned().collect()),
        };
    }

    pub(super) fn passed(&self) -> bool {
        self.checks.passed() && self.repeats.iter().all(Self::passed)
    }
}
