//! What a comparison found: the table for people, and the JSON object.

use crate::{
    cli::Cli,
    engines,
    proc::Machine,
    row::Row,
    spec::size,
    workload::{Shape, Workload},
};
use serde::Serialize;
use std::fmt::Write as _;

/// All options, defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Config {
    engines: Vec<String>,
    threads: Vec<usize>,
    secs: f64,
    rounds: usize,
    durable: Vec<bool>,
    scale: u64,
    shapes: Vec<Shape>,
    sizes: Vec<u64>,
    backlog: u64,
    cache: u64,
    seed: u64,
}

/// A row that an error ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) row: String,
    pub(crate) error: String,
}

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    workload: Workload,
    config: Config,
    machine: Machine,
    rows: Vec<Row>,
    /// Engines that are not installed.
    skipped: Vec<&'static str>,
    failures: Vec<Failure>,
}

/// Returns the row with the median throughput, the lower one of two, with the others as its `repeats`.
pub(crate) fn median(mut rounds: Vec<Row>) -> Option<Row> {
    rounds.sort_by(|a, b| a.tps.total_cmp(&b.tps));
    if rounds.is_empty() {
        return None;
    }
    let row = rounds.remove((rounds.len() - 1) / 2);
    Some(Row { repeats: rounds, ..row })
}

impl Report {
    /// Puts a report together.
    pub(crate) fn new(cli: &Cli, workload: Workload, machine: Machine, rows: Vec<Row>, failures: Vec<Failure>) -> Self {
        let config = Config {
            engines: cli.engines.clone(),
            threads: cli.threads.clone(),
            secs: cli.secs,
            rounds: cli.rounds,
            durable: cli.durabilities(workload),
            scale: cli.scale.unwrap_or(workload.default_scale()),
            shapes: cli.shapes.clone(),
            sizes: if workload == Workload::Values { cli.sizes.clone() } else { Vec::new() },
            backlog: cli.backlog,
            cache: cli.cache,
            seed: cli.seed,
        };
        let is_asked = |name: &&str| cli.engines.is_empty() || cli.engines.iter().any(|asked| asked == name);
        Self { workload, config, machine, rows, skipped: engines::missing().filter(is_asked).collect(), failures }
    }

    /// Whether every row was measured and every check holds.
    pub(crate) fn passed(&self) -> bool {
        self.failures.is_empty() && self.rows.iter().all(Row::passed)
    }

    /// Returns the JSON object.
    ///
    /// # Errors
    /// Those of the encoder.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let Machine { cores, kernel, filesystem, device_sync_us, .. } = &self.machine;
        let Config { secs, rounds, scale, cache, .. } = &self.config;
        let _ = writeln!(
            text,
            "{}, scale {scale}, cache {} MiB, {rounds} rounds of {secs} s; {cores} cores, Linux {kernel}, {filesystem}, \
             4 KiB durable in {device_sync_us:.0} us",
            self.workload.name(),
            cache >> 20
        );
        let header = [
            "engine",
            "shape",
            "commit",
            "threads",
            "txn/s",
            "from",
            "to",
            "ops/s",
            "p50 us",
            "p99 us",
            "CPU us/txn",
            "cores",
            "after s",
            "CPU s",
            "dev B/txn",
            "flush/txn",
            "RSS MiB",
            "file MiB",
            "checks",
        ];
        let lines: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row)).collect();
        let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
        align(&mut text, std::iter::once(&header).chain(&lines));
        self.notes(&mut text);
        text
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let all = || row.repeats.iter().chain([row]).map(|row| row.tps);
        let optional = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
        let shape = match (row.shape, row.value_bytes) {
            (None, _) => "-".to_owned(),
            (Some(shape), None) => shape.name().to_owned(),
            (Some(shape), Some(bytes)) => format!("{} {}", shape.name(), size(bytes)),
        };
        let after = |seconds: f64| if row.workload.is_once() { format!("{seconds:.2}") } else { "-".to_owned() };
        let durable = match (row.shape.map_or(row.workload.writes(), Shape::writes), row.durable) {
            (false, _) => "-",
            (true, true) if !self.machine.is_durable() => "n/a",
            (true, true) => "durable",
            (true, false) => "lazy",
        };
        let failed: Vec<&str> = row
            .repeats
            .iter()
            .chain([row])
            .flat_map(|row| &row.checks)
            .filter(|check| !check.1)
            .map(|c| &**c.0)
            .collect();
        let mut checks = if failed.is_empty() { "ok".to_owned() } else { format!("FAILED {}", failed.join(" ")) };
        if row.is_stolen {
            checks.push_str(", time was stolen");
        }
        vec![
            format!("{}:{}", row.engine, row.variant),
            shape,
            durable.to_owned(),
            row.threads.to_string(),
            rate(row.tps),
            rate(all().fold(f64::INFINITY, f64::min)),
            rate(all().fold(0.0, f64::max)),
            format!("{:.0}", row.ops_per_s),
            format!("{:.1}", row.p50_us),
            format!("{:.1}", row.p99_us),
            format!("{:.2}", row.cpu_us_per_txn),
            format!("{:.2}", row.cpu_cores),
            after(row.background_seconds),
            after(row.background_cpu_seconds),
            optional(row.device_bytes_per_txn),
            optional(row.flushes_per_txn),
            format!("{:.0}", row.rss_peak_bytes as f64 / f64::from(1 << 20)),
            format!("{:.0}", row.file_bytes as f64 / f64::from(1 << 20)),
            checks,
        ]
    }

    /// Appends versions, settings, what lazy rows may lose, and what is missing.
    fn notes(&self, text: &mut String) {
        let mut noted = Vec::new();
        for row in &self.rows {
            let name = (&row.engine, &row.variant, row.durable);
            if noted.contains(&name) {
                continue;
            }
            noted.push(name);
            let loses = row.loses.as_ref().map_or_else(String::new, |loses| format!("; {loses}"));
            let _ = writeln!(text, "{}:{} {}: {}{loses}", row.engine, row.variant, row.version, row.settings);
        }
        for name in &self.skipped {
            let _ = writeln!(text, "skipped: {name} is not installed");
        }
        for Failure { row, error } in &self.failures {
            let _ = writeln!(text, "failed: {row}: {error}");
        }
    }
}

/// Returns a number a second, with three digits where it is small.
fn rate(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}

/// Appends lines with their columns aligned: the first three to the left, the last as it is, the others to the right.
fn align<'l>(text: &mut String, lines: impl Iterator<Item = &'l Vec<String>> + Clone) {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines.clone() {
        widths.resize(widths.len().max(line.len()), 0);
        widths.iter_mut().zip(line).for_each(|(width, cell)| *width = cell.len().max(*width));
    }
    for line in lines {
        for (at, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let _ = match at {
                0..3 => write!(text, "{cell:width$}  "),
                _ if at + 1 == line.len() => writeln!(text, "{cell}"),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
    }
}

#[cfg(test)]
mod tests;
