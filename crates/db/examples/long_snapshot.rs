//! A long read beside writers: while a snapshot is open, it shows one state of all rows. It waits for no writer, and no
//! writer waits for it.
//!
//! ```text
//! cargo run -p foreshore --example long_snapshot
//! ```

use foreshore::{Db, Error, Options, ReadTransaction, TableDef};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BALANCES: TableDef<u64, i64> = TableDef::new("balances");
const ACCOUNTS: u64 = 1_000;

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("bank")?;
    db.run(|tx| {
        let balances = tx.open(BALANCES)?;
        (0..ACCOUNTS).try_for_each(|account| balances.insert(account, 100).map(drop))
    })?;

    // The snapshot is taken here. It does not see later commits.
    let snapshot = db.read();
    let stop = AtomicBool::new(false);
    let (reads, transfers) = std::thread::scope(|scope| {
        let (db, stop) = (&db, &stop);
        let writers: Vec<_> = (1..=2).map(|seed| scope.spawn(move || transfer(db, stop, seed))).collect();
        let reads = read_again_and_again(&snapshot, Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        let transfers: Result<Vec<u64>, _> = writers.into_iter().map(|w| w.join().expect("no panic")).collect();
        Ok::<_, Error>((reads?, transfers?))
    })?;
    println!("one snapshot read {ACCOUNTS} rows {reads} times");
    println!("two writers committed {transfers:?} transfers meanwhile");

    let (before, after) = (with_first_balance(&snapshot)?, with_first_balance(&db.read())?);
    println!("rows with a balance of 100: {before} in the snapshot, {after} in a new one");
    assert_eq!(before as u64, ACCOUNTS);
    drop(snapshot);
    db.close(Duration::from_secs(1))
}

/// Sums all balances of the snapshot again and again for the given time. Returns how often.
fn read_again_and_again(snapshot: &ReadTransaction, time: Duration) -> Result<u64, Error> {
    let (began, mut reads) = (Instant::now(), 0);
    while began.elapsed() < time {
        let sum = snapshot.open(BALANCES)?.iter().map(|row| row.map(|(_, balance)| balance)).sum::<Result<i64, _>>()?;
        assert_eq!(sum, 100 * ACCOUNTS as i64, "every read shows the same state");
        reads += 1;
    }
    Ok(reads)
}

/// Counts the rows whose balance is 100, the one that all rows begin with.
fn with_first_balance(snapshot: &ReadTransaction) -> Result<usize, Error> {
    let rows = snapshot.open(BALANCES)?.iter().collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().filter(|(_, balance)| *balance == 100).count())
}

/// Moves 1 between two accounts per transfer, until `stop` is set. Returns the number of transfers.
fn transfer(db: &Db, stop: &AtomicBool, seed: u64) -> Result<u64, Error> {
    let (mut count, mut state) = (0, seed);
    while !stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to) = ((state >> 32) % ACCOUNTS, (state >> 48) % ACCOUNTS);
        db.run(|tx| {
            let balances = tx.open(BALANCES)?;
            for (account, change) in [(from, -1), (to, 1)] {
                let balance = balances.get_for_update(account)?.expect("loaded");
                balances.insert(account, balance + change)?;
            }
            Ok::<_, Error>(())
        })?;
        count += 1;
    }
    Ok(count)
}
