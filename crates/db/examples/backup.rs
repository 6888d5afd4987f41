//! Backs up a database while threads write to it, then opens the copy and checks it.
//!
//! ```text
//! cargo run --release -p foreshore --example backup
//! ```

use foreshore::{Db, Error, TableDef};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
const ORDERS: TableDef<(u64, u64), &str> = TableDef::new("orders");

const ACCOUNT_COUNT: u64 = 1000;
const WRITERS: u64 = 4;

fn main() -> Result<ExitCode, Error> {
    let dir = std::env::current_dir().expect("a directory").join(format!("backup-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|error| Error::io("create", &dir, error))?;
    let holds = run(&dir)?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", &dir, error))?;
    println!("{}", if holds { "The copy is right." } else { "The copy is wrong." });
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(dir: &Path) -> Result<bool, Error> {
    let db = Db::open(dir.join("db"))?;
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        (0..ACCOUNT_COUNT).try_for_each(|account| accounts.insert(account, 100).map(drop))
    })?;
    let (is_over, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, is_over, committed) = (&db, &is_over, &committed);
                scope.spawn(move || write(db, writer, is_over, committed))
            })
            .collect();
        // Some commits come before the backup.
        while committed.load(Ordering::Relaxed) < 1000 && !writers.iter().any(|writer| writer.is_finished()) {
            thread::yield_now();
        }
        let before = committed.load(Ordering::Relaxed);
        let backup = db.backup(dir.join("copy"));
        let after = committed.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))?;
        let backup = backup?;
        println!("{} pages and {} bytes of log were copied", backup.pages, backup.log_bytes);
        check(&Db::open(dir.join("copy"))?, before, after)
    })
}

/// Moves money from account to account until `is_over`, and counts the commits.
fn write(db: &Db, writer: u64, is_over: &AtomicBool, committed: &AtomicU64) -> Result<(), Error> {
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let (from, to) =
            ((writer * 7919 + number * 31) % ACCOUNT_COUNT, (writer * 104_729 + number * 17) % ACCOUNT_COUNT);
        db.run(|tx| {
            let accounts = tx.open(ACCOUNTS)?;
            let balance = accounts.get_for_update(from)?.unwrap_or(0);
            accounts.insert(from, balance - 1)?;
            let balance = accounts.get_for_update(to)?.unwrap_or(0);
            accounts.insert(to, balance + 1)?;
            tx.open(ORDERS)?.insert((writer, number), "moved").map(drop)
        })?;
        committed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Checks a copy whose original had at least `before` orders when the backup began, and about `after` when it ended.
fn check(copy: &Db, before: u64, after: u64) -> Result<bool, Error> {
    copy.check()?;
    let reader = copy.read();
    let mut sum = 0;
    for row in reader.open(ACCOUNTS)?.iter() {
        sum += row?.1;
    }
    let mut orders = 0;
    for row in reader.open(ORDERS)?.iter() {
        row?;
        orders += 1;
    }
    println!("the copy has {orders} orders; the database had {before} before the backup and {after} behind it");
    Ok(sum == 100 * ACCOUNT_COUNT as i64 && orders >= before)
}
