//! `breakdown`: where the time of the clients goes as one technique after the other is added.

use super::{
    Row,
    bank::Bank,
    chart::{Axis, Data, Panel},
    experiment::{Experiment, Lab},
    ladder::{Step, configure},
    repeat::median,
};
use crate::{config::Workload, report};
use foreshore::{Device, Result};
use serde_json::Value;
use std::time::Duration;

/// Clients of TPC-B in the paper: 60.
const CLIENTS: usize = 60;
/// The parts, in the order in which they are drawn.
const PARTS: [&str; 8] = ["work", "log_insert", "log_wait", "lock_wait", "latch_wait", "io", "retry", "idle"];

pub(super) struct BreakdownLab;

impl Experiment for BreakdownLab {
    fn name(&self) -> &'static str {
        "breakdown"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 2, 7"
    }

    fn paper(&self) -> &'static str {
        "Shares of processor time on 64 contexts of a Niagara II. Fig. 2, TPC-B, 60 clients: the baseline is idle for 75 % of \
         the time, with early lock release and without its waits still for 20 %, and with flush pipelining it is busy, with a \
         growing part for contention in the log buffer. Fig. 7, UPDATE_LOCATION of TATP with both techniques: as load \
         increases, contention for the mutex of the log buffer takes more than 35 %."
    }

    fn differs(&self) -> &'static str {
        "Shares of the time of the workers, by the clocks of the engine, and not of the processors: a worker that waits \
         for a core is in `work` or `idle`. Blocking commits have a thread per client; pipelined ones no more threads \
         than cores. The log lies in memory and is durable after 100 us, unless a device is named. Two cores do not \
         contend for a log buffer as 64 contexts do: `log_insert` stays small."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let cores = foreshore_sync::available_parallelism();
        let device = match lab.settings.device {
            Device::Auto => Device::Delay(Duration::from_micros(100)),
            chosen => chosen,
        };
        let repeats = lab.settings.repeat.unwrap_or(lab.choose(3, 1));
        lab.configure("repeat", repeats);
        let loads = lab.threads(&[1, 2, 4, 8, 16, 32, 64], &[1, 8, 64]);
        let most = lab.settings.threads.iter().copied().max().unwrap_or(CLIENTS);
        let steps = Step::all();
        let pipelining = steps.iter().find(|step| step.name == "+pipelining");
        let of_load: Vec<_> = pipelining.iter().flat_map(|step| loads.iter().map(|&load| (*step, load))).collect();
        let of_step: Vec<_> = steps.iter().map(|step| (step, most)).collect();
        let mut rows = Vec::new();
        for (workload, points) in [(Workload::Tpcb, of_step), (Workload::TatpUpdateLocation, of_load)] {
            let base = configure(lab, workload, device, lab.choose(3000, 1000));
            let mut bank = Bank::load(lab, workload, &base)?;
            lab.machine = bank.machine()?;
            let mut measured: Vec<Vec<report::Row>> = vec![Vec::new(); points.len()];
            for _ in 0..repeats {
                for (row, (step, clients)) in measured.iter_mut().zip(&points) {
                    let (config, threads) = step.config(&base, *clients, cores);
                    row.push(bank.row(lab, &config, threads)?);
                }
            }
            bank.check(lab, &base)?;
            rows.extend(points.iter().zip(&measured).map(|(&(step, clients), of)| row(workload, step, clients, of)));
        }
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let panel = |title: &str, workload: Workload, name: fn(&Row) -> String| {
            let of = rows.iter().filter(|row| row.text("workload") == workload.to_string());
            let bars = of.map(|row| (name(row), PARTS.map(|part| share(row, part)).to_vec())).collect();
            let parts = PARTS.map(str::to_owned).to_vec();
            let (x, y) = (Axis::linear(""), Axis::linear("share of the time"));
            Panel { title: title.to_owned(), x, y, data: Data::Bars { parts, bars } }
        };
        vec![
            panel("TPC-B, step by step", Workload::Tpcb, |row| row.text("step").to_owned()),
            panel("UPDATE_LOCATION, mutex, by clients", Workload::TatpUpdateLocation, |row| {
                row.number("clients").unwrap_or(0.0).to_string()
            }),
        ]
    }

    /// The largest parts at both ends of the ladder.
    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let tpcb = rows.iter().filter(|row| row.text("workload") == Workload::Tpcb.to_string());
        let largest = |row: &Row| {
            let mut parts = PARTS.map(|part| (share(row, part), part));
            parts.sort_by(|a, b| b.0.total_cmp(&a.0));
            let named = parts[..3].iter().map(|(share, part)| format!("{part} {:.0} %", share * 100.0));
            format!("TPC-B, {}: {}", row.text("step"), named.collect::<Vec<_>>().join(", "))
        };
        let all: Vec<String> = tpcb.map(largest).collect();
        all.first().into_iter().chain(all.last()).cloned().collect()
    }
}

/// The share of one part of a row.
fn share(row: &Row, part: &str) -> f64 {
    row.get("breakdown").and_then(|of| of.get(part)).and_then(Value::as_f64).unwrap_or(0.0)
}

fn row(workload: Workload, step: &Step, clients: usize, measured: &[report::Row]) -> Row {
    let (middle, keys) = median(measured, |row: &report::Row| row.tps);
    step.fields()
        .with("workload", workload.to_string())
        .with("clients", clients)
        .with("threads", middle.threads)
        .measured("tps", middle.tps)
        .measured("cpu_user_cores", middle.time.cpu_user_cores)
        .measured("cpu_system_cores", middle.time.cpu_system_cores)
        .with("breakdown", serde_json::to_value(middle.time.breakdown).unwrap_or(Value::Null))
        .measured("cpu_stolen_cores", middle.time.cpu_stolen_cores)
        .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
}
