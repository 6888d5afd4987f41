//! `flush-pipelining`: what a wait for the disk costs the processor, and what it saves not to wait.

use super::{
    Bound, Promise, Row,
    bank::Bank,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    repeat::median,
};
use crate::{
    Config,
    config::{Commit, Workload},
    report,
};
use foreshore::Result;

/// Branches: enough that rows are not what clients wait for.
const SCALE: u64 = 10;

pub(super) struct FlushPipelining;

impl Experiment for FlushPipelining {
    fn name(&self) -> &'static str {
        "flush-pipelining"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 4, 5"
    }

    fn paper(&self) -> &'static str {
        "TPC-B on 64 contexts of a Niagara II, log in memory. With a flush for each commit the threads of the baseline spend their \
         time in context switches and the scheduler of the system, and throughput stops at a fraction of the machine. Flush \
         pipelining reaches what asynchronous commit reaches, without its losses."
    }

    fn differs(&self) -> &'static str {
        "The log lies on the device that is named. Blocking commits have a thread per client; pipelined and asynchronous ones \
         no more threads than cores, each with its share of the clients in flight."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let cores = foreshore_sync::available_parallelism();
        let clients = lab.threads(&[1, 2, 8, 16, 32, 64, 128], &[1, 8, 32, 128]);
        let base = Bank::options(lab, SCALE, lab.choose(5000, 2000), lab.settings.device);
        let mut bank = Bank::load(lab, Workload::Tpcb, &base)?;
        lab.machine = bank.machine()?;
        lab.configure("scale", base.scale);
        lab.configure("secs", base.window.secs.as_secs_f64());
        let repeats = lab.settings.repeat.unwrap_or(lab.choose(3, 1));
        lab.configure("repeat", repeats);
        let mut points = Vec::new();
        for commit in [Commit::Blocking, Commit::Pipelined, Commit::Async] {
            points.extend(clients.iter().map(|&clients| (commit, clients)));
        }
        let mut rows: Vec<Vec<report::Row>> = vec![Vec::new(); points.len()];
        for _ in 0..repeats {
            for (row, &(commit, clients)) in rows.iter_mut().zip(&points) {
                let threads = if commit == Commit::Blocking { clients } else { clients.min(cores) };
                let config = Config { commit, clients: clients.div_ceil(threads), ..base.clone() };
                row.push(bank.row(lab, &config, threads)?);
            }
        }
        bank.check(lab, &base)?;
        Ok(points.iter().zip(&rows).map(|(&(commit, clients), rows)| row(commit, clients, rows)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let name = |row: &Row| row.text("commit").to_owned();
        let plot = |label, field| {
            let plot = Plot { x: Axis::log("clients", 2), y: Axis::linear(label), of: ["clients", field] };
            plot.panels(rows, |_| "TPC-B".to_owned(), name)
        };
        [
            plot("commits per second", "tps"),
            plot("voluntary switches per transaction", "voluntary_switches_per_txn"),
            plot("cores, user", "cpu_user_cores"),
            plot("cores, system", "cpu_system_cores"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let of = |commit: Commit| rows.iter().filter(move |row| row.text("commit") == commit.to_string());
        let switches = |row: &Row| row.number("voluntary_switches_per_txn");
        // Each group costs some switches, however many commits it has. So the promise is about as many clients as the
        // benchmarks have in flight; fewer clients have nothing to do but wait.
        let in_flight = Config::default().clients as f64;
        let many = |row: &&Row| {
            let (clients, threads) = (row.number("clients"), row.number("threads"));
            clients.zip(threads).is_some_and(|(clients, threads)| clients >= in_flight * threads)
        };
        let most = of(Commit::Pipelined).filter(many).filter_map(switches).fold(f64::NAN, f64::max);
        let least = of(Commit::Blocking).filter_map(switches).fold(f64::NAN, f64::min);
        vec![
            Promise::new("switches per pipelined transaction, 64 in flight a thread", most, Bound::Most(0.1)),
            Promise::new("switches per blocking transaction, the fewest", least, Bound::Least(1.0)),
        ]
    }
}

fn row(commit: Commit, clients: usize, rows: &[report::Row]) -> Row {
    let (median, keys) = median(rows, |row: &report::Row| row.tps);
    Row::new()
        .with("commit", commit.to_string())
        .with("clients", clients)
        .with("threads", median.threads)
        .measured("tps", median.tps)
        .measured("p50_us", median.latency.p50_us)
        .measured("p99_us", median.latency.p99_us)
        .measured("voluntary_switches_per_txn", median.time.voluntary_switches_per_txn)
        .measured("cpu_user_cores", median.time.cpu_user_cores)
        .measured("cpu_system_cores", median.time.cpu_system_cores)
        .measured("cpu_stolen_cores", median.time.cpu_stolen_cores)
        .measured("txns_per_group", median.log.txns_per_group)
        .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
}
