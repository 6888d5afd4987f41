//! One large transaction beside many small ones: it updates all rows in key order, while writers update five random
//! rows each. Both kinds succeed.
//!
//! ```text
//! cargo run --release -p foreshore --example large_beside_small -- [TRIES [ROWS [WRITERS]]]
//! ```

use foreshore::{Db, Device, Error, Options, TableDef, TxnOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const BALANCES: TableDef<u64, i64> = TableDef::new("balances");

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let mut next = |default: u64| args.next().unwrap_or(default);
    let (tries, rows, writers) = (next(20), next(20_000), next(8));
    let db = Options::new().device(Device::Null).open("/db")?;
    for first in (0..rows).step_by(1000) {
        db.run(|tx| {
            let balances = tx.open(BALANCES)?;
            (first..rows.min(first + 1000)).try_for_each(|key| balances.insert(key, 0).map(drop))
        })?;
    }
    for number in 1..=tries {
        one(&db, number, rows, writers)?;
    }
    Ok(())
}

/// One large transaction, and what the small ones do meanwhile.
fn one(db: &Db, number: u64, rows: u64, writers: u64) -> Result<(), Error> {
    let (over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let small: Vec<_> = (0..writers)
            .map(|seed| {
                let (over, commits) = (&over, &commits);
                scope.spawn(move || {
                    let mut state = seed + 1;
                    while !over.load(Ordering::Relaxed) {
                        update_five(db, rows, &mut state)?;
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        while commits.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let (mut runs, before, began) = (0, commits.load(Ordering::Relaxed), Instant::now());
        let large = db.run_with(TxnOptions::new().label("large"), |tx| {
            runs += 1;
            let balances = tx.open(BALANCES)?;
            (0..rows).try_for_each(|key| {
                let balance = balances.get_for_update(key)?.unwrap_or(0);
                balances.insert(key, balance + 1_000_000).map(drop)
            })
        });
        let (took, meanwhile) = (began.elapsed(), commits.load(Ordering::Relaxed) - before);
        over.store(true, Ordering::Relaxed);
        let small = small.into_iter().try_for_each(|writer| writer.join().expect("no panic"));
        println!("{number}: {runs} runs, {took:?}, {meanwhile} small commits meanwhile");
        large.and(small)
    })
}

fn update_five(db: &Db, rows: u64, state: &mut u64) -> Result<(), Error> {
    db.run_with(TxnOptions::new().label("small"), |tx| {
        let balances = tx.open(BALANCES)?;
        (0..5).try_for_each(|_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (*state >> 33) % rows;
            let balance = balances.get_for_update(key)?.unwrap_or(0);
            balances.insert(key, balance + 1).map(drop)
        })
    })
}
