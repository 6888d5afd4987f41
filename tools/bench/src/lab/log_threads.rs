//! `log-threads`: durable commits of one small record, by threads.

use super::{
    Bound, Promise, Row,
    chart::{Axis, Panel, Plot},
    commits::{Committer, Place, SEGMENT, Used, run},
    drive::Span,
    experiment::{Experiment, Lab},
    log_insert::RECORD,
    repeat::{median, rounds},
    subject::built,
};
use crate::{
    config::Commit,
    group::GroupName,
    terminal::{Phase, Tally},
};
use foreshore::{Device, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_wal::LogOptions;
use hdrhistogram::Histogram;
use std::time::Duration;

const BUFFERS: [&str; 6] = ["mutex", "hybrid", "delegated", "laser", "faa", "lanes"];
/// Commits in flight per thread where they are pipelined.
const CLIENTS: usize = 64;
/// The device without a cost.
const NULL: &str = "null";

pub(super) struct LogThreads;

impl Experiment for LogThreads {
    fn name(&self) -> &'static str {
        "log-threads"
    }

    fn figure(&self) -> &'static str {
        "Laser Fig. 5a-d"
    }

    fn paper(&self) -> &'static str {
        "Two ten-core Xeons, RAID 5 with a flash-backed write cache, updates of YCSB in OceanBase, 20 threads and 3,200 clients by \
         default. By threads the one-threaded baseline saturates at 8, Aether bends at 12, Laser goes on almost linearly. \
         Peaks: baseline 300 k, Aether 520 k, Laser with a fixed timer 640 k and with the adaptive one 730 k transactions per \
         second. At 32 clients: 2.9 ms, 1.1 ms, 0.6 ms and 0.4 ms."
    }

    fn differs(&self) -> &'static str {
        "The log alone: a transaction is one 120-byte record, appended and made durable. A blocking commit waits for its own \
         record and may write the group itself; a pipelined one leaves a ticket, 64 in flight per thread. `hybrid` and \
         `delegated` stand for Aether. The null device takes no time: there the rows show the cost of the log itself."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 8, 32, 128], &[2, 32]);
        let window = lab.settings.secs.unwrap_or(Duration::from_millis(lab.choose(2000, 400)));
        let span = Span { warm_up: Duration::from_millis(100).min(window), window };
        let rounds_of = lab.choose(3, 3);
        let options = LogOptions { segment_bytes: SEGMENT, ..LogOptions::default() };
        let place = Place::new(lab.settings.device)?;
        lab.machine = place.machine()?;
        let backend = place.backend();
        drop(place);
        lab.configure("record_bytes", RECORD);
        lab.configure("threads", threads.clone());
        lab.configure("device", lab.settings.device.to_string());
        lab.configure("secs", span.window.as_secs_f64());
        lab.configure("warm_up_secs", span.warm_up.as_secs_f64());
        lab.configure("repeat", lab.settings.repeat.unwrap_or(rounds_of));
        lab.configure("ring_bytes", options.ring_bytes);
        lab.configure("segment_bytes", options.segment_bytes);
        lab.configure("in_flight", options.in_flight);
        lab.configure("group", GroupName::Own(options.group).to_string());
        let modes: &[(Commit, usize)] = lab.choose(
            &[(Commit::Blocking, 1), (Commit::Pipelined, 1), (Commit::Pipelined, CLIENTS)],
            &[(Commit::Blocking, 1), (Commit::Pipelined, CLIENTS)],
        );
        let devices = [(lab.settings.device, backend), (Device::Null, NULL.to_owned())];
        let mut points = Vec::new();
        for (device, name) in &devices {
            for &(commit, clients) in modes {
                for &threads in &threads {
                    let point =
                        |buffer| Point { buffer, threads, clients, commit, device: *device, name: name.clone() };
                    points.extend(built(&BUFFERS).into_iter().map(point));
                }
            }
        }
        let measured = rounds(lab, rounds_of, &points, |point| point.measure(&options, span))?;
        Ok(points.iter().zip(measured).map(|(point, measured)| point.row(&measured)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let title = |row: &Row| {
            let (commit, device, clients) = (row.text("commit"), row.text("device"), row.number("clients"));
            format!("{commit}, {} in flight a thread, {device}", clients.unwrap_or_default())
        };
        let name = |row: &Row| row.text("buffer").to_owned();
        let rates = Plot { x: Axis::log("threads", 2), y: Axis::log("commits per second", 10), of: ["threads", "tps"] };
        let latency = Plot { y: Axis::log("p99, microseconds", 10), of: ["threads", "p99_us"], ..rates.clone() };
        let mut panels = Vec::new();
        // Beside each rate its latency.
        for (rate, latency) in rates.panels(rows, title, name).into_iter().zip(latency.panels(rows, title, name)) {
            panels.extend([rate, latency]);
        }
        panels
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let buffer = BufferKind::default().to_string();
        let claims = [(Commit::Pipelined, CLIENTS, 2, 60.0, 0.7), (Commit::Blocking, 1, 32, 8.0, 0.5)];
        let promise = |(commit, clients, threads, of_k, of_n): (Commit, usize, usize, f64, f64)| {
            let row = |is_null: bool| {
                let values = [
                    ("buffer", buffer.as_str().into()),
                    ("commit", commit.to_string().into()),
                    ("clients", clients.into()),
                    ("threads", threads.into()),
                ];
                rows.iter().find(|row| (row.text("device") == NULL) == is_null && row.is(&values))
            };
            let (tps, k) = (row(false)?.number("tps")?, row(false)?.number("syncs_per_s")?);
            let least = f64::min(of_k * k, of_n * row(true)?.number("tps")?);
            let what = format!("{buffer}, {threads} threads, {commit}: tps / min({of_k} K, {of_n} N)");
            Some(Promise::new(what, tps / least, Bound::Least(1.0)))
        };
        claims.into_iter().filter_map(promise).collect()
    }

    fn findings(&self, _: &[Row]) -> Vec<String> {
        vec![
            "K is syncs_per_s of the row: durable 4 KiB writes a second, one at a time, just before it; N is the same row's \
             tps on the null device"
                .to_owned(),
        ]
    }
}

struct Point {
    buffer: BufferKind,
    threads: usize,
    clients: usize,
    commit: Commit,
    device: Device,
    /// Of the backend.
    name: String,
}

/// What one window showed.
#[derive(Clone)]
struct Measured {
    commits: u64,
    latency: Histogram<u32>,
    used: Used,
    /// Just before: a disk that others write to is not the same for long.
    syncs_per_s: f64,
}

impl Measured {
    fn tps(&self) -> f64 {
        self.commits as f64 / self.used.seconds
    }
}

impl Point {
    fn measure(&self, options: &LogOptions, span: Span) -> Result<Measured> {
        let place = Place::new(self.device)?;
        let syncs_per_s = place.syncs_per_s()?;
        let log = place.log(&LogOptions { buffer: self.buffer.maker(), ..options.clone() })?;
        let committer = |_| {
            let committer = Committer::new(&log, RECORD)?;
            Ok(move |phase: &Phase| committer.work(phase, self.commit, self.clients))
        };
        let workers: Result<Vec<_>> = (0..self.threads).map(committer).collect();
        let (tallies, before, after) = run(&log, workers?, span)?;
        log.close()?;
        let mut sum = Tally::new();
        tallies.iter().for_each(|tally| sum.add(tally));
        Ok(Measured { commits: sum.commits, latency: sum.latency, used: after.since(&before), syncs_per_s })
    }

    fn row(&self, measured: &[Measured]) -> Row {
        let (median, keys) = median(measured, Measured::tps);
        let us = |quantile| median.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let per_commit = |count: u64| count as f64 / median.commits.max(1) as f64;
        Row::new()
            .with("buffer", self.buffer.to_string())
            .with("threads", self.threads)
            .with("clients", self.clients)
            .with("commit", self.commit.to_string())
            .with("device", self.name.as_str())
            .with("record_bytes", RECORD)
            .measured("tps", median.tps())
            .measured("mean_us", median.latency.mean() / 1000.0)
            .measured("p50_us", us(0.5))
            .measured("p99_us", us(0.99))
            .measured("p999_us", us(0.999))
            .measured("cpu_user_cores", median.used.cpu[0])
            .measured("cpu_system_cores", median.used.cpu[1])
            .measured("voluntary_switches_per_txn", per_commit(median.used.switches))
            .measured("txns_per_group", median.commits as f64 / median.used.groups.max(1) as f64)
            .measured("syncs_per_s", median.syncs_per_s)
            .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
    }
}
