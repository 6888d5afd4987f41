//! What a run found: one JSON object for scripts, a table for people.

use crate::{
    Config,
    config::Workload,
    machine::Machine,
    stepper::{Counts, Site},
    table,
    units::{show, show_bytes, thousandths},
};
use foreshore::TimeSplit;
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write, time::Duration};

/// Whether the rows are sound and no commit is missing, live and after close and open: by the names of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Checks(BTreeMap<String, bool>);

impl Checks {
    /// Checks by their names.
    #[must_use]
    pub fn new(checks: impl IntoIterator<Item = (String, bool)>) -> Self {
        Self(checks.into_iter().collect())
    }

    /// These checks and more of them.
    pub(crate) fn with(mut self, more: impl IntoIterator<Item = (&'static str, bool)>) -> Self {
        self.0.extend(more.into_iter().map(|(name, is_true)| (name.to_owned(), is_true)));
        self
    }

    /// A row that is checked with others.
    pub(crate) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether all are true.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.0.values().all(|&is_true| is_true)
    }
}

/// Where the time of the workers went, in fractions of threads x wall time that sum to 1. The estimate uses the
/// transactions that the engine measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Breakdown {
    /// Transactions at work, the workload's own part included.
    pub work: f64,
    /// Putting records into the log buffer.
    pub log_insert: f64,
    /// Waiting for durability, or for room in the log.
    pub log_wait: f64,
    /// Waiting for locks.
    pub lock_wait: f64,
    /// Waiting for latches of pages.
    pub latch_wait: f64,
    /// Reading and writing pages.
    pub io: f64,
    /// Transactions that were run again.
    pub retry: f64,
    /// The rest: between transactions, and without a processor.
    pub idle: f64,
}

impl Breakdown {
    /// Computes the fractions for `threads` that were watched for `window`. `split` comes from one in `one_in`
    /// transactions. `tickets` is the time of waits for tickets, over all of them.
    pub(crate) fn new(split: TimeSplit, one_in: u32, tickets: Duration, window: Duration, threads: usize) -> Self {
        let whole = window.as_secs_f64() * threads as f64;
        let of = |time: Duration| time.as_secs_f64() * f64::from(one_in) / whole;
        let log_wait = of(split.log_wait) + tickets.as_secs_f64() / whole;
        let parts = [
            of(split.work + split.caller),
            of(split.log_insert),
            log_wait,
            of(split.lock_wait),
            of(split.latch_wait),
            of(split.io),
            of(split.retry),
        ];
        // An estimate may come out a little above the whole.
        let sum: f64 = parts.iter().sum();
        let [work, log_insert, log_wait, lock_wait, latch_wait, io, retry] = parts.map(|part| part / sum.max(1.0));
        Self { work, log_insert, log_wait, lock_wait, latch_wait, io, retry, idle: (1.0 - sum).max(0.0) }
    }
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

/// One measured row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Worker threads.
    pub threads: usize,
    /// Transactions in flight per thread.
    pub clients: usize,
    /// Commits acknowledged in the window.
    pub commits: u64,
    /// Transactions that the workload rolled back, as its specification says. They are not commits.
    pub rollbacks: u64,
    /// Transactions given back to the caller.
    pub aborts: u64,
    /// Transactions run again.
    pub retries: u64,
    /// Length of the window.
    pub seconds: f64,
    /// Commits per second.
    pub tps: f64,
    /// Commits in each whole second, at pre-commit.
    pub tps_each_second: Vec<u64>,
    /// Size of the data file at the end of each whole second.
    pub file_bytes_each_second: Vec<u64>,
    /// Median latency, from begin to acknowledgement.
    pub p50_us: f64,
    /// 95 of 100 are faster.
    pub p95_us: f64,
    /// 99 of 100 are faster.
    pub p99_us: f64,
    /// 999 of 1000 are faster.
    pub p999_us: f64,
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
    /// Bytes of log groups, headers and padding included, per commit.
    pub log_bytes_per_txn: f64,
    /// Log groups sealed.
    pub log_groups: u64,
    /// Commits per log group.
    pub txns_per_group: f64,
    /// Writes of the log.
    pub log_writes: u64,
    /// Syncs of the data file.
    pub data_syncs: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Pages written, home and doublewrite.
    pub pages_written: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Most bytes of log kept for a restart at any look, of which there are a hundred a second.
    pub log_retained_peak_bytes: u64,
    /// Part of the time of all threads that they were slowed down for the log budget.
    pub log_slowed: f64,
    /// Highest resident size from the open to the end of the live checks.
    pub rss_peak_bytes: u64,
    /// Resident size just after the open.
    pub rss_open_bytes: u64,
    /// Read-modify-writes of a transaction to cache lines that two threads write, if they were counted.
    pub contended_rmw_per_txn: Option<f64>,
    /// All read-modify-writes of a transaction, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tagged_rmw_per_txn: Option<f64>,
    /// Instructions of a transaction outside the kernel, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_txn: Option<f64>,
    /// Where the contended read-modify-writes are, if they were counted: the most frequent places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended_rmw_sites: Option<Vec<Site>>,
    /// Snapshots that were given up, if one was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_killed: Option<u64>,
    /// Undo in its file at the end, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_spilled_bytes: Option<u64>,
    /// Where the time went, if that was measured.
    pub breakdown: Option<Breakdown>,
    /// What the transactions were, if the workload has several kinds, warm-up included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Whether the rows are sound and no commit is missing.
    pub checks: Checks,
    /// The other repeats of this row, if there were any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Row>,
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
    pub(crate) fn begun(mut self, rows: &str, was_sound: bool) -> Self {
        self.checks.0.insert(format!("{rows}_begun"), was_sound);
        self
    }

    /// Adds what [`stepper::count`](crate::stepper::count) has counted, with the most frequent sites.
    pub fn counted(&mut self, counts: &Counts) {
        const SITES: usize = 12;
        let per = |count: u64| Some(thousandths(count as f64 / counts.operations.max(1) as f64));
        self.contended_rmw_per_txn = per(counts.contended);
        self.tagged_rmw_per_txn = per(counts.rmw);
        self.instructions_per_txn = per(counts.instructions);
        self.contended_rmw_sites = Some(counts.sites.iter().take(SITES).cloned().collect());
    }

    fn passed(&self) -> bool {
        self.checks.passed() && self.repeats.iter().all(Self::passed)
    }
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What ran.
    pub workload: Workload,
    /// Its options, defaults filled in.
    pub config: Config,
    /// What it ran on.
    pub machine: Machine,
    /// One row for each number of threads.
    pub rows: Vec<Row>,
}

const COLUMNS: [&str; 17] = [
    "threads",
    "clients",
    "tps",
    "p50 us",
    "p95 us",
    "p99 us",
    "p99.9 us",
    "retries",
    "cores",
    "stolen",
    "switches",
    "log B",
    "txns/group",
    "per sync",
    "ckpts",
    "rss peak",
    "checks",
];

impl Report {
    /// Whether every check of every row is true.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(Row::passed)
    }

    /// One JSON object, ending in a line break.
    #[must_use]
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers, names and lists");
        text.push('\n');
        text
    }

    /// The table, its configuration and its machine above it.
    #[must_use]
    pub fn table(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{}: {}\n{} cores, {} memory, Linux {}, {} on {}, {} us per durable 4 KiB write\n\n",
            self.workload,
            self.config.summary(),
            machine.cores,
            show_bytes(machine.memory_bytes),
            machine.kernel,
            machine.device_backend,
            machine.filesystem,
            show(machine.device_sync_us),
        );
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row)).collect();
        text.push_str(&table::render(&COLUMNS, &cells));
        text.push_str(
            "\nstolen: cores with work that a hypervisor gave to others; switches and log B are per transaction; per sync: \
             commits per time of one durable write\n",
        );
        for row in &self.rows {
            let (Some(contended), Some(all)) = (row.contended_rmw_per_txn, row.tagged_rmw_per_txn) else { continue };
            let (threads, instructions) = (row.threads, row.instructions_per_txn.unwrap_or_default());
            let _ = writeln!(
                text,
                "\n{threads} threads: {} contended read-modify-writes a transaction, of {} in {} instructions",
                show(contended),
                show(all),
                show(instructions),
            );
            for Site { function, offset, contended_rmw_per_txn } in row.contended_rmw_sites.iter().flatten() {
                let _ = writeln!(text, "{:>8}  {function} at {offset:#x}", show(*contended_rmw_per_txn));
            }
        }
        text
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        // How many commits the device's time for one sync bore: above one only where groups carry many.
        let per_sync =
            if self.machine.is_durable { show(row.tps * self.machine.device_sync_us / 1e6) } else { "n/a".to_owned() };
        vec![
            row.threads.to_string(),
            row.clients.to_string(),
            show(row.tps),
            show(row.p50_us),
            show(row.p95_us),
            show(row.p99_us),
            show(row.p999_us),
            row.retries.to_string(),
            show(row.cpu_cores),
            show(row.cpu_stolen_cores),
            show(row.voluntary_switches_per_txn),
            show(row.log_bytes_per_txn),
            show(row.txns_per_group),
            per_sync,
            row.checkpoints.to_string(),
            show_bytes(row.rss_peak_bytes),
            if row.passed() { "true" } else { "FALSE" }.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests;
