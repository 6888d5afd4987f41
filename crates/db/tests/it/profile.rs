//! Profiling says where the time of transactions goes.

use crate::support::{DIR, NUMBERS, fill, small};
use foreshore::{Db, Device, Error, Profile, TableDef, TimeSplit, TxnOptions};
use foreshore_sync::primitive::thread;
use std::time::Duration;

/// Runs a transaction with this label on a thread of its own, whose first one is measured.
fn run_labelled(db: &Db, label: &'static str, key: u64) {
    let options = TxnOptions::new().label(label);
    thread::scope(|scope| {
        scope.spawn(|| db.run_with(options, |tx| tx.open(NUMBERS)?.insert(key, 1).map(drop)).unwrap());
    });
}

fn split(profile: &Profile, label: &str) -> TimeSplit {
    profile.labels.iter().find(|(own, _)| *own == label).map(|&(_, split)| split).unwrap_or_default()
}

#[test]
fn nothing_is_measured_until_it_is_asked_for() {
    let db = small().device(Device::Null).open(DIR).unwrap();
    run_labelled(&db, "before", 1);
    db.set_profiling(true).unwrap();
    run_labelled(&db, "while", 1);
    db.set_profiling(false).unwrap();
    run_labelled(&db, "after", 1);
    let profile = db.profile();
    let labels: Vec<&str> = profile.labels.iter().map(|&(label, _)| label).collect();
    assert_eq!(labels, ["while"]);
    let split = split(&profile, "while");
    assert_eq!(split.transactions, 1);
    assert!(!split.work.is_zero() && !split.log_insert.is_zero(), "{split:?}");
    assert!((split.lock_wait + split.retry).is_zero(), "{split:?}");
    assert!(profile.hot_keys.is_empty());
}

#[test]
fn a_durable_commit_waits_for_the_log() {
    let delay = Duration::from_millis(2);
    let db = small().device(Device::Delay(delay)).profile(true).open(DIR).unwrap();
    run_labelled(&db, "waits", 1);
    let split = split(&db.profile(), "waits");
    assert!(split.log_wait >= delay, "{split:?}");
    assert!(split.total() >= split.log_wait && split.io.is_zero(), "{split:?}");
}

#[test]
fn a_wait_for_a_row_is_told_with_its_key() {
    let db = small().device(Device::Null).profile(true).open(DIR).unwrap();
    fill(&db, 10);
    let holder = db.begin();
    holder.open(NUMBERS).unwrap().insert(3, 0).unwrap();
    let patience = Duration::from_millis(20);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The first of its thread is measured.
            let waiter = db.begin_with(TxnOptions::new().label("waiter").lock_timeout(patience));
            let refused = waiter.open(NUMBERS).unwrap().insert(3, 1);
            assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        });
    });
    drop(holder);
    let profile = db.profile();
    let hottest = &profile.hot_keys[0];
    assert!(hottest.waited >= patience && hottest.waits >= 1 && hottest.over.is_zero(), "{hottest:?}");
    assert!(hottest.name.contains("key"), "{hottest:?}");
    // A transaction that others have stopped was in vain as a whole.
    let split = split(&profile, "waiter");
    assert!(split.retry >= patience && split.lock_wait.is_zero() && split.work.is_zero(), "{split:?}");
}

#[test]
fn pages_that_are_read_count_as_io_and_the_callers_time_as_its_own() {
    let delay = Duration::from_millis(1);
    let fs = Device::Delay(delay).open(std::path::Path::new(DIR)).unwrap();
    let options = small().fs(fs).profile(true);
    let db = options.open(DIR).unwrap();
    fill(&db, 1000);
    db.close(Duration::from_secs(10)).unwrap();
    let db = options.open(DIR).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let tx = db.begin_with(TxnOptions::new().label("cold"));
            let table = tx.open(NUMBERS).unwrap();
            assert_eq!(table.get(500).unwrap(), Some(500));
            std::thread::sleep(3 * delay);
            tx.commit().unwrap();
        });
    });
    let split = split(&db.profile(), "cold");
    assert!(!split.io.is_zero() && split.caller >= 3 * delay, "{split:?}");
}

#[test]
fn taking_back_counts_as_the_transactions_time() {
    const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");
    // The log from the first change on has room.
    let db = small().log_budget(64 << 20).device(Device::Null).profile(true).open(DIR).unwrap();
    fill(&db, 10);
    // More than fits into memory.
    let push_out = || {
        for key in 0..8000 {
            db.run(|tx| tx.open(LARGE)?.insert(key, &[1; 2000][..]).map(drop)).unwrap();
        }
    };
    let before = db.stats().pool.pages_read;
    thread::scope(|scope| {
        scope.spawn(|| {
            let outcome = db.run_with(TxnOptions::new().label("undone"), |tx| {
                tx.open(NUMBERS)?.insert(3, 0)?;
                thread::scope(|scope| scope.spawn(push_out).join().unwrap());
                Err::<(), _>(Error::KeyExists)
            });
            assert!(matches!(outcome, Err(Error::KeyExists)), "{outcome:?}");
        });
    });
    assert!(db.stats().pool.pages_read > before, "the page that is changed back had left");
    let split = split(&db.profile(), "undone");
    assert!(!split.io.is_zero() && split.retry.is_zero(), "{split:?}");
}
