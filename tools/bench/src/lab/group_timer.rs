//! `group-timer`: what the policy of group commit costs in latency and in throughput, at a given load.

use super::{
    Bound, Promise, Row,
    chart::{Axis, Data, Panel, Plot},
    commits::{Committer, LogSample, Place, SEGMENT, Used, run},
    drive::Span,
    experiment::{Experiment, Lab},
    log_insert::RECORD,
    open_loop::{Generator, SAMPLES_PER_S, Sink},
    repeat::{median, once, rounds},
    row::find,
};
use crate::{
    config::Commit,
    group::GroupName,
    random::Random,
    terminal::{Phase, Tally},
    units::{show, thousandths},
};
use foreshore::{Device, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_wal::{Log, LogOptions, Waits};
use hdrhistogram::Histogram;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};

const POLICIES: [&str; 5] = ["greedy", "adaptive", "fixed:150us", "fixed:300us", "fixed:900us"];
/// Headers and the smallest, the default and the largest payload of the paper, rounded up.
const SIZES: [usize; 3] = [40, RECORD, 184];
/// Shares of the rate that `greedy` reaches with a closed loop.
const LOADS: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.9];
const QUICK_LOADS: [f64; 3] = [0.05, 0.5, 0.9];
/// Commits in flight per thread of the closed loop: more than any policy holds in one time of its timer and one write.
const CLIENTS: usize = 4096;
const DELAY: Duration = Duration::from_micros(300);

pub(super) struct GroupTimer;

impl Experiment for GroupTimer {
    fn name(&self) -> &'static str {
        "group-timer"
    }

    fn figure(&self) -> &'static str {
        "Laser Fig. 3, 5e, 5f"
    }

    fn paper(&self) -> &'static str {
        "Timers of 0.15, 0.3 and 0.9 ms against the adaptive one, on a device that takes some 0.16 to 0.4 ms. At 320 k \
         transactions per second and 10-byte records: 0.44, 0.64 and 1.21 ms, adaptive 0.4 ms. Peak load served: 560 k, 640 k and \
         700 k, adaptive 730 k. A short timer costs at high load, where groups queue for the device (W_c); a long one at low \
         load, where commits wait for their group to close (W_b)."
    }

    fn differs(&self) -> &'static str {
        "The device sleeps 300 us whatever is written. `greedy` has no timer: a group is sealed when the device is \
         free. Commits arrive at random (Poisson), whether or not earlier ones are done; latency runs from the scheduled arrival, \
         so what the generator is late by (`late_us`) is in it, for all policies alike. Laser's rule is unchanged in `adaptive`. The five waits come from a pass of their own."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.settings.threads.first().copied().unwrap_or(foreshore_sync::available_parallelism());
        let device = if lab.settings.device == Device::Auto { Device::Delay(DELAY) } else { lab.settings.device };
        let window = lab.settings.secs.unwrap_or(Duration::from_millis(lab.choose(3000, 1000)));
        let span = Span { warm_up: Duration::from_millis(200).min(window), window };
        let (sizes, loads): (&[usize], &[f64]) = lab.choose((&SIZES, &LOADS), (&SIZES[1..2], &QUICK_LOADS));
        let options = LogOptions { segment_bytes: SEGMENT, ..LogOptions::default() };
        let place = Place::new(device)?;
        lab.machine = place.machine()?;
        lab.configure("device", device.to_string());
        lab.configure("threads", threads);
        lab.configure("clients", CLIENTS);
        lab.configure("secs", span.window.as_secs_f64());
        lab.configure("warm_up_secs", span.warm_up.as_secs_f64());
        lab.configure("repeat", lab.settings.repeat.unwrap_or(REPEATS));
        lab.configure("arrivals", "Poisson, from the seed, spread over the threads");
        lab.configure("samples_per_s", SAMPLES_PER_S);
        lab.configure("buffer", BufferKind::default().to_string());
        lab.configure("ring_bytes", options.ring_bytes);
        lab.configure("segment_bytes", options.segment_bytes);
        lab.configure("in_flight", options.in_flight);
        let bench = Bench { device, options, threads, span, seed: lab.settings.seed };
        let policies: Vec<GroupName> = POLICIES.iter().filter_map(|name| name.parse().ok()).collect();
        let cases =
            sizes.iter().flat_map(|&record_bytes| policies.iter().map(move |&group| Case { group, record_bytes }));
        let cases: Vec<Case> = cases.collect();
        let peaks = rounds(lab, REPEATS, &cases, |case| bench.peak(*case, false))?;
        let waits = once(lab, &cases, |case| bench.peak(*case, true))?;
        let mut rows: Vec<Row> = cases.iter().zip(&peaks).map(|(case, measured)| case.peak_row(measured)).collect();
        rows = rows.into_iter().zip(waits).map(|(row, measured)| measured.waits_to(row)).collect();
        let mut points = Vec::new();
        for case in &cases {
            let greedy = [("group", "greedy".into()), ("record_bytes", case.record_bytes.into())];
            let peak = find(&rows, &greedy, "tps").unwrap_or_default();
            points.extend(loads.iter().map(|&fraction| Point {
                case: *case,
                fraction,
                load: (peak * fraction).max(1.0),
            }));
        }
        let measured = rounds(lab, REPEATS, &points, |point| bench.open_loop(point, false))?;
        let waits = once(lab, &points, |point| bench.open_loop(point, true))?;
        let loads = points.iter().zip(measured).map(|(point, measured)| point.row(&measured));
        rows.extend(loads.zip(waits).map(|(row, measured)| measured.waits_to(row)));
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let title = |what: &'static str| {
            move |row: &Row| format!("{what}, {}-byte records", row.number("record_bytes").unwrap_or_default())
        };
        let name = |row: &Row| row.text("group").to_owned();
        let mean = Plot {
            x: Axis::linear("commits per second offered"),
            y: Axis::log("microseconds", 10),
            of: ["load_per_s", "mean_us"],
        };
        let p99 = Plot { of: ["load_per_s", "p99_us"], ..mean.clone() };
        let mut panels = mean.panels(rows, title("mean latency"), name);
        panels.extend(p99.panels(rows, title("p99 latency"), name));
        let of_default = |row: &&Row| row.number("record_bytes") == Some(RECORD as f64);
        let peaks: Vec<&Row> = rows.iter().filter(|row| row.get("load_per_s").is_none()).filter(of_default).collect();
        panels.extend(peak_panel(&peaks));
        panels
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let promise = |fraction: f64| {
            let greedy = mean(rows, "greedy", fraction)?;
            let (best, name) = best_fixed(rows, fraction)?;
            let load = (fraction * 100.0).round();
            let promise = format!("{load} % of greedy's peak, mean latency: greedy / best fixed timer ({name})");
            Some(Promise::new(promise, greedy / best, Bound::Most(1.1)))
        };
        QUICK_LOADS.into_iter().filter_map(promise).collect()
    }

    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let finding = |fraction: f64| {
            let [greedy, adaptive] = ["greedy", "adaptive"].map(|group| mean(rows, group, fraction).map(show));
            let (best, name) = best_fixed(rows, fraction)?;
            let load = (fraction * 100.0).round();
            Some(format!("{load} %: greedy {} us, {name} {} us, adaptive {} us", greedy?, show(best), adaptive?))
        };
        LOADS.into_iter().filter_map(finding).collect()
    }
}

/// Mean latency of a policy at a share of greedy's peak, in microseconds.
fn mean(rows: &[Row], group: &str, fraction: f64) -> Option<f64> {
    let values = [("group", group.into()), ("record_bytes", RECORD.into()), ("load_fraction", fraction.into())];
    find(rows, &values, "mean_us")
}

/// The fixed timer with the lowest mean latency there.
fn best_fixed(rows: &[Row], fraction: f64) -> Option<(f64, &'static str)> {
    let fixed = POLICIES.iter().filter(|name| name.starts_with("fixed"));
    let means = fixed.filter_map(|name| Some((mean(rows, name, fraction)?, *name)));
    means.min_by(|a, b| a.0.total_cmp(&b.0))
}

const REPEATS: usize = 3;

/// Peak rates as bars, each in the colour of its policy's line.
fn peak_panel(peaks: &[&Row]) -> Option<Panel> {
    let rate = |row: &&Row| (row.text("group").to_owned(), row.number("tps").unwrap_or(0.0));
    (!peaks.is_empty()).then(|| Panel {
        title: format!("peak of a closed loop, {RECORD}-byte records"),
        x: Axis::linear(""),
        y: Axis::linear("commits per second"),
        data: Data::bars(peaks.iter().map(rate)),
    })
}

#[derive(Clone, Copy)]
struct Case {
    group: GroupName,
    record_bytes: usize,
}

/// A policy under a load.
struct Point {
    case: Case,
    /// Of greedy's peak.
    fraction: f64,
    load: f64,
}

/// What all points share.
struct Bench {
    device: Device,
    options: LogOptions,
    threads: usize,
    span: Span,
    seed: u64,
}

/// What one window showed.
#[derive(Clone)]
struct Measured {
    /// Commits whose latency was taken.
    latency: Histogram<u32>,
    used: Used,
    waits: Waits,
    /// Mean time by which arrivals were issued late, in microseconds.
    late_us: f64,
}

impl Measured {
    fn new(latency: Histogram<u32>, before: &LogSample, after: &LogSample, late_us: f64) -> Self {
        let waits = after.stats.waits.since(&before.stats.waits);
        Self { latency, used: after.since(before), waits, late_us }
    }

    fn tps(&self) -> f64 {
        self.used.records as f64 / self.used.seconds
    }

    fn mean_us(&self) -> f64 {
        self.latency.mean() / 1000.0
    }

    /// The row with the means of Laser's five waits, which a pass of its own measured: looking at the clock takes time.
    fn waits_to(&self, row: Row) -> Row {
        let us = |wait: Duration| thousandths(wait.as_secs_f64() * 1e6);
        let means = self.waits.means().map(|means| ["a", "b", "c", "d", "e"].into_iter().zip(means.map(us)));
        let waits = means.map(|means| means.map(|(name, us)| (name.to_owned(), us.into())).collect::<Map<_, Value>>());
        row.with("waits", waits)
    }

    fn add_to(&self, row: Row) -> Row {
        let us = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1000.0;
        row.measured("tps", self.tps())
            .measured("mean_us", self.mean_us())
            .measured("p50_us", us(0.5))
            .measured("p99_us", us(0.99))
            .measured("p999_us", us(0.999))
            .measured("max_us", self.latency.max() as f64 / 1000.0)
            .measured("txns_per_group", self.used.records as f64 / self.used.groups.max(1) as f64)
            .measured("bytes_per_group", self.used.group_bytes as f64 / self.used.groups.max(1) as f64)
            .measured("cpu_user_cores", self.used.cpu[0])
            .measured("cpu_system_cores", self.used.cpu[1])
            .measured("late_us", self.late_us)
            .with("samples", self.latency.len())
    }
}

impl Case {
    fn row(&self) -> Row {
        Row::new().with("group", self.group.to_string()).with("record_bytes", self.record_bytes)
    }

    fn peak_row(&self, measured: &[Measured]) -> Row {
        let (median, keys) = median(measured, Measured::tps);
        let row = self.row().with("commit", "pipelined").with("clients", CLIENTS);
        median.add_to(row).with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
    }
}

impl Point {
    fn row(&self, measured: &[Measured]) -> Row {
        let (median, keys) = median(measured, Measured::mean_us);
        let row = self.case.row().measured("load_per_s", self.load).with("load_fraction", self.fraction);
        median.add_to(row).with("repeats", keys)
    }
}

impl Bench {
    fn log(&self, case: Case, measure_waits: bool) -> Result<(Place, Log)> {
        let place = Place::new(self.device)?;
        let log = place.log(&LogOptions { measure_waits, ..case.group.of_log(self.options.clone()) })?;
        Ok((place, log))
    }

    /// As many commits as the log takes.
    fn peak(&self, case: Case, measure_waits: bool) -> Result<Measured> {
        let (_place, log) = self.log(case, measure_waits)?;
        let committer = |_| {
            let committer = Committer::new(&log, case.record_bytes)?;
            Ok(|phase: &Phase| committer.work(phase, Commit::Pipelined, CLIENTS))
        };
        let workers: Result<Vec<_>> = (0..self.threads).map(committer).collect();
        let (tallies, before, after) = run(&log, workers?, self.span)?;
        log.close()?;
        let mut sum = Tally::new();
        tallies.iter().for_each(|tally| sum.add(tally));
        Ok(Measured::new(sum.latency, &before, &after, 0.0))
    }

    /// Commits as they arrive.
    fn open_loop(&self, point: &Point, measure_waits: bool) -> Result<Measured> {
        let (_place, log) = self.log(point.case, measure_waits)?;
        let sink = Arc::new(Sink::new());
        let every = (point.load / SAMPLES_PER_S).ceil() as u64;
        let generator = |thread| {
            let committer = Committer::new(&log, point.case.record_bytes)?;
            let random = Random::new(self.seed, thread as u64);
            let generator =
                Generator::new(committer, random, point.load / self.threads as f64, every, Arc::clone(&sink));
            Ok(|phase: &Phase| generator.work(phase, self.span.warm_up))
        };
        let workers: Result<Vec<_>> = (0..self.threads).map(generator).collect();
        let (late, before, after) = run(&log, workers?, self.span)?;
        log.close()?;
        let (ns, issued) = late.into_iter().fold((0, 0), |sum, late| (sum.0 + late.0, sum.1 + late.1));
        let late_us = ns as f64 / 1000.0 / issued.max(1) as f64;
        Ok(Measured::new(sink.latency(), &before, &after, late_us))
    }
}
