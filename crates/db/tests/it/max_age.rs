//! A transaction that runs for too long is rolled back, and its owner is told.

use crate::support::{DIR, NUMBERS, fill, small};
use foreshore::{Db, Device, Error, Options, ReadOptions, Table, Transaction, TxnOptions};
use foreshore_io::{Fs, Mem};
use std::sync::Arc;
use std::time::{Duration, Instant};

const AGE: Duration = Duration::from_millis(100);

/// A database with ten rows, opened with `options` and the limit. What has to take no longer than that was done before.
fn open(options: Options) -> Db {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    fill(&db, 10);
    db.close(Duration::ZERO).unwrap();
    options.lab(|lab| lab.fs = Some(fs)).transaction_max_age(AGE).open(DIR).unwrap()
}

/// A transaction that has changed rows and does nothing more.
fn idle_writer(db: &Db) -> Transaction {
    loop {
        let tx = db.begin_with(TxnOptions::new().label("idle"));
        let write = |numbers: Table<'_, u64, i64>| (0..3).try_for_each(|n| numbers.insert(n, -1).map(drop));
        match tx.open(NUMBERS).and_then(write) {
            Ok(()) => return tx,
            // The machine is busy.
            Err(Error::TransactionTooOld { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The row as it is committed. Readers may be as old as they like.
fn committed(db: &Db, row: u64) -> Option<i64> {
    db.read().open(NUMBERS).unwrap().get(row).unwrap()
}

fn is_too_old<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::TransactionTooOld { label: "idle", age }) if age >= AGE)
}

/// Waits, by looking again and again, until `is_true`.
fn until(mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never comes true");
        std::thread::yield_now();
    }
}

#[test]
fn an_idle_transaction_that_is_too_old_holds_up_no_other() {
    let db = open(small());
    let idle = idle_writer(&db);
    // Until the background has rolled the other one back the row is locked.
    let impatient = TxnOptions::new().lock_timeout(Duration::from_millis(5));
    let mut found = None;
    until(|| {
        found = db.run_with(impatient, |tx| tx.open(NUMBERS)?.get_for_update(1)).ok();
        found.is_some()
    });
    assert_eq!(found, Some(Some(1)), "what it has changed is as it was");
    until(|| db.stats().oldest_transaction.is_none());
    for _ in 0..2 {
        assert!(is_too_old(idle.open(NUMBERS)), "every operation answers it");
    }
    assert!(is_too_old(idle.commit()));
    assert_eq!(committed(&db, 2), Some(2));
    // Nothing is left of it that `close` would wait for.
    db.close(Duration::ZERO).unwrap();
}

/// Between two operations, between the last one and the commit, and where nothing is left to be done but the end.
#[test]
fn whatever_its_owner_does_next_it_is_told() {
    let db = open(small());
    let [commits, prepares, rolls_back, drops] = [(); 4].map(|()| db.begin_with(TxnOptions::new().label("idle")));
    until(|| is_too_old(commits.open(NUMBERS).and_then(|numbers| numbers.get(1))));
    until(|| db.stats().txn.aborts >= 4);
    assert!(is_too_old(commits.commit_pipelined()));
    assert!(is_too_old(prepares.prepare("name")));
    rolls_back.rollback().unwrap();
    drop(drops);
    assert!(db.prepared().unwrap().is_empty());
    db.close(Duration::from_secs(60)).unwrap();
}

/// A database without threads has the owner find out, or a step.
#[test]
fn without_background_threads_the_next_operation_or_a_step_ends_it() {
    let db = open(small().lab(|lab| lab.background = false));
    let idle = idle_writer(&db);
    until(|| is_too_old(idle.open(NUMBERS).and_then(|numbers| numbers.get(1))));
    assert!(is_too_old(idle.open(NUMBERS)));
    assert_eq!(committed(&db, 1), Some(1));
    let idle = idle_writer(&db);
    assert!(db.stats().oldest_transaction.is_some());
    until(|| {
        db.step();
        db.stats().oldest_transaction.is_none()
    });
    assert!(is_too_old(idle.commit()));
    assert_eq!(committed(&db, 1), Some(1));
}

#[test]
fn prepared_transactions_and_readers_may_be_older() {
    let db = open(small());
    let reader = db.read_with(ReadOptions::new().label("reader"));
    let rows = reader.open(NUMBERS).unwrap();
    assert_eq!(rows.get(1).unwrap(), Some(1));
    until(|| idle_writer(&db).prepare("waits").is_ok());
    let idle = db.begin_with(TxnOptions::new().label("idle"));
    until(|| is_too_old(idle.open(NUMBERS)));
    until(|| db.prepared().unwrap()[0].age > 2 * AGE);
    let oldest = db.stats().oldest_transaction.expect("it is prepared");
    assert_eq!((oldest.label, oldest.versions), ("idle", 3));
    assert!(oldest.log_bytes > 0 && oldest.age > AGE, "{oldest:?}");
    db.commit_prepared("waits").unwrap();
    assert_eq!(rows.get(1).unwrap(), Some(1));
    assert_eq!(committed(&db, 1), Some(-1));
}

/// The next run would take as long.
#[test]
fn a_closure_that_takes_too_long_is_not_run_again() {
    let db = open(small());
    let mut runs = 0;
    let outcome = db.run_with(TxnOptions::new().label("idle"), |tx| -> Result<(), Error> {
        runs += 1;
        let numbers = tx.open(NUMBERS)?;
        numbers.insert(1, -1)?;
        loop {
            numbers.get(1)?;
        }
    });
    assert!(is_too_old(outcome));
    assert_eq!(runs, 1);
    assert_eq!(committed(&db, 1), Some(1));
}

/// Ends of owners and of the background meet, and each transaction is ended once.
#[test]
fn owners_and_the_background_end_each_transaction_once() {
    let age = Duration::from_micros(200);
    let db = small().device(Device::Null).transaction_max_age(age).open(DIR).unwrap();
    let begun = Instant::now();
    let (mut commits, mut too_old) = (0_i64, 0);
    while (commits < 50 || too_old < 50) && begun.elapsed() < Duration::from_secs(60) {
        let tx = db.begin();
        let add = || {
            let numbers = tx.open(NUMBERS)?;
            let sum = numbers.get_for_update(0)?.unwrap_or(0);
            numbers.insert(0, sum + 1).map(drop)
        };
        let added = add();
        // Now and then the owner comes just when the background does.
        (0..(commits + too_old) % 50 * 20).for_each(|_| std::hint::spin_loop());
        match added.and_then(|()| tx.commit()) {
            Ok(_) => commits += 1,
            Err(Error::TransactionTooOld { .. } | Error::RolledBack) => too_old += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(commits >= 50 && too_old >= 50, "{commits} committed, {too_old} were too old");
    assert_eq!(committed(&db, 0), Some(commits));
    db.close(Duration::from_secs(60)).unwrap();
}
