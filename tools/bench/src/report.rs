//! What a run found: one JSON object for scripts, a table for people.

mod breakdown;
mod checks;
mod row;

pub use breakdown::Breakdown;
pub use checks::Checks;
pub use row::{CountedRmw, DataUse, Ended, Kind, Latency, LogUse, MemoryUse, Row, TimeUse};

use crate::{
    Config,
    config::Workload,
    machine::Machine,
    stepper::Site,
    table,
    units::{show, show_bytes},
};
use serde::Serialize;
use std::fmt::Write;

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
        for Row { threads, rmw, .. } in &self.rows {
            let (Some(contended), Some(all)) = (rmw.contended_rmw_per_txn, rmw.tagged_rmw_per_txn) else { continue };
            let instructions = rmw.instructions_per_txn.unwrap_or_default();
            let _ = writeln!(
                text,
                "\n{threads} threads: {} contended read-modify-writes a transaction, of {} in {} instructions",
                show(contended),
                show(all),
                show(instructions),
            );
            for Site { function, offset, contended_rmw_per_txn } in rmw.contended_rmw_sites.iter().flatten() {
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
            show(row.latency.p50_us),
            show(row.latency.p95_us),
            show(row.latency.p99_us),
            show(row.latency.p999_us),
            row.ended.retries.to_string(),
            show(row.time.cpu_cores),
            show(row.time.cpu_stolen_cores),
            show(row.time.voluntary_switches_per_txn),
            show(row.log.log_bytes_per_txn),
            show(row.log.txns_per_group),
            per_sync,
            row.data.checkpoints.to_string(),
            show_bytes(row.memory.rss_peak_bytes),
            if row.passed() { "true" } else { "FALSE" }.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests;
