//! One row, measured in a process of its own: memory and processor time are then those of one engine.

use crate::{
    drive::{Phase, Shared, Tally, work},
    engine::Engine,
    error::Result,
    load,
    proc::{self, DeviceUse},
    spec::Spec,
    verify::{Checks, verify},
    workload::{BATCH, CHURNED_ROWS, DELETED_ROWS, Shape, Table, Workload},
};
use serde::{Deserialize, Serialize};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Time before the window, in which caches fill and threads start.
const WARM_UP: Duration = Duration::from_secs(1);
/// How often the measuring thread looks at the clock.
const TICK: Duration = Duration::from_millis(5);
/// Stolen time that marks a row, as a fraction of all cores.
const STEAL: f64 = 0.01;
/// How long the threads of an engine must be idle until its work in the background is done, and the share of a core
/// that they may use meanwhile. The longest wait for that.
const QUIET: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 2_000 });
const IDLE: f64 = 0.002;
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 120 });

/// A measured row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) engine: String,
    pub(crate) version: String,
    pub(crate) variant: String,
    pub(crate) settings: String,
    /// What a crash can lose; `null` for durable rows.
    pub(crate) loses: Option<String>,
    pub(crate) workload: Workload,
    pub(crate) shape: Option<Shape>,
    /// Bytes of a value; `null` where rows have 100 bytes.
    pub(crate) value_bytes: Option<u64>,
    pub(crate) threads: usize,
    /// Transactions in flight a thread.
    pub(crate) clients: usize,
    pub(crate) durable: bool,
    pub(crate) seconds: f64,
    pub(crate) commits: u64,
    /// Transactions a second.
    pub(crate) tps: f64,
    /// Rows, lookups or ranges a second; transactions where they are the operation.
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of all threads, the engine's own included, over commits.
    pub(crate) cpu_us_per_txn: f64,
    /// As `cpu_us_per_txn`, over operations.
    pub(crate) cpu_us_per_op: f64,
    pub(crate) cpu_cores: f64,
    /// After the last transaction of a row that ends when its work is done: time until the engine was idle, and its
    /// processor time. `cpu_us_per_txn`, `cpu_us_per_op` and the device's numbers include it.
    pub(crate) background_seconds: f64,
    pub(crate) background_cpu_seconds: f64,
    /// Of the whole device: other processes count too.
    pub(crate) device_bytes_per_txn: Option<f64>,
    pub(crate) flushes_per_txn: Option<f64>,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) cpu_stolen_cores: f64,
    /// Whether more than 1 % of the cores was stolen.
    pub(crate) is_stolen: bool,
    pub(crate) checks: Checks,
    /// The other rounds, by throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) repeats: Vec<Row>,
}

impl Row {
    /// Whether all checks hold, in all rounds.
    pub(crate) fn passed(&self) -> bool {
        self.checks.values().all(|&holds| holds) && self.repeats.iter().all(Self::passed)
    }
}

/// Loads and settles a new database in the directory of `spec`.
///
/// # Errors
/// What the engine gives.
pub(crate) fn load(spec: &Spec) -> Result<()> {
    let engine = spec.open()?;
    for (table, mut rows) in load::loaded(spec) {
        engine.load(table, &mut *rows)?;
    }
    engine.settle()?;
    engine.close()
}

/// Measures a row on the loaded database in the directory of `spec`, checks it, closes it and checks it reopened.
///
/// # Errors
/// What the engine gives.
pub(crate) fn measure(spec: &Spec) -> Result<Row> {
    proc::reset_peak();
    let engine = spec.open()?;
    for table in 0..spec.workload.loaded_tables() {
        engine.scan(Table(table), &mut |_, _| {})?;
    }
    let (tally, window) = run(&*engine, spec)?;
    let rss_peak_bytes = proc::peak_bytes();
    let mut checks = verify(&*engine, spec, &tally, "live")?;
    engine.close()?;
    let file_bytes = proc::allocated_bytes(&spec.dir)?;
    let engine = spec.open()?;
    checks.extend(verify(&*engine, spec, &tally, "reopened")?);
    engine.close()?;
    row(spec, &tally, &window, (rss_peak_bytes, file_bytes), checks)
}

/// What is read at the ends of the window.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    cpu_seconds: f64,
    stolen_seconds: f64,
    device: Option<DeviceUse>,
}

impl Sample {
    fn take(spec: &Spec) -> Self {
        Self {
            at: Instant::now(),
            cpu_seconds: proc::cpu_seconds(),
            stolen_seconds: proc::stolen_seconds(),
            device: DeviceUse::of(&spec.dir),
        }
    }
}

/// The measured time: its beginning, its end, and the end of the work that it left to the engine's own threads.
struct Window {
    begun: Sample,
    ended: Sample,
    idle: Sample,
}

fn run(engine: &dyn Engine, spec: &Spec) -> Result<(Tally, Window)> {
    let (phase, shared) = (Phase::new(), Shared::new(spec));
    let window = Duration::from_secs_f64(spec.secs);
    let is_once = spec.workload.is_once();
    if is_once {
        phase.raise(Phase::MEASURE);
    }
    thread::scope(|scope| {
        let mut begun = Sample::take(spec);
        let workers: Vec<_> = (0..spec.threads)
            .map(|thread| {
                let (phase, shared) = (&phase, &shared);
                scope.spawn(move || work(engine, spec, thread, shared, phase))
            })
            .collect();
        let mut ended = None;
        if !is_once {
            sleep_while(&phase, || begun.at.elapsed() < WARM_UP.min(window));
            begun = Sample::take(spec);
            phase.raise(Phase::MEASURE);
            // A row without a single transaction says nothing: the window waits for one.
            sleep_while(&phase, || begun.at.elapsed() < window || !phase.has_timed());
            ended = Some(Sample::take(spec));
            phase.raise(Phase::STOP);
        }
        let mut tally = Tally::new();
        for worker in workers {
            tally.add(&worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        let ended = ended.unwrap_or_else(|| Sample::take(spec));
        let idle = if is_once { wait_until_idle(spec, &ended) } else { ended };
        Ok((tally, Window { begun, ended, idle }))
    })
}

/// Waits until the engine's own threads are idle. Returns what was read then, at the time when they became so.
fn wait_until_idle(spec: &Spec, ended: &Sample) -> Sample {
    let mut last = *ended;
    loop {
        thread::sleep(QUIET);
        let now = Sample::take(spec);
        let used = now.cpu_seconds - last.cpu_seconds;
        if used < IDLE * QUIET.as_secs_f64() || now.at - ended.at >= PATIENCE {
            return Sample { at: last.at, ..now };
        }
        last = now;
    }
}

/// Sleeps while a condition holds, and no worker has failed.
fn sleep_while(phase: &Phase, holds: impl Fn() -> bool) {
    while phase.get() != Phase::STOP && holds() {
        thread::sleep(TICK);
    }
}

/// Returns the operations of one transaction.
fn operations(spec: &Spec) -> u64 {
    match spec.workload {
        Workload::Insert => BATCH,
        Workload::Read | Workload::Values => spec.shape.map_or(1, Shape::operations),
        Workload::Bulk => spec.scale / spec.threads as u64,
        Workload::Churn => 2 * CHURNED_ROWS,
        Workload::Scan => spec.scale,
        Workload::DeleteRange => DELETED_ROWS,
        _ => 1,
    }
}

fn row(
    spec: &Spec,
    tally: &Tally,
    Window { begun: before, ended, idle: after }: &Window,
    (rss_peak_bytes, file_bytes): (u64, u64),
    checks: Checks,
) -> Result<Row> {
    let (kind, variant) = (spec.kind()?, spec.variant()?);
    let seconds = (ended.at - before.at).as_secs_f64();
    let cpu = after.cpu_seconds - before.cpu_seconds;
    let stolen = (ended.stolen_seconds - before.stolen_seconds) / seconds;
    let operations = operations(spec) as f64;
    let per_txn = |amount: f64| if tally.measured == 0 { 0.0 } else { thousandths(amount / tally.measured as f64) };
    let latency_us = |quantile| thousandths(tally.latency.value_at_quantile(quantile) as f64 / 1000.0);
    let device = before.device.zip(after.device);
    let tps = tally.measured as f64 / seconds;
    Ok(Row {
        engine: spec.choice.engine.clone(),
        version: (kind.version)(),
        variant: spec.choice.variant.clone(),
        settings: variant.settings.to_owned(),
        loses: variant.loses.map(str::to_owned),
        workload: spec.workload,
        shape: spec.shape,
        value_bytes: (spec.value_bytes > 0).then_some(spec.value_bytes),
        threads: spec.threads,
        clients: variant.in_flight,
        durable: spec.durable,
        seconds: thousandths(seconds),
        commits: tally.measured,
        tps: thousandths(tps),
        ops_per_s: thousandths(tps * operations),
        p50_us: latency_us(0.5),
        p99_us: latency_us(0.99),
        cpu_us_per_txn: per_txn(cpu * 1e6),
        cpu_us_per_op: per_txn(cpu * 1e6 / operations),
        cpu_cores: thousandths((ended.cpu_seconds - before.cpu_seconds) / seconds),
        background_seconds: thousandths((after.at - ended.at).as_secs_f64()),
        background_cpu_seconds: thousandths(after.cpu_seconds - ended.cpu_seconds),
        device_bytes_per_txn: device.map(|(from, to)| per_txn((to.written_bytes - from.written_bytes) as f64)),
        flushes_per_txn: device.map(|(from, to)| per_txn((to.flushes - from.flushes) as f64)),
        rss_peak_bytes,
        file_bytes,
        cpu_stolen_cores: thousandths(stolen),
        is_stolen: stolen > STEAL * proc::cores() as f64,
        checks,
        repeats: Vec::new(),
    })
}

/// Rounds to thousandths.
fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;
