//! Everything at once, with little memory: transfers with savepoints, scans that sum them up, a queue, and
//! measurements that are removed after three days. Tables are created and dropped below old snapshots, and some
//! transactions are prepared. Every sum, job and table is checked on the way, and the whole database each minute and
//! at the end.
//!
//! ```text
//! cargo run --release -p foreshore --example all_together -- [SECONDS [MEMORY_MIB [DIRECTORY]]]
//! ```

use foreshore::{Db, Durability, Error, Options, RowLock, TableDef, TxnOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
const JOBS: TableDef<u64, &[u8]> = TableDef::new("jobs");
const POINTS: TableDef<(u32, u64), &[u8]> = TableDef::new("points");
const NOTES: TableDef<(u32, u64), &[u8]> = TableDef::new("notes");

const COUNT: u64 = 50_000;
const BALANCE: i64 = 1_000;
const SERIES: u32 = 50;
/// Points of a series in a day.
const DAY: u64 = 200;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(default, |arg| arg.parse().expect("a number"));
    let (seconds, memory) = (number(300), number(24));
    let default = || std::env::current_dir().expect("a directory").join(format!("together-{}", std::process::id()));
    let dir = args.next().map_or_else(default, PathBuf::from);
    let options = Options::new().memory_limit(memory << 20).spill_limit(1 << 30);
    let db = options.clone().open(&dir)?;
    load(&db)?;
    let bed = Bed { db, over: AtomicBool::new(false), tally: Tally::default() };
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let bed = &bed;
            scope.spawn(move || bed.repeat("transfer", seed, Bed::transfer));
        }
        let parts: [(&'static str, Step); 9] = [
            ("sum", Bed::sum),
            ("snapshot sum", Bed::snapshot_sum),
            ("produce", Bed::produce),
            ("consume", Bed::consume),
            ("consume", Bed::consume),
            ("day", Bed::day),
            ("table", Bed::table),
            ("prepared", Bed::prepared),
            ("recent", Bed::recent),
        ];
        for (at, (name, step)) in parts.into_iter().enumerate() {
            let bed = &bed;
            scope.spawn(move || bed.repeat(name, 100 + at as u64, step));
        }
        bed.watch(Duration::from_secs(seconds))
    })?;
    bed.check_queue()?;
    println!("{:?}", bed.db.check()?);
    let Bed { db, .. } = bed;
    db.close(Duration::from_secs(60))?;
    let began = Instant::now();
    drop(options.open(&dir)?);
    println!("opened again in {:?}", began.elapsed());
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

fn load(db: &Db) -> Result<(), Error> {
    for first in (0..COUNT).step_by(1000) {
        db.run(|tx| {
            let accounts = tx.open(ACCOUNTS)?;
            (first..first + 1000).try_for_each(|key| accounts.insert(key, BALANCE).map(drop))
        })?;
    }
    db.run(|tx| {
        tx.open(JOBS)?;
        tx.open(POINTS)?;
        tx.open(NOTES).map(drop)
    })
}

/// One step of a part: its own numbers, and how many steps it has made.
type Step = fn(&Bed, &mut Random, u64) -> Result<(), Error>;

/// What the parts share.
struct Bed {
    db: Db,
    over: AtomicBool,
    tally: Tally,
}

/// What has been counted.
#[derive(Default)]
struct Tally {
    produced: AtomicU64,
    consumed: AtomicU64,
    /// Steps by part, and their times in microseconds since the last line.
    times: Mutex<BTreeMap<&'static str, Vec<u32>>>,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Bed {
    fn repeat(&self, name: &'static str, seed: u64, step: Step) {
        let (mut random, mut times) = (Random(seed), Vec::new());
        let mut noted = Instant::now();
        for n in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let began = Instant::now();
            if let Err(error) = step(self, &mut random, n) {
                *self.tally.errors.lock().expect("no panic").entry(format!("{name}: {error}")).or_default() += 1;
            }
            times.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
            if noted.elapsed() > Duration::from_millis(500) {
                self.tally.times.lock().expect("no panic").entry(name).or_default().append(&mut times);
                noted = Instant::now();
            }
        }
    }

    /// Moves an amount between five accounts, some of it in vain.
    fn transfer(&self, random: &mut Random, _: u64) -> Result<(), Error> {
        let keys: [u64; 5] = std::array::from_fn(|_| random.below(COUNT));
        let regrets = random.below(4) == 0;
        self.db.run(|tx| {
            let accounts = tx.open(ACCOUNTS)?;
            let add = |key: u64, amount: i64| {
                let balance = accounts.get_for_update(key)?.unwrap_or(0);
                accounts.insert(key, balance + amount).map(drop)
            };
            add(keys[0], -4)?;
            let savepoint = tx.savepoint()?;
            keys[1..].iter().try_for_each(|&key| add(key, 1))?;
            if regrets {
                tx.rollback_to(&savepoint)?;
                add(keys[1], 4)?;
            }
            Ok(())
        })
    }

    fn sum(&self, _: &mut Random, _: u64) -> Result<(), Error> {
        std::thread::sleep(Duration::from_secs(2));
        let sum = self.db.run(|tx| tx.open(ACCOUNTS)?.iter().map(|entry| entry.map(|(_, balance)| balance)).sum())?;
        is_whole(sum);
        Ok(())
    }

    fn snapshot_sum(&self, _: &mut Random, n: u64) -> Result<(), Error> {
        let snapshot = self.db.read();
        std::thread::sleep(Duration::from_secs(if n.is_multiple_of(10) { 5 } else { 1 }));
        is_whole(snapshot.open(ACCOUNTS)?.iter().map(|entry| entry.map(|(_, balance)| balance)).sum::<Result<_, _>>()?);
        Ok(())
    }

    fn produce(&self, random: &mut Random, n: u64) -> Result<(), Error> {
        if self.tally.produced.load(Ordering::Relaxed) > self.tally.consumed.load(Ordering::Relaxed) + 200 {
            std::thread::sleep(Duration::from_micros(200));
            return Ok(());
        }
        let len = random.below(300) as usize;
        self.db.run(|tx| tx.open(JOBS)?.insert_new(n, &vec![n as u8; len][..]))?;
        self.tally.produced.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn consume(&self, _: &mut Random, _: u64) -> Result<(), Error> {
        let taken = self.db.run(|tx| {
            let jobs = tx.open(JOBS)?;
            let mut free = jobs.range_locked(.., RowLock::update().skip_locked());
            let Some((number, _)) = free.next().transpose()? else { return Ok(false) };
            assert!(jobs.remove(number)?.is_some(), "a job is taken once");
            Ok::<_, Error>(true)
        })?;
        match taken {
            true => drop(self.tally.consumed.fetch_add(1, Ordering::Relaxed)),
            false => std::thread::sleep(Duration::from_micros(200)),
        }
        Ok(())
    }

    /// A day's points of each series come, and those of three days before go.
    fn day(&self, _: &mut Random, day: u64) -> Result<(), Error> {
        for series in 0..SERIES {
            self.db.run_with(TxnOptions::new().durability(Durability::Relaxed), |tx| {
                let points = tx.open(POINTS)?;
                (day * DAY..(day + 1) * DAY)
                    .try_for_each(|time| points.insert((series, time), &[7; 50][..]).map(drop))?;
                let Some(past) = day.checked_sub(3) else { return Ok(()) };
                (past * DAY..(past + 1) * DAY).try_for_each(|time| {
                    points.remove((series, time)).map(|was| assert!(was.is_some(), "it was there"))
                })
            })?;
        }
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    /// The newest points of a series, from the end.
    fn recent(&self, random: &mut Random, _: u64) -> Result<(), Error> {
        let series = random.below(u64::from(SERIES)) as u32;
        let read = self.db.read();
        let points = read.open(POINTS)?;
        let newest = points.range((series, 0)..(series + 1, 0)).rev().take(100).collect::<Result<Vec<_>, _>>()?;
        assert!(newest.is_sorted_by(|(a, _), (b, _)| a > b), "from the end, none twice");
        std::thread::sleep(Duration::from_millis(5));
        Ok(())
    }

    /// A table comes, is read by a snapshot beyond its end, and goes.
    fn table(&self, random: &mut Random, n: u64) -> Result<(), Error> {
        let name = format!("passing {}", n % 3);
        let passing: TableDef<u64, &[u8]> = TableDef::new(&name);
        let rows = 100 + random.below(2000);
        self.db.run(|tx| {
            let table = tx.open(passing)?;
            (0..rows).try_for_each(|key| table.insert(key, &[n as u8; 200][..]).map(drop))
        })?;
        let snapshot = self.db.read();
        self.db.run(|tx| tx.drop_table(&name))?;
        assert_eq!(
            snapshot.open(passing)?.iter().filter(Result::is_ok).count() as u64,
            rows,
            "rows of a dropped table"
        );
        assert!(self.db.read().open(passing).is_err(), "the table is gone");
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    fn prepared(&self, random: &mut Random, n: u64) -> Result<(), Error> {
        let name = format!("prepared {n}");
        let tx = self.db.begin_with(TxnOptions::new().label("prepared"));
        tx.open(NOTES)?.insert((1, n), &[1; 100][..])?;
        tx.prepare(&name)?;
        std::thread::sleep(Duration::from_millis(random.below(500)));
        let commits = n.is_multiple_of(2);
        match commits {
            true => drop(self.db.commit_prepared(&name)?),
            false => self.db.rollback_prepared(&name)?,
        }
        assert_eq!(self.db.read().open(NOTES)?.get((1, n))?.is_some(), commits, "what a prepared transaction left");
        Ok(())
    }

    /// Prints a line every ten seconds, and checks the database every minute.
    fn watch(&self, length: Duration) -> Result<(), Error> {
        let began = Instant::now();
        let mut checked = Ok(());
        while began.elapsed() < length && checked.is_ok() {
            std::thread::sleep(Duration::from_secs(10).min(length));
            self.line(began.elapsed());
            if began.elapsed().as_secs() % 60 < 10 {
                checked = self.db.check().map(|report| println!("      {report:?}"));
            }
        }
        self.over.store(true, Ordering::Relaxed);
        checked
    }

    fn line(&self, elapsed: Duration) {
        let stats = self.db.stats();
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "{:4} s: data {} MiB ({} used), log {} MiB, resident {} MiB, locks {} KiB, undo {} KiB, errors {:?}",
            elapsed.as_secs(),
            mib(stats.space.file_pages << 13),
            mib(stats.space.used_pages << 13),
            mib(stats.log_retained_bytes),
            mib(resident()),
            stats.memory_use.locks >> 10,
            stats.memory_use.undo >> 10,
            self.tally.errors.lock().expect("no panic"),
        );
        for (name, mut times) in std::mem::take(&mut *self.tally.times.lock().expect("no panic")) {
            times.sort_unstable();
            let [p50, p99, most] = [500, 990, 1000].map(|share| times[(times.len() - 1) * share / 1000]);
            println!("      {name:12} {:7} steps, p50 {p50}, p99 {p99}, most {most} us", times.len());
        }
    }

    fn check_queue(&self) -> Result<(), Error> {
        let left = self.db.read().open(JOBS)?.iter().count() as u64;
        let [produced, consumed] = [&self.tally.produced, &self.tally.consumed].map(|n| n.load(Ordering::Relaxed));
        assert_eq!(produced, consumed + left, "every job is taken once, or there");
        Ok(())
    }
}

fn is_whole(sum: i64) {
    assert_eq!(sum, COUNT as i64 * BALANCE, "transfers keep the sum");
}

/// Bytes of the process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// SplitMix64.
struct Random(u64);

impl Random {
    const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
