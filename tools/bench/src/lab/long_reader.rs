//! `long-reader`: what writers pay for a reader that stays, and what memory it takes.

use super::{
    Experiment, Lab, Row,
    chart::{Axis, Panel, Plot},
    promise::{Bound, Promise},
    row::find,
};
use crate::{
    Config,
    home::Home,
    machine::Machine,
    process::stolen_seconds,
    random::Random,
    terminal::{Phase, Terminal},
    units::thousandths,
    workload::Transactions,
};
use foreshore::{Db, Durability, ReadOptions, ReadTransaction, TableDef, Transaction, TxnOptions};
use foreshore_base::Result;
use std::{
    fmt, thread,
    time::{Duration, Instant},
};

/// Rows that are updated.
const ROWS: u64 = 10_000;
/// Bytes of a row, which begins with how often it was updated.
const ROW_BYTES: usize = 100;
/// Rows that a reader who does nothing reads at the start, and again at the end.
const FIRST: u64 = 100;
/// Of the limit a share is for old versions: without pruning it is spent within seconds.
const MEMORY: u64 = 256 << 20;
/// Of the cores so much may go to others of the same host in a slice that counts: a rate beside another says something of the
/// reader only where both had the machine.
const STOLEN: f64 = 0.03;

type Rows = TableDef<'static, u64, &'static [u8]>;
const HOT: Rows = Rows::new("hot");

pub(super) struct LongReader;

/// Who reads while the writers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    None,
    /// Holds its snapshot and reads its first rows at the start and at the end.
    Idle,
    /// Reads all rows at the start, and all once more, evenly over its time.
    Slow,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Idle => "idle",
            Self::Slow => "slow",
        })
    }
}

/// One stretch of time.
#[derive(Clone, Debug)]
struct Stretch {
    reader: Reader,
    seconds: f64,
    slices: Vec<Slice>,
    undo_bytes_max: u64,
    /// Versions taken out from between others.
    pruned: u64,
    /// Whether the reader read the same at the end.
    unchanged: Option<bool>,
}

/// A second of a stretch, or a tenth of a short one.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// Commits a second.
    tps: f64,
    /// Cores with work that a hypervisor gave to others.
    stolen_cores: f64,
}

impl Stretch {
    /// Commits a second after the first slice: the mean of the slices in which the machine was the writers' own, or of all
    /// where these are not even half.
    fn settled(&self) -> f64 {
        let settled = &self.slices[1.min(self.slices.len() - 1)..];
        let own: Vec<f64> =
            settled.iter().filter(|slice| slice.stolen_cores <= STOLEN).map(|slice| slice.tps).collect();
        let counted = if own.len() * 2 < settled.len() { settled.iter().map(|slice| slice.tps).collect() } else { own };
        counted.iter().sum::<f64>() / counted.len() as f64
    }
}

impl Experiment for LongReader {
    fn name(&self) -> &'static str {
        "long-reader"
    }

    fn figure(&self) -> &'static str {
        "no figure: a trace of the writers beside one snapshot"
    }

    fn paper(&self) -> &'static str {
        "No paper. Where versions are kept from the oldest snapshot on, a reader that stays makes memory grow with every update, \
         and each look for a version longer."
    }

    fn differs(&self) -> &'static str {
        "Of the versions of a row those stay that a snapshot sees. Writers update rows of one table at random, one a \
         transaction; before, between and after the readers nobody reads. A reader's row is compared with the mean of \
         the two beside it, without the seconds in which a hypervisor ran others."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[2], &[2])[0];
        let held = lab.settings.secs.unwrap_or(Duration::from_secs(lab.choose(60, 10)));
        let config = Config { device: lab.settings.device, memory: MEMORY, ..Config::default() };
        let home = Home::new(&config)?;
        let db = home.open()?;
        lab.machine = Machine::probe(home.fs(), home.dir(), home.filesystem()?)?;
        load(&db)?;
        let shares = db.stats().memory;
        lab.configure("threads", threads);
        lab.configure("clients", config.clients);
        lab.configure("rows", ROWS);
        lab.configure("row_bytes", ROW_BYTES);
        lab.configure("memory", shares.limit);
        lab.configure("undo_limit_bytes", shares.undo);
        lab.configure("secs", held.as_secs_f64());
        let alone = (held / 3).max(held.min(Duration::from_secs(5)));
        let order = [Reader::None, Reader::Idle, Reader::None, Reader::Slow, Reader::None];
        let phase = Phase::new();
        let stretches = thread::scope(|scope| {
            let writers: Vec<_> = (0..threads as u64)
                .map(|thread| {
                    let at_random = Updates { random: Random::new(lab.settings.seed, thread), key: 0, count: 0 };
                    let writer = Terminal::new(&config, &db, &phase, Box::new(at_random));
                    scope.spawn(move || writer.work())
                })
                .collect();
            // A moment to warm up.
            let warm = follow(&db, &phase, Reader::None, held.min(Duration::from_secs(1)));
            let stretches: Result<Vec<Stretch>> = order
                .iter()
                .map(|&reader| {
                    lab.progress.phase(&format!("reader: {reader}"), 1);
                    follow(&db, &phase, reader, if reader == Reader::None { alone } else { held })
                })
                .collect();
            phase.raise(Phase::STOP);
            let mut commits = 0;
            for writer in writers {
                commits += writer.join().expect("a writer ends")?.all_commits;
            }
            warm?;
            assert_eq!(updates(&db)?, commits, "each commit is one update");
            stretches
        })?;
        Home::close(&db)?;
        Ok(stretches.iter().map(|stretch| row(stretch, threads)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let mut begun = 0.0;
        let mut points = Vec::new();
        for row in rows {
            let tps = row.get("tps_by_time").and_then(|tps| tps.as_array().cloned()).unwrap_or_default();
            let step = row.number("seconds").unwrap_or_default() / tps.len().max(1) as f64;
            for tps in tps.iter().filter_map(serde_json::Value::as_f64) {
                begun += step;
                points.push(
                    Row::new().with("reader", row.text("reader")).measured("seconds", begun).measured("tps", tps),
                );
            }
        }
        let (x, y) = (Axis::linear("seconds"), Axis::linear("commits per second"));
        let plot = Plot { x, y, of: ["seconds", "tps"] };
        plot.panels(&points, |_| "writers".to_owned(), |row| row.text("reader").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let of = |reader: Reader, field| find(rows, &[("reader", reader.to_string().into())], field);
        let beside = |reader: Reader| {
            let at = rows.iter().position(|row| row.text("reader") == reader.to_string())?;
            let tps = |at: usize| rows.get(at)?.number("tps");
            let without = f64::midpoint(tps(at.checked_sub(1)?)?, tps(at + 1)?);
            let promise = format!("commits a second after the first: {reader} reader / none");
            Some(Promise::new(promise, tps(at)? / without, Bound::Least(0.9)))
        };
        let same = |reader: Reader| {
            let at = rows.iter().find(|row| row.text("reader") == reader.to_string())?;
            let unchanged = at.get("unchanged")?.as_bool()?;
            Some(Promise::new(format!("{reader} reader reads the same"), f64::from(unchanged), Bound::Least(1.0)))
        };
        let memory = |reader: Reader| {
            let share = of(reader, "undo_share_max")?;
            Some(Promise::new(format!("{reader} reader: undo / its share of memory"), share, Bound::Most(1.0)))
        };
        let promises = |reader| [beside(reader), same(reader), memory(reader)];
        [Reader::Idle, Reader::Slow].into_iter().flat_map(promises).flatten().collect()
    }
}

fn row(stretch: &Stretch, threads: usize) -> Row {
    let Stretch { reader, seconds, slices, undo_bytes_max, pruned, unchanged } = stretch;
    let stolen = slices.iter().map(|slice| slice.stolen_cores);
    Row::new()
        .with("reader", reader.to_string())
        .with("threads", threads)
        .measured("seconds", *seconds)
        .with("tps", stretch.settled().round())
        .with("undo_bytes_max", *undo_bytes_max)
        .measured("undo_share_max", *undo_bytes_max as f64 / (MEMORY / 8) as f64)
        .with("versions_pruned", *pruned)
        .with("unchanged", *unchanged)
        .measured("cpu_stolen_cores", stolen.clone().sum::<f64>() / slices.len() as f64)
        .with("tps_by_time", slices.iter().map(|slice| slice.tps.round()).collect::<Vec<_>>())
        .with("stolen_by_time", stolen.map(thousandths).collect::<Vec<_>>())
}

fn load(db: &Db) -> Result<()> {
    let options = TxnOptions::new().label("load").durability(Durability::Relaxed);
    for first in (0..ROWS).step_by(500) {
        db.run_with(options, |tx| {
            let hot = tx.open(HOT)?;
            (first..first + 500).try_for_each(|key| hot.insert(key, &content(0)[..]).map(drop))
        })?;
    }
    db.sync()
}

fn content(updates: u64) -> [u8; ROW_BYTES] {
    let mut row = [b'.'; ROW_BYTES];
    row[..8].copy_from_slice(&updates.to_le_bytes());
    row
}

/// How often a row was updated.
fn updates_of(row: &[u8]) -> u64 {
    row.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

/// Updates of all rows, of a quiet database.
fn updates(db: &Db) -> Result<u64> {
    db.sync()?;
    let tx = db.read();
    tx.open(HOT)?.iter().try_fold(0, |sum, row| Ok(sum + updates_of(&row?.1)))
}

/// Updates of random rows.
struct Updates {
    random: Random,
    key: u64,
    /// Makes each update different.
    count: u64,
}

impl Transactions for Updates {
    fn draw(&mut self) {
        self.key = self.random.below(ROWS);
    }

    fn apply(&mut self, tx: &Transaction) -> Result<()> {
        let hot = tx.open(HOT)?;
        let old = hot.get_for_update(self.key)?.map_or(0, |row| updates_of(&row));
        let mut row = content(old + 1);
        self.count += 1;
        row[8..16].copy_from_slice(&self.count.to_le_bytes());
        hot.insert(self.key, &row[..]).map(drop)
    }
}

/// Looks at the writers for so long, beside `reader`. Ends early if one has failed.
fn follow(db: &Db, phase: &Phase, reader: Reader, time: Duration) -> Result<Stretch> {
    let (begun, slice) = (Instant::now(), (time / 10).min(Duration::from_secs(1)));
    thread::scope(|scope| {
        let reading = (reader != Reader::None).then(|| scope.spawn(move || read(db, phase, reader, begun + time)));
        let mut slices = Vec::new();
        let first = db.stats();
        let (mut last, mut commits, mut undo_bytes_max) = (begun, first.txn.commits, first.memory_use.undo);
        let mut stolen = stolen_seconds()?;
        while begun.elapsed() < time && (phase.get() != Phase::STOP || slices.is_empty()) {
            thread::sleep(slice.saturating_sub(last.elapsed()));
            let (now, stats, stolen_now) = (Instant::now(), db.stats(), stolen_seconds()?);
            let seconds = (now - last).as_secs_f64();
            slices.push(Slice {
                tps: (stats.txn.commits - commits) as f64 / seconds,
                stolen_cores: (stolen_now - stolen) / seconds,
            });
            undo_bytes_max = undo_bytes_max.max(stats.memory_use.undo);
            (last, commits, stolen) = (now, stats.txn.commits, stolen_now);
        }
        let unchanged = reading.map(|reading| reading.join().expect("a reader ends")).transpose()?;
        let (seconds, pruned) = (begun.elapsed().as_secs_f64(), db.stats().txn.versions_pruned);
        Ok(Stretch { reader, seconds, slices, undo_bytes_max, pruned: pruned - first.txn.versions_pruned, unchanged })
    })
}

/// Reads until the time is over, and tells whether rows that were read twice were the same.
fn read(db: &Db, phase: &Phase, reader: Reader, until: Instant) -> Result<bool> {
    let tx = db.read_with(ReadOptions::new().label("long reader"));
    let begun = Instant::now();
    let time = until.saturating_duration_since(begun);
    let rows = if reader == Reader::Slow { ROWS } else { FIRST };
    let first: Vec<Vec<u8>> = values(&tx, rows)?;
    let table = tx.open(HOT)?;
    let mut unchanged = first.len() as u64 == rows;
    for (key, value) in (0..rows).zip(&first) {
        let due = if reader == Reader::Slow { begun + time.mul_f64(key as f64 / rows as f64) } else { until };
        while Instant::now() < due && phase.get() != Phase::STOP {
            thread::sleep((due - Instant::now()).min(Duration::from_millis(100)));
        }
        unchanged &= table.get_with(key, |row| row == value)?.unwrap_or(false);
    }
    Ok(unchanged)
}

fn values(tx: &ReadTransaction, rows: u64) -> Result<Vec<Vec<u8>>> {
    tx.open(HOT)?.range(0..rows).map(|row| Ok(row?.1.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_finds_its_rows_while_writers_are_counted() {
        let config = Config { device: foreshore::Device::Null, memory: MEMORY, ..Config::default() };
        let home = Home::new(&config).unwrap();
        let db = home.open().unwrap();
        load(&db).unwrap();
        let phase = Phase::new();
        thread::scope(|scope| {
            let at_random = Updates { random: Random::new(1, 0), key: 0, count: 0 };
            let writer = Terminal::new(&config, &db, &phase, Box::new(at_random));
            let writer = scope.spawn(move || writer.work());
            for reader in [Reader::Slow, Reader::Idle, Reader::None] {
                let stretch = follow(&db, &phase, reader, Duration::from_millis(400)).unwrap();
                assert_eq!(stretch.unchanged, (reader != Reader::None).then_some(true), "{stretch:?}");
                assert!(stretch.settled() > 0.0 && stretch.undo_bytes_max > 0, "{stretch:?}");
            }
            phase.raise(Phase::STOP);
            let commits = writer.join().unwrap().unwrap().all_commits;
            assert_eq!(updates(&db).unwrap(), commits);
        });
    }

    #[test]
    fn losses_are_told_from_the_stretches_beside() {
        let stretch = |reader, tps: &[f64]| Stretch {
            reader,
            seconds: 1.0,
            slices: tps.iter().map(|&tps| Slice { tps, stolen_cores: 0.0 }).collect(),
            undo_bytes_max: MEMORY / 7,
            pruned: 0,
            unchanged: (reader != Reader::None).then_some(true),
        };
        let none = |tps| stretch(Reader::None, &[0.0, tps]);
        // The first slice does not count.
        let rows = [none(90.0), stretch(Reader::Idle, &[1.0, 80.0, 82.0]), none(110.0)].map(|s| row(&s, 1));
        let promises = LongReader.promises(&rows);
        let measured: Vec<(f64, bool)> = promises.iter().map(|promise| (promise.measured, promise.held)).collect();
        assert_eq!(measured[0], (0.81, false));
        assert_eq!(measured[1], (1.0, true));
        assert!(!measured[2].1, "above its share");
    }

    #[test]
    fn slices_of_others_do_not_count_while_most_are_the_writers_own() {
        let settled = |slices: &[(f64, f64)]| {
            let slices = slices.iter().map(|&(tps, stolen_cores)| Slice { tps, stolen_cores }).collect();
            let (undo_bytes_max, pruned) = (0, 0);
            Stretch { reader: Reader::None, seconds: 1.0, slices, undo_bytes_max, pruned, unchanged: None }.settled()
        };
        assert_eq!(settled(&[(9.0, 0.0), (80.0, 0.0), (10.0, 0.5), (90.0, 0.01)]), 85.0);
        assert_eq!(settled(&[(9.0, 0.0), (80.0, 0.0), (10.0, 0.5), (30.0, 0.2)]), 40.0);
        assert_eq!(settled(&[(9.0, 0.4)]), 9.0);
    }
}
