//! Counters say what happened.

use crate::support::{DIR, NUMBERS, fill, in_memory, small};
use foreshore::{Device, Error, Options, Table, TxnOptions};
use std::{ops::Range, time::Duration};

#[test]
fn counters_follow_the_work() {
    let (db, fs) = in_memory();
    let before = db.stats();
    assert_eq!((before.backend.as_str(), before.memory.limit), ("null", 8 << 20));
    fill(&db, 1000);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(1, 0).unwrap();
    tx.rollback().unwrap();
    let after = db.stats();
    assert_eq!(after.txn.commits - before.txn.commits, 10);
    assert_eq!(after.txn.aborts - before.txn.aborts, 1);
    assert_eq!(after.lock.deadlocks, 0);
    assert!(after.log.records >= 1000 && after.log.groups >= 10, "{:?}", after.log);
    assert!(after.log_retained_bytes >= after.log.group_bytes);
    assert!(after.space.used_pages > before.space.used_pages);
    let checkpoints = after.checkpoint.checkpoints;
    db.checkpoint().unwrap();
    let last = db.stats();
    assert_eq!(last.checkpoint.checkpoints, checkpoints + 1);
    assert!(last.checkpoint.scan_start > before.checkpoint.scan_start);
    assert!(last.pool.pages_written > before.pool.pages_written);
    db.close(Duration::ZERO).unwrap();
    let again = small().lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap();
    assert!(again.stats().recovery.was_clean);
    assert_eq!(again.stats().recovery.losers, 0);
}

#[test]
fn every_share_of_the_memory_says_how_much_of_it_is_used() {
    const ROWS: u64 = 4000;
    let db = small().device(Device::Null).max_transactions(4).open(DIR).unwrap();
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        (0..ROWS).try_for_each(|n| table.insert(n, 0).map(drop))
    })
    .unwrap();
    let (before, limit) = (db.stats().memory_use, db.stats().memory);
    assert!(before.log > 0 && before.status > 0 && before.pool > 0, "{before:?}");
    assert_eq!(before.locks, 0, "nothing runs");
    assert!(before.undo > 0 && before.undo <= limit.undo, "{before:?} {limit:?}");
    let read_rows =
        |read: &Table<'_, u64, i64>, rows: Range<u64>| rows.map(|n| (n, read.get(n))).find(|(_, row)| row.is_err());
    let reader = db.begin();
    let read = reader.open(NUMBERS).unwrap();
    assert!(read_rows(&read, 0..100).is_none());
    assert!(db.stats().memory_use.locks > 0, "row by row");
    // More than its share has room for, again and again.
    assert!(read_rows(&read, 0..ROWS).is_none());
    assert!((ROWS..ROWS + 100).all(|n| read.get(n).unwrap().is_none()));
    let used = db.stats().memory_use;
    assert!(
        used.log <= limit.log_buffer && used.status <= limit.status && used.pool <= limit.pool,
        "{used:?} {limit:?}"
    );
    assert!(used.locks <= limit.locks / 4, "{used:?} {limit:?}");
    let writer = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
    assert!(matches!(writer.open(NUMBERS).unwrap().insert(ROWS - 1, 1), Err(Error::LockTimeout { .. })));
    drop((writer, reader));
    assert_eq!(db.stats().memory_use.locks, 0);
}

#[test]
fn the_log_that_is_kept_stays_within_its_budget() {
    const BUDGET: u64 = 1 << 20;
    let db = Options::new()
        .memory_limit(16 << 20)
        .lab(|lab| lab.segment_bytes = 64 << 10)
        .log_budget(BUDGET)
        .lab(|lab| lab.background = false)
        .device(Device::Null)
        .open(DIR)
        .unwrap();
    for round in 0..4000 {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            (0..20).try_for_each(|n| table.insert(n * 50, round).map(drop))
        })
        .unwrap();
        (0..4).for_each(|_| db.step());
        let kept = db.stats().log_retained_bytes;
        assert!(kept <= BUDGET + BUDGET / 4, "round {round}: {kept} bytes of log");
    }
    assert!(db.stats().checkpoint.checkpoints > 5);
    assert!(db.stats().log.segments_recycled > 20);
}

#[test]
fn a_database_at_rest_takes_no_checkpoints() {
    // With little memory the log between two checkpoints is shorter than the precision with which a segment knows the
    // places of its groups, here 1 MiB. The test ends where that would matter.
    let options = Options::new().memory_limit(4 << 20).lab(|lab| lab.background = false).device(Device::Null);
    let db = options.open(DIR).unwrap();
    while db.stats().log.group_bytes < 1_700_000 {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            (0..250).try_for_each(|n| table.insert(n, 0).map(drop))
        })
        .unwrap();
    }
    let checkpoints = || db.stats().checkpoint.checkpoints;
    // What is still due, whichever step comes first.
    (0..100).for_each(|_| db.step());
    let (at_rest, log) = (checkpoints(), db.stats().log.group_bytes);
    assert!(at_rest > 0, "{log} bytes of log");
    (0..1000).for_each(|_| db.step());
    assert_eq!((checkpoints(), db.stats().log.group_bytes), (at_rest, log));
}

#[test]
fn the_log_is_kept_for_a_transaction_that_stays_open() {
    let (db, fs) = in_memory();
    fill(&db, 10);
    let before = crate::support::numbers(&db);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(5, -5).unwrap();
    // Far more than the budget.
    for round in 0..1500_u64 {
        db.run(|tx| {
            let table = tx.open(foreshore::TableDef::<u64, u64>::new("others"))?;
            (0..20).try_for_each(|n| table.insert(n, round).map(drop))
        })
        .unwrap();
    }
    db.checkpoint().unwrap();
    assert!(db.stats().log_retained_bytes > 512 << 10);
    db.close(Duration::ZERO).unwrap();
    drop(tx);
    let db = crate::support::open(&fs).unwrap();
    assert_eq!(db.stats().recovery.losers, 1);
    assert_eq!(crate::support::numbers(&db), before);
    assert!(matches!(db.run(|tx| tx.open(NUMBERS)?.insert_new(5, 0)), Err(Error::KeyExists { .. })));
}
