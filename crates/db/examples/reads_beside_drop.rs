//! Reads by snapshots beside a `drop_table` that waits for a writer: their rate compared with that without the drop,
//! and the slowest read of both.
//!
//! ```text
//! cargo run --release -p foreshore --example reads_beside_drop -- [ROUNDS [MILLISECONDS]]
//! ```

use foreshore::{Db, Device, Error, Options, TableDef, TxnOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const COUNT: u64 = 10_000;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let mut next = |default: u64| args.next().unwrap_or(default);
    let (rounds, time) = (next(5), Duration::from_millis(next(2000)));
    let db = Options::new().device(Device::Null).open("/db")?;
    for first in (0..COUNT).step_by(1000) {
        db.run(|tx| {
            let table = tx.open(ROWS)?;
            (first..first + 1000).try_for_each(|key| table.insert(key, key).map(drop))
        })?;
    }
    println!("reads          reads/s  slowest");
    let (mut ratios, mut slowest) = (Vec::new(), Duration::ZERO);
    for round in 1..=rounds {
        // There and back, so that a machine that gets slower favours neither.
        let (alone, beside) = if round % 2 == 0 {
            let alone = read_for(&db, time, "alone")?;
            (alone, beside_a_drop(&db, time)?)
        } else {
            let beside = beside_a_drop(&db, time)?;
            (read_for(&db, time, "alone")?, beside)
        };
        ratios.push(beside.rate / alone.rate);
        slowest = slowest.max(beside.slowest);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "beside a waiting drop / alone: median {:.3} of {ratios:.3?}, slowest beside it {slowest:?}",
        ratios[ratios.len() / 2]
    );
    db.close(Duration::MAX)
}

struct Reads {
    rate: f64,
    slowest: Duration,
}

/// Reads row after row, each by a snapshot of its own.
fn read_for(db: &Db, time: Duration, kind: &str) -> Result<Reads, Error> {
    let began = Instant::now();
    let (mut count, mut slowest, mut last) = (0, Duration::ZERO, began);
    while last - began < time {
        let key = count * 7919 % COUNT;
        assert_eq!(db.read().open(ROWS)?.get(key)?, Some(key), "the row is there");
        let now = Instant::now();
        (count, slowest, last) = (count + 1, slowest.max(now - last), now);
    }
    let rate = count as f64 / time.as_secs_f64();
    println!("{kind:12}  {rate:8.0}  {slowest:?}");
    Ok(Reads { rate, slowest })
}

/// The same beside a drop that waits for a writer all the time, and is rolled back.
fn beside_a_drop(db: &Db, time: Duration) -> Result<Reads, Error> {
    let writer = db.begin();
    writer.open(ROWS)?.insert(COUNT, 0)?;
    let is_granted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dropper = scope.spawn(|| {
            let dropper = db.begin_with(TxnOptions::new().lock_timeout(Duration::from_secs(3600)));
            dropper.drop_table(ROWS.name())?;
            is_granted.store(true, Ordering::Relaxed);
            dropper.rollback()
        });
        // A locking reader stands behind the drop as soon as that waits.
        let stands = || {
            let other = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
            matches!(other.open(ROWS).and_then(|table| table.get(0)), Err(Error::LockTimeout { .. }))
        };
        while !stands() {
            std::thread::yield_now();
        }
        let reads = read_for(db, time, "beside drop");
        assert!(!is_granted.load(Ordering::Relaxed), "the drop has waited all the time");
        writer.rollback()?;
        dropper.join().expect("no panic")?;
        reads
    })
}
