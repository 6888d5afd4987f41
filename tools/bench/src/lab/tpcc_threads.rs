//! `tpcc-threads`: two transactions of TPC-C, each alone, by threads.

use super::{
    Row,
    bank::Bank,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    repeat::{median, rounds},
    row::find,
};
use crate::{
    Config,
    config::{Commit, Workload},
    report,
};
use foreshore::{Device, Result};

const WORKLOADS: [Workload; 2] = [Workload::TpccPayment, Workload::TpccNewOrder];
/// One, whose row all payments change, and as many as few threads seldom meet in.
const WAREHOUSES: [u64; 2] = [1, 4];

pub(super) struct TpccThreads;

#[derive(Clone, Copy, Debug)]
struct Point {
    workload: Workload,
    threads: usize,
}

impl Point {
    fn row(&self, warehouses: u64, measured: &[report::Row]) -> Row {
        let (middle, keys) = median(measured, |row: &report::Row| row.tps);
        Row::new()
            .with("workload", self.workload.to_string())
            .with("warehouses", warehouses)
            .with("threads", self.threads)
            .measured("tps", middle.tps)
            .measured("p50_us", middle.latency.p50_us)
            .measured("p99_us", middle.latency.p99_us)
            .measured("voluntary_switches_per_txn", middle.time.voluntary_switches_per_txn)
            .with("breakdown", serde_json::to_value(middle.time.breakdown).unwrap_or_default())
            .measured("cpu_stolen_cores", middle.time.cpu_stolen_cores)
            .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
    }
}

impl Experiment for TpccThreads {
    fn name(&self) -> &'static str {
        "tpcc-threads"
    }

    fn figure(&self) -> &'static str {
        "Multicore support in databases, slides on Payment and New Order"
    }

    fn paper(&self) -> &'static str {
        "Payment and New Order of TPC-C, each alone, by threads, on a Sun T2000 with 32 contexts, for the best three of six \
         engines. Payment is the smallest transaction of the mix: it reads 1 to 3 rows and updates 4, one of them in a table \
         that all contend for. It stresses locks, log and probes of B-trees. New Order is of medium weight: it inserts a dozen \
         rows beside its reads and updates, and stresses B-trees and locks. Shore-MT and database X scale, and both have their \
         next bottleneck in inserts into the log."
    }

    fn differs(&self) -> &'static str {
        "Foreshore alone, with one warehouse, whose row all payments lock, and with four. Threads beyond the cores show what \
         waits cost, not scaling. There are no terminals and no think times. Commits block, and data and log lie in memory, \
         unless a device is named. The twelve consistency conditions are checked when all rows are done."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 4, 8, 16, 32], &[1, 2, 8, 32]);
        let device = if lab.settings.device == Device::Auto { Device::Null } else { lab.settings.device };
        let scales = lab.settings.scale.map_or(WAREHOUSES.to_vec(), |warehouses| vec![warehouses]);
        let repeats = lab.choose(3, 1);
        let of = |&threads: &usize| WORKLOADS.map(|workload| Point { workload, threads });
        let points: Vec<Point> = threads.iter().flat_map(of).collect();
        let mut rows = Vec::new();
        for warehouses in scales {
            let base = Bank::options(lab, warehouses, lab.choose(3000, 1000), device);
            let base = Config { commit: Commit::Blocking, scale: warehouses, ..base };
            lab.configure("commit", base.commit.to_string());
            lab.configure("device", device.to_string());
            lab.configure("secs", base.window.secs.as_secs_f64());
            lab.configure("repeat", lab.settings.repeat.unwrap_or(repeats));
            let mut bank = Bank::load(lab, WORKLOADS[0], &base)?;
            lab.machine = bank.machine()?;
            let measured = rounds(lab, repeats, &points, |point| {
                bank.set_workload(point.workload);
                bank.row(lab, &base, point.threads)
            })?;
            bank.check(lab, &base)?;
            rows.extend(points.iter().zip(&measured).map(|(point, measured)| point.row(warehouses, measured)));
        }
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot =
            Plot { x: Axis::log("threads", 2), y: Axis::linear("transactions per second"), of: ["threads", "tps"] };
        let title = |row: &Row| {
            let is_payment = row.text("workload") == Workload::TpccPayment.to_string();
            if is_payment { "Payment".to_owned() } else { "New Order".to_owned() }
        };
        let name = |row: &Row| match row.number("warehouses") {
            Some(1.0) => "1 warehouse".to_owned(),
            warehouses => format!("{} warehouses", warehouses.unwrap_or_default()),
        };
        plot.panels(rows, title, name)
    }

    /// What four warehouses give over one, with the most threads.
    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let most = rows.iter().filter_map(|row| row.number("threads")).fold(1.0, f64::max) as usize;
        let gain = |workload: Workload| {
            let tps = |warehouses: u64| {
                let workload = workload.to_string();
                let at = [("workload", workload.into()), ("warehouses", warehouses.into()), ("threads", most.into())];
                find(rows, &at, "tps")
            };
            Some(format!("{workload}, {most} threads: 4 warehouses / 1: {:.2}", tps(4)? / tps(1)?))
        };
        WORKLOADS.into_iter().filter_map(gain).collect()
    }
}
