//! `long-reader`: what writers pay for a reader that stays, and what memory it takes.

use super::{
    Row,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    promise::{Bound, Promise},
    row::find,
    turn::Turn,
};
use crate::{
    Config,
    config::Storage,
    home::Home,
    machine::Machine,
    process::stolen_seconds,
    random::Random,
    terminal::{Phase, Terminal},
    workload::{self, Transactions},
};
use foreshore::{Db, Device, Durability, ReadOptions, ReadTransaction, Result, TableDef, Transaction, TxnOptions};
use std::{
    fmt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Rows that are updated.
const ROWS: u64 = 10_000;
/// Bytes of a row, which begins with how often it was updated.
const ROW_BYTES: usize = 100;
/// Rows that the idle reader reads at the start, and again at the end.
const FIRST: u64 = 100;
/// Of the limit a share is for old versions: without pruning it is spent within seconds.
const MEMORY: u64 = 256 << 20;
/// Writers have a database to themselves for so long at a time: what the machine gives them changes more slowly.
const TURN: Duration = Duration::from_secs(1);

type Rows = TableDef<'static, u64, &'static [u8]>;
const HOT: Rows = Rows::new("hot");

pub(super) struct LongReader;

/// The reader beside the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    None,
    /// Holds its snapshot, and reads its first rows at the start and at the end.
    Idle,
    /// Reads all rows at the start, all once more, evenly over its turns, and all at the end.
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

/// What the writers of one database did.
#[derive(Clone, Debug)]
struct Trace {
    reader: Reader,
    /// Length of all turns.
    seconds: f64,
    /// Commits a second in each turn.
    tps: Vec<f64>,
    /// Cores with work that a hypervisor gave to others, in each turn.
    stolen_cores: Vec<f64>,
    undo_bytes_max: u64,
    /// Versions taken out from between others.
    pruned: u64,
    /// Whether the reader read the same again.
    unchanged: Option<bool>,
}

impl Trace {
    /// Commits a second after the first turn, in which the reader came.
    fn settled(&self) -> f64 {
        mean(&self.tps[1.min(self.tps.len() - 1)..])
    }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
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
         transaction. There are three such databases, one for each reader and one for none, whose writers take turns of a \
         second, since the machine and its disk may change within a minute."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[2], &[2])[0];
        let held = lab.settings.secs.unwrap_or(Duration::from_secs(lab.choose(60, 10)));
        let config = on(lab.settings.device);
        let mut homes = Vec::new();
        let mut beds = Vec::new();
        for reader in [Reader::None, Reader::Idle, Reader::Slow] {
            let home = Home::new(&config)?;
            let db = home.open()?;
            load(&db)?;
            beds.push((reader, db));
            homes.push(home);
        }
        lab.machine = Machine::probe(homes[0].fs(), homes[0].dir(), homes[0].filesystem()?)?;
        let shares = beds[0].1.stats().memory;
        lab.configure("threads", threads);
        lab.configure("clients", config.clients);
        lab.configure("rows", ROWS);
        lab.configure("row_bytes", ROW_BYTES);
        lab.configure("memory", shares.limit);
        lab.configure("undo_limit_bytes", shares.undo);
        lab.configure("secs", held.as_secs_f64());
        lab.progress.phase("writers in turns", 1);
        let traces = in_turns(&config, &beds, threads, held, lab.settings.seed)?;
        beds.iter().try_for_each(|(_, db)| Home::close(db))?;
        Ok(traces.iter().map(|trace| row(trace, threads)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let mut points = Vec::new();
        for row in rows {
            let tps = row.get("tps_by_time").and_then(|tps| tps.as_array().cloned()).unwrap_or_default();
            let step = row.number("seconds").unwrap_or_default() / tps.len().max(1) as f64;
            for (turn, tps) in tps.iter().filter_map(serde_json::Value::as_f64).enumerate() {
                let at = step * (turn + 1) as f64;
                points.push(Row::new().with("reader", row.text("reader")).measured("seconds", at).measured("tps", tps));
            }
        }
        let (x, y) = (Axis::linear("seconds"), Axis::linear("commits per second"));
        let plot = Plot { x, y, of: ["seconds", "tps"] };
        plot.panels(&points, |_| "writers".to_owned(), |row| row.text("reader").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let of = |reader: Reader, field| find(rows, &[("reader", reader.to_string().into())], field);
        let beside = |reader: Reader| {
            let promise = format!("commits a second after the first: {reader} reader / none");
            Some(Promise::new(promise, of(reader, "tps")? / of(Reader::None, "tps")?, Bound::Least(0.9)))
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

fn row(trace: &Trace, threads: usize) -> Row {
    let Trace { reader, seconds, tps, stolen_cores, undo_bytes_max, pruned, unchanged } = trace;
    Row::new()
        .with("reader", reader.to_string())
        .with("threads", threads)
        .measured("seconds", *seconds)
        .with("tps", trace.settled().round())
        .with("undo_bytes_max", *undo_bytes_max)
        .measured("undo_share_max", *undo_bytes_max as f64 / (MEMORY / 8) as f64)
        .with("versions_pruned", *pruned)
        .with("unchanged", *unchanged)
        .measured("cpu_stolen_cores", mean(stolen_cores))
        .with("tps_by_time", tps.iter().map(|tps| tps.round()).collect::<Vec<_>>())
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

/// Updates of random rows, in turn.
struct Updates {
    turn: Arc<Turn>,
    mine: usize,
    random: Random,
    key: u64,
    /// Makes each update different.
    count: u64,
}

impl Transactions for Updates {
    fn draw(&mut self) {
        self.turn.wait(self.mine);
        self.key = self.random.below(ROWS);
    }

    fn apply(&mut self, tx: &Transaction) -> Result<workload::End> {
        let hot = tx.open(HOT)?;
        let old = hot.get_for_update(self.key)?.map_or(0, |row| updates_of(&row));
        let mut row = content(old + 1);
        self.count += 1;
        row[8..16].copy_from_slice(&self.count.to_le_bytes());
        hot.insert(self.key, &row[..])?;
        Ok(workload::End::Commit)
    }
}

/// The options of a database on `device`.
fn on(device: Device) -> Config {
    Config { storage: Storage { device, memory: MEMORY, ..Storage::default() }, ..Config::default() }
}

/// Has writers on all databases, each of which is theirs for `held` in all, beside its reader. Ends early if one has
/// failed.
fn in_turns(config: &Config, beds: &[(Reader, Db)], threads: usize, held: Duration, seed: u64) -> Result<Vec<Trace>> {
    let (phase, turn) = (Phase::new(), Arc::new(Turn::default()));
    thread::scope(|scope| {
        let end = End { phase: &phase, turn: &turn };
        let mut writers = Vec::new();
        for (mine, (_, db)) in beds.iter().enumerate() {
            for thread in 0..threads as u64 {
                let at_random =
                    Updates { turn: Arc::clone(&turn), mine, random: Random::new(seed, thread), key: 0, count: 0 };
                let writer = Terminal::new(config, db, &phase, Box::new(at_random));
                writers.push((mine, scope.spawn(move || writer.work())));
            }
        }
        let warm_up = take_turns(beds, &phase, &turn, TURN.min(held));
        let mut readers = Vec::new();
        for (mine, &(reader, ref db)) in beds.iter().enumerate() {
            let (turn, phase) = (&*turn, &phase);
            let is_mine = move || turn.is(mine);
            readers.push((reader != Reader::None).then(|| scope.spawn(move || read(db, reader, held, phase, is_mine))));
        }
        let traces = take_turns(beds, &phase, &turn, held);
        drop(end);
        let mut commits = vec![0; beds.len()];
        for (mine, writer) in writers {
            commits[mine] += writer.join().expect("a writer ends")?.all_commits;
        }
        warm_up?;
        let mut traces = traces?;
        for (trace, reader) in traces.iter_mut().zip(readers) {
            trace.unchanged = reader.map(|reader| reader.join().expect("a reader ends")).transpose()?;
        }
        for ((_, db), commits) in beds.iter().zip(commits) {
            assert_eq!(updates(db)?, commits, "each commit is one update");
        }
        Ok(traces)
    })
}

/// Gives each database its turn, until each has had `held` in all, and looks at what the writers do in it.
fn take_turns(beds: &[(Reader, Db)], phase: &Phase, turn: &Turn, held: Duration) -> Result<Vec<Trace>> {
    let length = TURN.min(held / 10);
    let pruned: Vec<u64> = beds.iter().map(|(_, db)| db.stats().txn.versions_pruned).collect();
    let trace = |&(reader, _): &(Reader, Db)| Trace {
        reader,
        seconds: 0.0,
        tps: Vec::new(),
        stolen_cores: Vec::new(),
        undo_bytes_max: 0,
        pruned: 0,
        unchanged: None,
    };
    let mut traces: Vec<Trace> = beds.iter().map(trace).collect();
    // There and back: what one leaves behind meets both neighbours.
    let (there, back) = (0..beds.len(), (0..beds.len()).rev());
    for mine in there.chain(back).cycle() {
        let is_over = traces.iter().all(|trace| trace.seconds >= held.as_secs_f64());
        if is_over || phase.get() == Phase::STOP {
            break;
        }
        let ((_, db), trace) = (&beds[mine], &mut traces[mine]);
        turn.give(mine);
        let (begun, commits, stolen) = (Instant::now(), db.stats().txn.commits, stolen_seconds()?);
        thread::sleep(length);
        let (seconds, stats) = (begun.elapsed().as_secs_f64(), db.stats());
        trace.seconds += seconds;
        trace.tps.push((stats.txn.commits - commits) as f64 / seconds);
        trace.stolen_cores.push((stolen_seconds()? - stolen) / seconds);
        trace.undo_bytes_max = trace.undo_bytes_max.max(stats.memory_use.undo);
        trace.pruned = stats.txn.versions_pruned - pruned[mine];
    }
    Ok(traces)
}

/// Ends writers and readers with its life, also where the thread that leads them panics.
struct End<'a> {
    phase: &'a Phase,
    turn: &'a Turn,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.phase.raise(Phase::STOP);
        self.turn.give(Turn::ALL);
    }
}

/// Reads until the end, in its own turns, and tells whether rows that were read again were the same.
fn read(db: &Db, reader: Reader, held: Duration, phase: &Phase, is_mine: impl Fn() -> bool) -> Result<bool> {
    let tx = db.read_with(ReadOptions::new().label("long reader"));
    let rows = if reader == Reader::Slow { ROWS } else { FIRST };
    let first: Vec<Vec<u8>> = values(&tx, rows)?;
    let table = tx.open(HOT)?;
    let (mut again, mut unchanged) = (0, first.len() as u64 == rows);
    let (mut own, mut last) = (Duration::ZERO, Instant::now());
    while phase.get() != Phase::STOP {
        // WAIT: window - some rows are due after it.
        thread::sleep(Duration::from_millis(5));
        let now = Instant::now();
        own += if is_mine() { now - last } else { Duration::ZERO };
        last = now;
        let due = (own.as_secs_f64() / held.as_secs_f64() * rows as f64) as u64;
        while reader == Reader::Slow && again < due && phase.get() != Phase::STOP {
            let row = &first[(again % rows) as usize];
            unchanged &= table.get_with(again % rows, |now| now == row)?.unwrap_or(false);
            again += 1;
        }
    }
    Ok(unchanged && values(&tx, rows)? == first)
}

fn values(tx: &ReadTransaction, rows: u64) -> Result<Vec<Vec<u8>>> {
    tx.open(HOT)?.range(0..rows).map(|row| Ok(row?.1.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_find_their_rows_while_writers_take_turns() {
        let config = on(Device::Null);
        let readers = [Reader::Slow, Reader::Idle, Reader::None];
        let homes = readers.map(|_| Home::new(&config).unwrap());
        let beds: Vec<(Reader, Db)> = readers.into_iter().zip(homes.iter().map(|home| home.open().unwrap())).collect();
        beds.iter().for_each(|(_, db)| load(db).unwrap());
        let traces = in_turns(&config, &beds, 1, Duration::from_millis(400), 1).unwrap();
        assert_eq!(traces.iter().map(|trace| trace.reader).collect::<Vec<_>>(), readers);
        for trace in traces {
            assert_eq!(trace.unchanged, (trace.reader != Reader::None).then_some(true), "{trace:?}");
            assert!(trace.settled() > 0.0 && trace.undo_bytes_max > 0, "{trace:?}");
            assert!(trace.seconds >= 0.4 && trace.seconds < 4.0, "{trace:?}");
        }
    }

    #[test]
    fn a_thread_without_its_turn_draws_nothing() {
        let turn = Arc::new(Turn::default());
        let mut updates = Updates { turn: Arc::clone(&turn), mine: 1, random: Random::new(1, 0), key: 0, count: 0 };
        thread::scope(|scope| {
            let drawn = scope.spawn(move || updates.draw());
            thread::sleep(Duration::from_millis(5));
            assert!(!drawn.is_finished());
            turn.give(1);
        });
    }

    #[test]
    fn losses_are_told_from_the_turns_without_a_reader() {
        let trace = |reader, tps: &[f64]| Trace {
            reader,
            seconds: 1.0,
            tps: tps.to_vec(),
            stolen_cores: vec![0.0; tps.len()],
            undo_bytes_max: MEMORY / 7,
            pruned: 0,
            unchanged: (reader != Reader::None).then_some(true),
        };
        // The first turn does not count.
        let of = [trace(Reader::None, &[0.0, 90.0, 110.0]), trace(Reader::Idle, &[1.0, 80.0, 82.0])];
        let promises = LongReader.promises(&of.map(|trace| row(&trace, 1)));
        let measured: Vec<(f64, bool)> = promises.iter().map(|promise| (promise.measured, promise.held)).collect();
        assert_eq!(measured[0], (0.81, false));
        assert_eq!(measured[1], (1.0, true));
        assert!(!measured[2].1, "above its share");
    }
}
