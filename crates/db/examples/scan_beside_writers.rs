//! A serializable scan of many rows with little memory, beside writers of other rows of the same table. It measures
//! how much the scan slows them down, compared with the same scan of a snapshot.
//!
//! ```text
//! cargo run --release -p foreshore --example scan_beside_writers -- [ROUNDS [ROWS [WRITERS]]]
//! ```

use foreshore::{Db, Durability, Error, Options, TableDef, TxnOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
/// Rows of each writer, behind those that are scanned.
const OWN: u64 = 10_000;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let mut next = |default: u64| args.next().unwrap_or(default);
    let (rounds, rows, writers) = (next(5), next(5_000_000), next(1));
    let dir = std::env::current_dir().expect("a directory").join(format!("scan-{}", std::process::id()));
    let db = Options::new().memory_limit(64 << 20).open(&dir)?;
    let all = rows + writers * OWN;
    for first in (0..all).step_by(10_000) {
        db.run_with(TxnOptions::new().durability(Durability::Relaxed), |tx| {
            let table = tx.open(ROWS)?;
            (first..all.min(first + 10_000)).try_for_each(|key| table.insert(key, 0).map(drop))
        })?;
    }
    db.checkpoint()?;
    println!("scan          scanned/s  writes/s  lock waits  lock memory");
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        // There and back, so that a machine that gets slower favours neither.
        let mut kinds = ["snapshot", "serializable"];
        kinds.rotate_left(round as usize % 2);
        let rates = kinds.map(|kind| beside(&db, kind, rows, writers).map(|rate| (kind, rate)));
        let [(first, a), (_, b)] = [rates[0].clone()?, rates[1].clone()?];
        ratios.push(if first == "snapshot" { b / a } else { a / b });
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "writers beside the serializable scan / beside the snapshot: median {:.3} of {ratios:.3?}",
        ratios[ratios.len() / 2]
    );
    db.close(std::time::Duration::MAX)?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

/// Scans the rows before those of the writers once, and returns the writers' commits a second meanwhile.
fn beside(db: &Db, kind: &str, rows: u64, writers: u64) -> Result<f64, Error> {
    let (over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                let (over, commits) = (&over, &commits);
                scope.spawn(move || {
                    for n in 0.. {
                        let key = rows + writer * OWN + n % OWN;
                        db.run_with(TxnOptions::new().durability(Durability::Relaxed), |tx| {
                            tx.open(ROWS)?.insert(key, n).map(drop)
                        })?;
                        commits.fetch_add(1, Ordering::Relaxed);
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        let (waits, before, began) = (db.stats().lock.waits, commits.load(Ordering::Relaxed), Instant::now());
        let mut memory = 0;
        let mut seen = 0;
        let mut look = |entry: Result<(u64, u64), Error>| {
            let (key, _) = entry?;
            assert_eq!(key, seen, "no row is missing");
            seen += 1;
            if seen % 100_000 == 0 {
                memory = memory.max(db.stats().memory_use.locks);
            }
            Ok::<_, Error>(())
        };
        let scanned = match kind {
            "snapshot" => db.read().open(ROWS).and_then(|table| table.range(..rows).try_for_each(&mut look)),
            _ => db.run(|tx| tx.open(ROWS)?.range(..rows).try_for_each(&mut look)),
        };
        let took = began.elapsed().as_secs_f64();
        let (meanwhile, waits) = (commits.load(Ordering::Relaxed) - before, db.stats().lock.waits - waits);
        over.store(true, Ordering::Relaxed);
        let writing = writing.into_iter().try_for_each(|writer| writer.join().expect("no panic"));
        let rate = meanwhile as f64 / took;
        println!("{kind:12}  {:9.0}  {rate:8.0}  {waits:10}  {memory:11}", rows as f64 / took);
        scanned.and(writing).map(|()| rate)
    })
}
