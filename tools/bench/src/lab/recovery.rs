//! `recovery`: how long a database takes to open after a crash, by the log behind its last checkpoint.

use super::{
    Row,
    chart::{Axis, Panel, Plot},
    commits::Place,
    crashed::{Crash, Crashed},
    experiment::{Experiment, Lab},
    promise::{Bound, Promise},
    repeat::{median, rounds},
};
use crate::{
    Config,
    config::{Commit, Workload},
    terminal::{Phase, Terminal},
    workload::{Audit, Work, Worker, work},
};
use foreshore::{Db, Error, Options, Result, TableDef, Transaction};
use std::{
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// Memory at the restart.
const MEMORY: u64 = 1 << 30;
/// The table of the transaction that has no end, and of the first commit afterwards.
const UNENDED: TableDef<u64, &[u8]> = TableDef::new("unended");
/// Rows of that transaction.
const LOSERS: u64 = 10_000;
/// How often the main thread looks at the log.
const TICK: Duration = Duration::from_millis(2);

pub(super) struct Recovery;

/// One restart.
#[derive(Clone, Debug)]
struct Measured {
    /// From the call to its return.
    open_s: f64,
    redo_s: f64,
    undo_s: f64,
    /// From the call of `open` to the return of the first durable commit.
    first_commit_s: f64,
    log_bytes: u64,
    redone: u64,
    undone: u64,
    /// Of the same files, just before.
    read_mb_per_s: f64,
}

impl Measured {
    fn mb_per_s(&self) -> f64 {
        self.log_bytes as f64 / 1e6 / self.redo_s
    }
}

impl Experiment for Recovery {
    fn name(&self) -> &'static str {
        "recovery"
    }

    fn figure(&self) -> &'static str {
        "no Fig.: the project's own"
    }

    fn paper(&self) -> &'static str {
        "ARIES repeats history page by page, and any order that keeps that of each page will do."
    }

    fn differs(&self) -> &'static str {
        "TPC-B runs on a database that takes no checkpoint, and then no file is written any more, as when the process is killed. \
         One transaction has no end. A copy of the files is opened, past the page cache, and the money is counted."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let place = Place::new(lab.settings.device)?;
        lab.machine = place.machine()?;
        let scale = lab.settings.scale.unwrap_or(10);
        lab.configure("scale", scale);
        lab.configure("memory", MEMORY);
        let mut rows = Vec::new();
        for log_bytes in lab.choose(&[64 * MIB, 256 * MIB, 1024 * MIB][..], &[64 * MIB]) {
            let place = Place::new(lab.settings.device)?;
            rows.extend(by_workers(lab, &place, scale, *log_bytes)?);
        }
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let (x, y) = (Axis::log("MiB of log", 2), Axis::linear("MB of log per second"));
        let plot = Plot { x, y, of: ["log_bytes", "mb_per_s"] };
        let rows: Vec<Row> = rows.iter().map(in_mib).collect();
        plot.panels(&rows, |_| "analysis and redo".to_owned(), |row| row.text("workers").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let of = |row: &Row| {
            let log = format!("{} MiB of log", row.number("log_bytes")? as u64 / MIB);
            let [speed, read] = ["mb_per_s", "read_mb_per_s"].map(|field| row.number(field));
            let rest = row.number("first_commit_s")? - row.number("redo_s")?;
            Some([
                Promise::new(
                    format!("{log}: redo / the lesser of 200 MB/s and half of what the device reads"),
                    speed? / (read? / 2.0).min(200.0),
                    Bound::Least(1.0),
                ),
                Promise::new(format!("{log}: seconds from the end of redo to a commit"), rest, Bound::Most(1.0)),
            ])
        };
        rows.iter().filter_map(of).flatten().collect()
    }
}

/// The restarts from `log_bytes` of log.
fn by_workers(lab: &mut Lab<'_>, place: &Place, scale: u64, log_bytes: u64) -> Result<Vec<Row>> {
    let config = Config { scale, commit: Commit::Async, seed: lab.settings.seed, ..Config::default() };
    let work = work(Workload::Tpcb, &config);
    // No checkpoint is due before so much log is written, and nearly no page is old enough to be written.
    let options = Options::new().memory_limit((10 * log_bytes).max(MEMORY)).log_budget(5 * log_bytes);
    let limit = Limit { log_bytes, time: lab.settings.secs.unwrap_or(Duration::MAX) };
    let (crashed, audit) = Crashed::make(place, options, |db, crash| run(&config, &*work, db, crash, limit, lab))?;
    let points = lab.threads(&[1, 2, 4, 8, 16], &[1, 8]);
    let measured = rounds(lab, lab.choose(3, 1), &points, |&workers| restart(&crashed, &*work, audit, workers))?;
    let row = |(workers, measured): (&usize, Vec<Measured>)| {
        let (median, keys) = median(&measured, |measured| measured.redo_s);
        Row::new()
            .with("log_bytes", median.log_bytes)
            .with("workers", *workers)
            .measured("open_s", median.open_s)
            .measured("redo_s", median.redo_s)
            .measured("undo_s", median.undo_s)
            .measured("first_commit_s", median.first_commit_s)
            .measured("mb_per_s", median.mb_per_s())
            .measured("read_mb_per_s", median.read_mb_per_s)
            .with("redone", median.redone)
            .with("undone", median.undone)
            .with("repeats", keys)
    };
    Ok(points.iter().zip(measured).map(row).collect())
}

/// When the log is long enough.
#[derive(Clone, Copy, Debug)]
struct Limit {
    log_bytes: u64,
    time: Duration,
}

/// Loads the bank, takes a checkpoint, runs TPC-B up to the limit beside a transaction without an end, and crashes.
/// Returns what the bank then has.
fn run(config: &Config, work: &dyn Work, db: &Db, crash: &Crash, limit: Limit, lab: &Lab<'_>) -> Result<Audit> {
    work.load(db, lab.progress)?;
    db.run(|tx| tx.open(UNENDED).map(drop))?;
    let found = work.audit(db)?;
    db.checkpoint()?;
    let written = |db: &Db| db.stats().log.group_bytes;
    let (before, begun, phase) = (written(db), Instant::now(), Phase::new());
    lab.progress.phase("writing log", limit.log_bytes);
    let unended = db.begin();
    write(&unended)?;
    let commits = thread::scope(|scope| {
        let worker = |thread| {
            let worker = Worker { run: found.next_run, thread: thread as u32 };
            Terminal::new(config, db, &phase, work.transactions(worker))
        };
        let workers: Vec<_> =
            (0..config.threads[0]).map(worker).map(|terminal| scope.spawn(move || terminal.work())).collect();
        while written(db) - before < limit.log_bytes && begun.elapsed() < limit.time && phase.get() != Phase::STOP {
            lab.progress.at(written(db) - before);
            thread::sleep(TICK);
        }
        phase.raise(Phase::STOP);
        workers
            .into_iter()
            .try_fold(0, |sum, worker| Ok::<_, Error>(sum + worker.join().expect("a worker ends")?.all_commits))
    })?;
    db.sync()?;
    crash.now();
    // It can no longer be rolled back.
    drop(unended);
    Ok(Audit { count: work.count_after(found.count, commits), ..found })
}

fn write(tx: &Transaction) -> Result<()> {
    let table = tx.open(UNENDED)?;
    (0..LOSERS).try_for_each(|key| table.insert(key, &[0; 100][..]).map(drop))
}

/// One restart of a fresh copy.
///
/// # Panics
/// If a commit is missing: the time of a wrong restart is none.
fn restart(crashed: &Crashed<'_>, work: &dyn Work, expected: Audit, workers: usize) -> Result<Measured> {
    crashed.copy()?;
    let read_mb_per_s = crashed.read_mb_per_s()?;
    let begun = Instant::now();
    let db = crashed.open(Options::new().memory_limit(MEMORY).lab(|lab| lab.redo_workers = Some(workers)))?;
    let open_s = begun.elapsed().as_secs_f64();
    db.run(|tx| tx.open(UNENDED)?.insert(0, &[1; 100][..]).map(drop))?;
    let first_commit_s = begun.elapsed().as_secs_f64();
    let recovery = db.stats().recovery;
    let found = work.audit(&db)?;
    assert!(found.is_sound && found.count == expected.count, "{found:?} is not what was committed: {expected:?}");
    Ok(Measured {
        open_s,
        redo_s: recovery.redo_time.as_secs_f64(),
        undo_s: recovery.undo_time.as_secs_f64(),
        first_commit_s,
        log_bytes: recovery.log_bytes,
        redone: recovery.redone,
        undone: recovery.undone,
        read_mb_per_s,
    })
}

fn in_mib(row: &Row) -> Row {
    Row::new()
        .with("log_bytes", row.number("log_bytes").unwrap_or_default() / MIB as f64)
        .with("workers", row.get("workers").map(ToString::to_string).unwrap_or_default() + " workers")
        .with("mb_per_s", row.number("mb_per_s"))
}
