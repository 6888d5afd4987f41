//! `commit-ladder`: what each technique adds to the throughput of durable commits, one upon the other.

use super::{
    Bound, Promise, Row,
    bank::Bank,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    ladder::{Step, configure},
    repeat::median,
    row::find,
};
use crate::{config::Workload, report};
use foreshore::{Device, Result};
use std::time::Duration;

/// Clients at which the project promises something.
const PROMISED: usize = 32;

pub(super) struct CommitLadder;

impl Experiment for CommitLadder {
    fn name(&self) -> &'static str {
        "commit-ladder"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 9"
    }

    fn paper(&self) -> &'static str {
        "UPDATE_LOCATION of TATP on 64 contexts of a Niagara II, up to 64 clients. Early lock release and flush pipelining give \
         the largest step, 68 % above the baseline; the scalable log buffer (CD) adds 7 %."
    }

    fn differs(&self) -> &'static str {
        "The log lies in memory and is durable after 100 us, unless a device is named. Blocking commits have a thread per \
         client; pipelined ones no more threads than cores, each with its share of the clients in flight. On two cores \
         few threads meet in the log buffer at once, so its steps show the cost of one append and not of contention. `lanes` is \
         the engine's own buffer, and its step the whole ladder."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let cores = foreshore_sync::available_parallelism();
        let clients = lab.threads(&[1, 2, 4, 8, 16, 32, 64], &[1, 8, PROMISED]);
        let device = match lab.settings.device {
            Device::Auto => Device::Delay(Duration::from_micros(100)),
            chosen => chosen,
        };
        let repeats = lab.settings.repeat.unwrap_or(lab.choose(3, 1));
        let base = configure(lab, Workload::TatpUpdateLocation, device, lab.choose(3000, 1000));
        lab.configure("repeat", repeats);
        let mut bank = Bank::load(lab, Workload::TatpUpdateLocation, &base)?;
        lab.machine = bank.machine()?;
        let steps = Step::all();
        let mut rows = Vec::new();
        for &clients in &clients {
            let mut measured: Vec<Vec<report::Row>> = vec![Vec::new(); steps.len()];
            // In turn, so that what disturbs the machine meets all alike.
            for _ in 0..repeats {
                for (row, step) in measured.iter_mut().zip(&steps) {
                    let (config, threads) = step.config(&base, clients, cores);
                    row.push(bank.row(lab, &config, threads)?);
                }
            }
            let baseline = median(&measured[0], |row: &report::Row| row.tps).0.tps;
            rows.extend(steps.iter().zip(&measured).map(|(step, measured)| row(step, clients, measured, baseline)));
        }
        bank.check(lab, &base)?;
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot { x: Axis::log("clients", 2), y: Axis::linear("commits per second"), of: ["clients", "tps"] };
        plot.panels(rows, |_| "TATP, UPDATE_LOCATION".to_owned(), |row| row.text("step").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let whole = Step::all().pop().map_or(String::new(), |step| step.name);
        let values = [("step", whole.into()), ("clients", PROMISED.into())];
        let speedup = find(rows, &values, "speedup");
        let promise = |speedup| Promise::new("the whole ladder / baseline, 32 clients", speedup, Bound::Least(3.0));
        speedup.map(promise).into_iter().collect()
    }

    /// What each step gains at the most clients.
    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let most = rows.iter().filter_map(|row| row.number("clients")).fold(0.0, f64::max);
        let of = rows.iter().filter(|row| row.number("clients") == Some(most));
        let gain = |row: &Row| {
            Some(format!("{} / baseline at {most} clients: {:.2}", row.text("step"), row.number("speedup")?))
        };
        of.filter_map(gain).collect()
    }
}

fn row(step: &Step, clients: usize, measured: &[report::Row], baseline: f64) -> Row {
    let (middle, keys) = median(measured, |row: &report::Row| row.tps);
    step.fields()
        .with("clients", clients)
        .with("threads", middle.threads)
        .measured("tps", middle.tps)
        .measured("speedup", middle.tps / baseline)
        .measured("p50_us", middle.latency.p50_us)
        .measured("p99_us", middle.latency.p99_us)
        .measured("voluntary_switches_per_txn", middle.time.voluntary_switches_per_txn)
        .measured("txns_per_group", middle.log.txns_per_group)
        .measured("cpu_stolen_cores", middle.time.cpu_stolen_cores)
        .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
}
