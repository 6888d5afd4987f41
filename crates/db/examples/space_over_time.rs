//! Measures the data file of a database in which rows come and go for a long time.
//!
//! | case | rows | bound |
//! |---|---|---|
//! | `churn` | 100,000 rows; half are replaced by random new keys, 100 rounds | file at most 1.7 x the data |
//! | `time-series` | 50 series of 1,000 points a day; three days stay, 100 days | see below |
//! | `runs` | 100 ascending runs side by side | file filled at least 0.9 x as well as by one run |
//! | `compact` | 1,000,000 rows in random order, 90 % removed at random, then `Db::compact` | file at most 1.3 x the data |
//!
//! In `time-series` the day before the last three is removed row by row. The file after day 100 is at most 1.1 x that
//! after day 10, and at most 4 x the live rows.
//!
//! The data is the keys and values as the caller sees them. The exit code says whether the bound holds.
//!
//! ```text
//! cargo run --release -p foreshore --example space_over_time -- churn|time-series|runs|compact
//! ```

use foreshore::{Db, Durability, Error, Options, TableDef, Transaction, TxnOptions};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes of a page.
const PAGE: u64 = 8192;
/// Rounds, or days.
const ROUNDS: u64 = 100;
/// Rows of a transaction.
const AT_ONCE: usize = 1000;

fn main() -> Result<ExitCode, Error> {
    let holds = match std::env::args().nth(1).as_deref() {
        Some("churn") => churn()?,
        Some("time-series") => time_series()?,
        Some("runs") => runs()?,
        Some("compact") => compact()?,
        _ => {
            eprintln!("the argument is one of churn, time-series, runs, compact");
            return Ok(ExitCode::from(2));
        }
    };
    println!("{}", if holds { "The bound holds." } else { "The bound does not hold." });
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A database in a directory of its own, which goes with it.
struct Place {
    dir: PathBuf,
    db: Db,
}

impl Place {
    fn new(name: &str) -> Result<Self, Error> {
        let dir = std::env::current_dir().expect("a directory").join(format!("space-{name}-{}", std::process::id()));
        let db = Options::new().open(&dir)?;
        println!("{name:>12}        file  pages in use  free pages        live");
        Ok(Self { dir, db })
    }

    /// Runs a transaction that need not be durable when it ends.
    fn run<T>(&self, work: impl FnMut(&Transaction) -> Result<T, Error>) -> Result<T, Error> {
        self.db.run_with(TxnOptions::new().durability(Durability::Relaxed), work)
    }

    /// Prints a line on each tenth of the rounds, and returns the bytes of the data file.
    fn look(&self, round: u64, live: u64) -> u64 {
        let space = self.db.stats().space;
        let file = space.file_pages * PAGE;
        if round.is_multiple_of(10) {
            println!("{round:12}  {file:10}  {:12}  {:10}  {live:10}", space.used_pages, space.free_pages);
        }
        file
    }

    fn end(self) -> Result<(), Error> {
        self.db.close(std::time::Duration::MAX)?;
        std::fs::remove_dir_all(&self.dir).map_err(|error| Error::io("remove", self.dir, error))
    }
}

fn ratio(bytes: u64, of: u64) -> f64 {
    bytes as f64 / of as f64
}

/// Pseudo-random numbers, none of them twice.
struct Random(u64);

impl Random {
    /// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn churn() -> Result<bool, Error> {
    const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
    const ROWS: usize = 100_000;
    const LIVE: u64 = ROWS as u64 * (8 + 100);
    let (place, mut random) = (Place::new("churn")?, Random(1));
    let mut keys: Vec<u64> = (0..ROWS).map(|_| random.next()).collect();
    let insert = |keys: &[u64]| {
        keys.chunks(AT_ONCE).try_for_each(|keys| {
            place.run(|tx| {
                let table = tx.open(TABLE)?;
                keys.iter().try_for_each(|key| table.insert(key, &[7; 100][..]).map(drop))
            })
        })
    };
    insert(&keys)?;
    let (mut file, mut most) = (place.look(0, LIVE), 0);
    for round in 1..=ROUNDS {
        // The first half is random once the rows are shuffled.
        for at in 0..ROWS / 2 {
            keys.swap(at, at + (random.next() % (ROWS - at) as u64) as usize);
        }
        for keys in keys[..ROWS / 2].chunks(AT_ONCE) {
            place.run(|tx| {
                let table = tx.open(TABLE)?;
                keys.iter().try_for_each(|key| table.remove(key).map(drop))
            })?;
        }
        keys[..ROWS / 2].fill_with(|| random.next());
        insert(&keys[..ROWS / 2])?;
        file = place.look(round, LIVE);
        most = most.max(file);
    }
    place.end()?;
    println!(
        "The file is {:.3} x the data, {:.3} x at most; the bound is 1.7 x.",
        ratio(file, LIVE),
        ratio(most, LIVE)
    );
    Ok(ratio(most, LIVE) <= 1.7)
}

fn time_series() -> Result<bool, Error> {
    const TABLE: TableDef<(u32, u64), &[u8]> = TableDef::new("points");
    const SERIES: u32 = 50;
    const POINTS: u64 = 1000;
    /// Days that stay.
    const KEPT: u64 = 3;
    const LIVE: u64 = KEPT * SERIES as u64 * POINTS * (4 + 8 + 50);
    let place = Place::new("time-series")?;
    let (mut early, mut late) = (0, 0);
    for day in 1..=ROUNDS {
        let times: Vec<u64> = (day * POINTS..(day + 1) * POINTS).collect();
        for times in times.chunks(AT_ONCE / SERIES as usize) {
            place.run(|tx| {
                let table = tx.open(TABLE)?;
                let mut points = times.iter().flat_map(|&time| (0..SERIES).map(move |series| (series, time)));
                points.try_for_each(|point| table.insert(point, &[7; 50][..]).map(drop))
            })?;
        }
        for series in (0..SERIES).filter(|_| day > KEPT) {
            let old = (day - KEPT) * POINTS..(day - KEPT + 1) * POINTS;
            place.run(|tx| {
                let table = tx.open(TABLE)?;
                old.clone().try_for_each(|time| table.remove((series, time)).map(drop))
            })?;
        }
        late = place.look(day, LIVE);
        if day == 10 {
            early = late;
        }
    }
    place.end()?;
    let (growth, share) = (ratio(late, early), ratio(late, LIVE));
    println!("The file after day {ROUNDS} is {growth:.3} x that after day 10; the bound is 1.1 x.");
    println!("It is {share:.3} x the live rows; the bound is 4 x.");
    Ok(growth <= 1.1 && share <= 4.0)
}

fn runs() -> Result<bool, Error> {
    const TABLE: TableDef<(u32, u64), &[u8]> = TableDef::new("rows");
    const RUNS: u32 = 100;
    const ROWS: u64 = 2000;
    const LIVE: u64 = RUNS as u64 * ROWS * (4 + 8 + 100);
    let fill = |name: &str, keys: &[(u32, u64)]| {
        let place = Place::new(name)?;
        for keys in keys.chunks(AT_ONCE) {
            place.run(|tx| {
                let table = tx.open(TABLE)?;
                keys.iter().try_for_each(|key| table.insert(key, &[7; 100][..]).map(drop))
            })?;
        }
        let file = place.look(0, LIVE);
        place.end()?;
        Ok::<_, Error>(ratio(LIVE, file))
    };
    let mut keys: Vec<(u32, u64)> = (0..ROWS).flat_map(|at| (0..RUNS).map(move |run| (run, at))).collect();
    let side_by_side = fill("side by side", &keys)?;
    keys.sort_unstable();
    let one = fill("one run", &keys)?;
    let share = side_by_side / one;
    println!(
        "Side by side the file is {side_by_side:.3} full, {share:.3} x as full as after one run; the bound is 0.9 x."
    );
    Ok(share >= 0.9)
}

fn compact() -> Result<bool, Error> {
    const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
    const ROWS: usize = 1_000_000;
    const LIVE: u64 = ROWS as u64 / 10 * (8 + 100);
    let (place, mut random) = (Place::new("compact")?, Random(1));
    let keys: Vec<u64> = (0..ROWS).map(|_| random.next()).collect();
    for keys in keys.chunks(AT_ONCE) {
        place.run(|tx| {
            let table = tx.open(TABLE)?;
            keys.iter().try_for_each(|key| table.insert(key, &[7; 100][..]).map(drop))
        })?;
    }
    place.look(0, LIVE * 10);
    // The order of keys has nothing to do with that of the numbers.
    for keys in keys[ROWS / 10..].chunks(AT_ONCE) {
        place.run(|tx| {
            let table = tx.open(TABLE)?;
            keys.iter().try_for_each(|key| table.remove(key).map(drop))
        })?;
    }
    place.look(0, LIVE);
    let began = std::time::Instant::now();
    let done = place.db.compact()?;
    let file = place.look(0, LIVE);
    println!("{done:?} in {:?}", began.elapsed());
    let share = ratio(file, LIVE);
    place.end()?;
    println!("The file is {share:.3} x the data; the bound is 1.3 x.");
    Ok(share <= 1.3)
}
