//! `elr`: what it is worth to release locks before the disk has the commit.

use super::{
    Bound, Promise, Row,
    bank::Bank,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    repeat::median,
};
use crate::{
    Config,
    config::{Commit, Parts, Records, Storage, Workload},
    report,
};
use foreshore::{Device, Result};
use foreshore_classics::early_release::EarlyRelease;
use std::time::Duration;

/// Committing threads, each of which waits for its commit.
const THREADS: usize = 32;
/// Branches: few transactions of 32 meet by chance.
const SCALE: u64 = 100;

pub(super) struct Elr;

impl Experiment for Elr {
    fn name(&self) -> &'static str {
        "elr"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 3"
    }

    fn paper(&self) -> &'static str {
        "TPC-B on 64 contexts of a Niagara II. Low skew: hardly any transaction asks for a row that another holds, and nothing is gained. \
         In the middle the speedup is largest, 35 with a log that takes 10 ms and 2 with one that takes 100 us. Very high \
         skew: transactions meet whether or not the log is waited for."
    }

    fn differs(&self) -> &'static str {
        "Skew is that of the draw of accounts; tellers, and with them branches, are drawn alike. The log lies in memory and is \
         durable after the delay. The curve does not come down at the right end: there one transaction follows the other on one row, \
         which it holds for 20 us, and without early release for the delay and two switches of threads more. At 1 ms the clients are \
         the limit before the row is. On the paper's slower threads a transaction takes as long as the disk."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let delays: &[u64] = lab.choose(&[0, 100, 1000, 10_000], &[1000]);
        let skews: &[f64] =
            lab.choose(&[0.0, 0.5, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0], &[0.0, 0.85, 1.25, 2.0, 5.0]);
        let threads = lab.threads(&[THREADS], &[THREADS])[0];
        let base = Bank::options(lab, SCALE, lab.choose(5000, 2000), Device::Null);
        let memory = Storage { memory: 4 << 30, ..base.storage };
        let base = Config { commit: Commit::Blocking, storage: memory, ..base };
        lab.configure("scale", base.scale);
        lab.configure("threads", threads);
        lab.configure("secs", base.window.secs.as_secs_f64());
        let repeats = lab.settings.repeat.unwrap_or(lab.choose(3, 1));
        lab.configure("repeat", repeats);
        let mut rows = Vec::new();
        for &delay in delays {
            let device = if delay == 0 { Device::Null } else { Device::Delay(Duration::from_micros(delay)) };
            let base = Config { storage: Storage { device, ..base.storage }, ..base.clone() };
            let mut bank = Bank::load(lab, Workload::Tpcb, &base)?;
            for &skew in skews {
                let records = Records { skew, ..base.records };
                let modes = [EarlyRelease::Off, EarlyRelease::SharedOnly, EarlyRelease::Full];
                let mut measured: [Vec<report::Row>; 3] = Default::default();
                // In turn, so that what disturbs the machine meets all alike.
                for _ in 0..repeats {
                    for (row, elr) in measured.iter_mut().zip(modes) {
                        let parts = Parts { elr, ..base.parts };
                        row.push(bank.row(lab, &Config { records, parts, ..base.clone() }, threads)?);
                    }
                }
                let of = |at: usize| median(&measured[at], |row: &report::Row| row.tps);
                let off = of(0).0.tps;
                for (at, elr) in modes.into_iter().enumerate() {
                    let (middle, keys) = of(at);
                    rows.push(
                        Row::new()
                            .with("elr", elr.to_string())
                            .with("delay_us", delay)
                            .with("skew", skew)
                            .with("threads", threads)
                            .measured("tps", middle.tps)
                            .measured("speedup", middle.tps / off)
                            .measured("p50_us", middle.latency.p50_us)
                            .measured("p99_us", middle.latency.p99_us)
                            .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>()),
                    );
                }
            }
            bank.check(lab, &base)?;
        }
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let full: Vec<Row> = rows.iter().filter(|row| is_full(row)).cloned().collect();
        let plot = Plot { x: Axis::linear("skew, Zipf's s"), y: Axis::log("speedup", 10), of: ["skew", "speedup"] };
        plot.panels(
            &full,
            |_| "full over off".to_owned(),
            |row| format!("{} us", row.number("delay_us").unwrap_or(0.0)),
        )
    }

    /// The shape of the curve: its ends beside its peak.
    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let mut delays: Vec<f64> = rows.iter().filter_map(|row| row.number("delay_us")).collect();
        delays.dedup();
        let curve = |delay: f64| {
            let of: Vec<_> =
                rows.iter().filter(|row| is_full(row) && row.number("delay_us") == Some(delay)).map(point).collect();
            let peak = of.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let [(left, low), .., (right, high)] = of[..] else { return None };
            Some(format!(
                "full / off at {delay} us: {low:.1} at skew {left}, {:.1} at {}, {high:.1} at {right}",
                peak.1, peak.0
            ))
        };
        delays.into_iter().filter_map(curve).collect()
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let speedups = |delay: Option<f64>| {
            let of = move |row: &&Row| is_full(row) && (delay.is_none() || row.number("delay_us") == delay);
            rows.iter().filter(of).filter_map(|row| row.number("speedup"))
        };
        let best = speedups(Some(1000.0)).fold(f64::NAN, f64::max);
        let least = speedups(None).fold(f64::NAN, f64::min);
        vec![
            Promise::new("full / off at 1000 us, the best skew", best, Bound::Least(5.0)),
            Promise::new("full / off, the least of all points", least, Bound::Least(0.95)),
        ]
    }
}

/// Skew and speedup.
fn point(row: &Row) -> (f64, f64) {
    (row.number("skew").unwrap_or(f64::NAN), row.number("speedup").unwrap_or(f64::NAN))
}

fn is_full(row: &Row) -> bool {
    row.text("elr") == EarlyRelease::Full.to_string()
}
