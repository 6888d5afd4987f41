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
use foreshore::{Db, Options, Result, TableDef, Transaction};
use std::{
    thread,
    time::{Duration, Instant},
};

mod bank;
mod target;

const MIB: u64 = 1 << 20;
/// Memory at the restart, if the data are not more than half of it.
const MEMORY: u64 = 1 << 30;
/// Data by memory at the restart, for the points with little memory.
const SCARCE: u64 = 4;
/// The log of these points.
const SCARCE_AT: u64 = 256 * MIB;
/// Log from which on there are fewer points, each measured once.
const MANY: u64 = 1024 * MIB;
/// The table of the transaction that has no end, and of the first commit afterwards.
const UNENDED: TableDef<u64, &[u8]> = TableDef::new("unended");
/// Rows of that transaction: so many are undone behind the open.
const LOSERS: u64 = 100_000;
/// How often the main thread looks at the log.
const TICK: Duration = Duration::from_millis(2);
/// How long TPC-B runs behind a restart.
const LOAD: Duration = Duration::from_secs(12);
const QUICK_LOAD: Duration = Duration::from_secs(4);
/// Between two looks at its commits.
const SLICE: Duration = Duration::from_millis(100);

pub(super) struct Recovery;

/// How pages are redone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redo {
    /// Before the database opens, by so many threads.
    Eager(usize),
    /// When they are first read, and the rest behind that.
    FirstTouch,
}

impl Redo {
    const fn name(self) -> &'static str {
        match self {
            Self::Eager(_) => "before the open",
            Self::FirstTouch => "first touch",
        }
    }

    fn options(self, memory: u64) -> Options {
        Options::new().memory_limit(memory).lab(|lab| match self {
            Self::Eager(threads) => (lab.redo_workers, lab.redo_waits_from) = (Some(threads), Some(u64::MAX)),
            Self::FirstTouch => lab.redo_waits_from = Some(0),
        })
    }
}

/// A kind of restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    redo: Redo,
    /// Whether the data are [`SCARCE`] times the memory.
    is_scarce: bool,
}

impl Point {
    fn options(self, crashed: &Crashed<'_>) -> Result<Options> {
        let data = crashed.data_bytes()?;
        Ok(self.redo.options(if self.is_scarce { data / SCARCE } else { MEMORY.max(2 * data) }))
    }
}

/// One restart.
#[derive(Clone, Debug)]
struct Measured {
    /// From the call to its return.
    open_s: f64,
    redo_s: f64,
    undo_s: f64,
    /// From the call of `open` to the return of the first durable commit.
    first_commit_s: f64,
    /// From the call of `open` until no page waits for its redo.
    redone_s: f64,
    /// From the call of `open` until TPC-B runs at nine tenths of its later speed, on another copy.
    regained_s: f64,
    log_bytes: u64,
    redone: u64,
    undone: u64,
    /// Of the same files, just before.
    read_mb_per_s: f64,
}

impl Measured {
    /// Log by the time of its analysis and redo.
    fn mb_per_s(&self) -> f64 {
        self.log_bytes as f64 / 1e6 / (self.redo_s + self.redone_s - self.open_s)
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
         One transaction has no end. A copy of the files is opened, past the page cache, and the money is counted. Redo comes \
         before the open, by some threads, or when pages are first read: then the rest is redone behind the first commit. \
         The last rows have a restart_target, and crash under full load again and again."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let place = Place::new(lab.settings.device)?;
        lab.machine = place.machine()?;
        let scale = lab.settings.scale.unwrap_or(10);
        lab.configure("scale", scale);
        lab.configure("memory", MEMORY);
        let mut rows = Vec::new();
        for log_bytes in lab.choose(&[64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB][..], &[64 * MIB]) {
            let place = Place::new(lab.settings.device)?;
            rows.extend(by_redo(lab, &place, scale, *log_bytes)?);
        }
        rows.extend(target::restarts(lab, scale)?);
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let (x, y) = (Axis::log("MiB of log", 2), Axis::linear("MB of log per second"));
        let plot = Plot { x, y, of: ["log_bytes", "mb_per_s"] };
        let rows: Vec<Row> = rows.iter().filter(|row| row.get("target_s").is_none()).map(in_mib).collect();
        plot.panels(&rows, |_| "analysis and redo".to_owned(), |row| row.text("redo").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let of = |row: &Row| {
            let log = format!("{} MiB of log, {}", row.number("log_bytes")? as u64 / MIB, label(row));
            let [speed, read] = ["mb_per_s", "read_mb_per_s"].map(|field| row.number(field));
            let rest = row.number("first_commit_s")? - row.number("redo_s")?;
            Some([
                Promise::new(
                    format!("{log}: redo / the lesser of 200 MB/s and half of what the device reads"),
                    speed? / (read? / 2.0).min(200.0),
                    Bound::Least(1.0),
                ),
                Promise::new(
                    format!("{log}: seconds from the end of analysis, or of redo, to a commit"),
                    rest,
                    Bound::Most(1.0),
                ),
            ])
        };
        rows.iter().filter_map(of).flatten().chain(rows.iter().filter_map(target::promise)).collect()
    }
}

/// The restarts from `log_bytes` of log.
fn by_redo(lab: &mut Lab<'_>, place: &Place, scale: u64, log_bytes: u64) -> Result<Vec<Row>> {
    let config = Config { scale, commit: Commit::Async, seed: lab.settings.seed, ..Config::default() };
    let work = work(Workload::Tpcb, &config);
    // No checkpoint is due before so much log is written, and nearly no page is old enough to be written.
    let options = Options::new().memory_limit((10 * log_bytes).max(MEMORY)).log_budget(5 * log_bytes);
    let limit = bank::Limit { log_bytes, time: lab.settings.secs.unwrap_or(Duration::MAX) };
    let (crashed, audit) = Crashed::make(place, options, |db, crash| run(&config, &*work, db, crash, limit, lab))?;
    let eager = if log_bytes > MANY { lab.threads(&[4], &[4]) } else { lab.threads(&[1, 2, 4, 8], &[1, 8]) };
    let redos = eager.into_iter().map(Redo::Eager).chain([Redo::FirstTouch]);
    let mut points: Vec<_> = redos.map(|redo| Point { redo, is_scarce: false }).collect();
    points.extend((log_bytes == SCARCE_AT).then_some(Point { redo: Redo::FirstTouch, is_scarce: true }));
    let load = lab.choose(LOAD, QUICK_LOAD);
    let measured = rounds(lab, if log_bytes > MANY { 1 } else { lab.choose(3, 1) }, &points, |&point| {
        let restart = restart(&crashed, &*work, audit, point)?;
        Ok(Measured { regained_s: regained(&crashed, (&config, &*work), audit, point, load)?, ..restart })
    })?;
    let row = |(point, measured): (&Point, Vec<Measured>)| {
        let (median, keys) = median(&measured, |measured| measured.redo_s);
        Row::new()
            .with("log_bytes", median.log_bytes)
            .with("workers", if let Redo::Eager(workers) = point.redo { workers } else { 0 })
            .with("redo", point.redo.name())
            .with("memory_ratio", if point.is_scarce { SCARCE } else { 0 })
            .measured("open_s", median.open_s)
            .measured("redo_s", median.redo_s)
            .measured("undo_s", median.undo_s)
            .measured("first_commit_s", median.first_commit_s)
            .measured("redone_s", median.redone_s)
            .measured("regained_s", median.regained_s)
            .measured("mb_per_s", median.mb_per_s())
            .measured("read_mb_per_s", median.read_mb_per_s)
            .with("redone", median.redone)
            .with("undone", median.undone)
            .with("repeats", keys)
    };
    Ok(points.iter().zip(measured).map(row).collect())
}

/// Loads the bank, takes a checkpoint, runs TPC-B up to the limit beside a transaction without an end, and crashes.
/// Returns what the bank then has.
fn run(config: &Config, work: &dyn Work, db: &Db, crash: &Crash, limit: bank::Limit, lab: &Lab<'_>) -> Result<Audit> {
    work.load(db, lab.progress)?;
    db.run(|tx| tx.open(UNENDED).map(drop))?;
    let found = work.audit(db)?;
    db.checkpoint()?;
    lab.progress.phase("writing log", limit.log_bytes);
    let unended = db.begin();
    write(&unended)?;
    let commits = bank::load_and_crash(config, work, (db, crash), (found, limit), |written| lab.progress.at(written))?;
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
fn restart(crashed: &Crashed<'_>, work: &dyn Work, expected: Audit, point: Point) -> Result<Measured> {
    crashed.copy()?;
    let read_mb_per_s = crashed.read_mb_per_s()?;
    let options = point.options(crashed)?;
    let begun = Instant::now();
    let db = crashed.open(options)?;
    let open_s = begun.elapsed().as_secs_f64();
    db.run(|tx| tx.open(UNENDED)?.insert(0, &[1; 100][..]).map(drop))?;
    let first_commit_s = begun.elapsed().as_secs_f64();
    let mut redone_s = open_s;
    while db.stats().recovery.pending_pages > 0 {
        thread::sleep(TICK);
        redone_s = begun.elapsed().as_secs_f64();
    }
    while db.stats().recovery.pending_losers > 0 {
        thread::sleep(TICK);
    }
    let recovery = db.stats().recovery;
    let found = work.audit(&db)?;
    assert!(found.is_sound && found.count == expected.count, "{found:?} is not what was committed: {expected:?}");
    Ok(Measured {
        open_s,
        redo_s: recovery.redo_time.as_secs_f64(),
        undo_s: recovery.undo_time.as_secs_f64(),
        first_commit_s,
        redone_s,
        regained_s: 0.0,
        log_bytes: recovery.log_bytes,
        redone: recovery.redone,
        undone: recovery.undone,
        read_mb_per_s,
    })
}

/// Restarts a fresh copy, runs TPC-B from the open on, and returns when it is at nine tenths of its later speed.
fn regained(
    crashed: &Crashed<'_>,
    (config, work): (&Config, &dyn Work),
    expected: Audit,
    point: Point,
    load: Duration,
) -> Result<f64> {
    crashed.copy()?;
    let options = point.options(crashed)?;
    let begun = Instant::now();
    let db = crashed.open(options)?;
    let open_s = begun.elapsed().as_secs_f64();
    let phase = Phase::new();
    // No other run has its number.
    let run = expected.next_run + 1;
    let mut commits = vec![0];
    thread::scope(|scope| {
        let worker =
            |thread| Terminal::new(config, &db, &phase, work.transactions(Worker { run, thread: thread as u32 }));
        let workers: Vec<_> =
            (0..config.threads[0]).map(worker).map(|terminal| scope.spawn(move || terminal.work())).collect();
        let before = db.stats().txn.commits;
        for _ in 0..load.as_nanos() / SLICE.as_nanos() {
            thread::sleep(SLICE);
            commits.push(db.stats().txn.commits - before);
        }
        phase.raise(Phase::STOP);
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker ends").map(drop))
    })?;
    Ok(open_s + regained_after(&commits) as f64 * SLICE.as_secs_f64())
}

/// Returns the number of slices after which five in a row are at nine tenths of the speed of the second half. `commits`
/// is counted at the start and at the end of each.
fn regained_after(commits: &[u64]) -> usize {
    const RUN: usize = 5;
    let last = commits.len() - 1;
    let later = (commits[last] - commits[last / 2]) as f64 / (last - last / 2) as f64;
    let is_there = |&from: &usize| (commits[from + RUN] - commits[from]) as f64 / RUN as f64 >= 0.9 * later;
    (0..=last - RUN).find(is_there).unwrap_or(last)
}

/// Names how pages were redone.
fn label(row: &Row) -> String {
    match row.number("workers") {
        Some(workers) if workers > 0.0 => format!("{workers} workers"),
        _ => row.text("redo").to_owned(),
    }
}

fn in_mib(row: &Row) -> Row {
    Row::new()
        .with("log_bytes", row.number("log_bytes").unwrap_or_default() / MIB as f64)
        .with("redo", label(row))
        .with("mb_per_s", row.number("mb_per_s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_regained_when_it_stays_near_that_of_the_second_half() {
        let counted = |slices: &[u64]| {
            slices
                .iter()
                .scan(0, |sum, more| {
                    *sum += more;
                    Some(*sum)
                })
                .collect::<Vec<_>>()
        };
        let slow_then_full = [&[0][..], &[10; 7], &[100; 33]].concat();
        assert_eq!(regained_after(&counted(&slow_then_full)), 7);
        assert_eq!(regained_after(&counted(&[&[0][..], &[100; 40]].concat())), 0);
    }
}
