use super::*;
use crate::real::plan::options;
use crate::real::work::{Shift, work};
use foreshore::Device;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A database in memory after a short shift, and what its writers heard.
fn worked() -> (Db, Heard) {
    let db = options(1).device(Device::Null).open("/a-database").unwrap();
    let heard = Mutex::new(Heard::default());
    let report = |thread, number, told| {
        heard.lock().unwrap().note(thread, number, told).unwrap();
        Ok(())
    };
    let shift =
        Shift { until: Instant::now() + Duration::from_secs(600), most: 30, shrinks: false, is_disk_bad: false };
    work(&db, shift, &report).unwrap();
    (db, heard.into_inner().unwrap())
}

#[test]
fn what_the_writers_heard_is_there() {
    let (db, heard) = worked();
    let mut ledger = Ledger::default();
    ledger.verify(&db, &heard, 1).unwrap();
    assert_eq!(heard.commits, 30 * THREADS);
    assert!(ledger.parts.iter().all(|part| part.newest == 30 && !part.tables.is_empty()));
    ledger.verify(&db, &Heard::default(), 1).unwrap();
}

#[test]
fn a_commit_that_is_lost_is_found() {
    let (db, mut heard) = worked();
    heard.note(2, 31, Told::Committed).unwrap();
    let why = Ledger::default().verify(&db, &heard, 1).unwrap_err();
    assert_eq!(why, "thread 2: 31 was acknowledged, and 30 is the newest there");
}

#[test]
fn a_prepared_transaction_that_is_lost_is_found() {
    let (db, mut heard) = worked();
    heard.note(2, 31, Told::Prepared).unwrap();
    let why = Ledger::default().verify(&db, &heard, 1).unwrap_err();
    assert_eq!(why, "prepared-2-31 was prepared and is lost");
}

#[test]
fn more_commits_than_were_in_flight_are_found() {
    let (db, _) = worked();
    let why = Ledger::default().verify(&db, &Heard::default(), 1).unwrap_err();
    assert_eq!(why, "thread 0: 0 was acknowledged, and 30 is there");
}

#[test]
fn half_a_transaction_is_found() {
    let wrong = |change: &dyn Fn(&foreshore::Transaction) -> Result<(), Error>| {
        let (db, heard) = worked();
        db.run(|tx| change(tx)).unwrap();
        Ledger::default().verify(&db, &heard, 1).unwrap_err()
    };
    let first = |tx: &foreshore::Transaction| -> Result<u64, Error> { Ok(tx.open(ROWS)?.first()?.unwrap().0) };
    let row = wrong(&|tx| {
        let key = first(tx)?;
        tx.open(ROWS)?.insert(key, &value(key, 99, 5)[..]).map(drop)
    });
    assert!(row.contains("is of transaction"), "{row}");
    let missing = wrong(&|tx| {
        let key = first(tx)?;
        tx.open(ROWS)?.remove(key).map(drop)
    });
    assert!(missing.contains("is missing"), "{missing}");
    let more = wrong(&|tx| tx.open(ROWS)?.insert(THREADS * KEYS, &[1][..]).map(drop));
    assert!(more.contains("is there"), "{more}");
    let balance = wrong(&|tx| tx.open(SHARED)?.insert(3, i64::MAX).map(drop));
    assert!(balance.contains("balance 3 is"), "{balance}");
    let table = wrong(&|tx| tx.drop_table(&table_name(1, 2)).map(drop));
    assert!(table.contains("table-1-2 has None"), "{table}");
    let stray = wrong(&|tx| tx.open(TableDef::<u64, u64>::new("stray-0")).map(drop));
    assert!(stray.contains("rolled back and is there"), "{stray}");
}

#[test]
fn a_thread_is_not_told_of_older_transactions() {
    let mut heard = Heard::default();
    heard.note(1, 5, Told::Committed).unwrap();
    assert!(heard.note(1, 5, Told::Committed).is_err());
    assert!(heard.note(1, 4, Told::Committed).is_err());
    assert!(heard.note(THREADS, 1, Told::Committed).is_err());
}
