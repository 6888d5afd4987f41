//! Profiling says where the time of transactions goes.

use crate::support::{DIR, NUMBERS, fill, small};
use foreshore::{Db, Device, Error, Profile, TableDef, TimeSplit, TxnOptions};
#[cfg(debug_assertions)]
use foreshore_sync::pause;
use foreshore_sync::primitive::thread;
#[cfg(debug_assertions)]
use std::sync::mpsc;
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
    let db = small().device(Device::Delay(Duration::from_millis(2))).open(DIR).unwrap();
    db.set_profiling(true).unwrap();
    run_labelled(&db, "waits", 1);
    let split = split(&db.profile(), "waits");
    assert!(!split.log_wait.is_zero(), "{split:?}");
    assert!(split.total() >= split.log_wait && split.io.is_zero(), "{split:?}");
}

#[test]
fn a_wait_for_a_row_is_told_with_its_key() {
    let db = small().device(Device::Null).open(DIR).unwrap();
    db.set_profiling(true).unwrap();
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
    assert!(!hottest.waited.is_zero() && hottest.waits == 1 && hottest.overestimate.is_zero(), "{hottest:?}");
    assert!(hottest.name.contains("key"), "{hottest:?}");
    // A transaction that others have stopped was in vain as a whole.
    let split = split(&profile, "waiter");
    assert!(!split.retry.is_zero() && split.lock_wait.is_zero() && split.work.is_zero(), "{split:?}");
}

#[test]
fn a_wait_for_a_row_that_is_granted_is_part_of_the_transactions_time() {
    let db = small().device(Device::Null).open(DIR).unwrap();
    db.set_profiling(true).unwrap();
    fill(&db, 10);
    let holder = db.begin();
    holder.open(NUMBERS).unwrap().insert(3, 0).unwrap();
    let waits = db.stats().lock.waits;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The first of its thread is measured.
            let waiter = db.begin_with(TxnOptions::new().label("waiter"));
            assert_eq!(waiter.open(NUMBERS).unwrap().insert(3, 1).unwrap(), Some(0));
            waiter.commit().unwrap();
        });
        while db.stats().lock.waits == waits {
            thread::yield_now();
        }
        holder.commit().unwrap();
    });
    let profile = db.profile();
    let split = split(&profile, "waiter");
    assert!(!split.lock_wait.is_zero() && split.retry.is_zero() && !split.work.is_zero(), "{split:?}");
    assert!(split.total() >= split.lock_wait + split.work, "{split:?}");
    let hottest = &profile.hot_keys[0];
    assert!(hottest.waits >= 1 && !hottest.waited.is_zero(), "{hottest:?}");
}

/// The one stops between the draw of its record's stamp and the end of its change, with the leaf latched.
#[test]
#[cfg(debug_assertions)]
fn a_wait_for_a_leaf_that_another_changes_is_told_with_its_page() {
    // No thread can see that the other has reached the leaf: it is given time, and more if that was not enough.
    for round in 0..12 {
        let db = small().device(Device::Null).open(DIR).unwrap();
        db.set_profiling(true).unwrap();
        fill(&db, 10);
        let (stopped, has_stopped) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let (waited, has_waited) = mpsc::channel();
        thread::scope(|scope| {
            let db = &db;
            scope.spawn(move || {
                let one = db.begin();
                let table = one.open(NUMBERS).unwrap();
                let mut first = true;
                pause::set("wal: draw", move || {
                    if std::mem::take(&mut first) {
                        stopped.send(()).unwrap();
                        may_go_on.recv().unwrap();
                    }
                });
                table.insert(3, 1).unwrap();
                one.commit().unwrap();
            });
            has_stopped.recv().unwrap();
            scope.spawn(move || {
                run_labelled(db, "waiter", 4);
                waited.send(()).unwrap();
            });
            let time = Duration::from_millis(5 << round);
            assert!(has_waited.recv_timeout(time).is_err(), "it has passed the one who has the leaf");
            go_on.send(()).unwrap();
        });
        let profile = db.profile();
        let split = split(&profile, "waiter");
        let Some(hottest) = profile.hot_pages.first() else { continue };
        assert!(hottest.waits >= 1 && !hottest.waited.is_zero(), "{hottest:?}");
        assert!(!split.latch_wait.is_zero() && split.lock_wait.is_zero() && split.retry.is_zero(), "{split:?}");
        assert!(profile.hot_keys.is_empty(), "{:?}", profile.hot_keys);
        return;
    }
    panic!("nobody has waited for the leaf");
}

#[test]
fn pages_that_are_read_count_as_io_and_the_callers_time_as_its_own() {
    let delay = Duration::from_millis(1);
    let fs = Device::Delay(delay).open(std::path::Path::new(DIR)).unwrap();
    let options = small().lab(|lab| lab.fs = Some(fs));
    let db = options.open(DIR).unwrap();
    fill(&db, 1000);
    db.close(Duration::from_secs(10)).unwrap();
    let db = options.open(DIR).unwrap();
    db.set_profiling(true).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let tx = db.begin_with(TxnOptions::new().label("cold"));
            let table = tx.open(NUMBERS).unwrap();
            assert_eq!(table.get(500).unwrap(), Some(500));
            tx.commit().unwrap();
        });
    });
    let split = split(&db.profile(), "cold");
    assert!(!split.io.is_zero() && !split.caller.is_zero(), "{split:?}");
}

#[test]
fn taking_back_counts_as_the_transactions_time() {
    const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");
    // The log from the first change on has room.
    let db = small().log_budget(64 << 20).device(Device::Null).open(DIR).unwrap();
    db.set_profiling(true).unwrap();
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
                Err::<(), _>(Error::NoSavepoint)
            });
            assert!(matches!(outcome, Err(Error::NoSavepoint)), "{outcome:?}");
        });
    });
    assert!(db.stats().pool.pages_read > before, "the page that is changed back had left");
    let split = split(&db.profile(), "undone");
    assert!(!split.io.is_zero() && split.retry.is_zero(), "{split:?}");
}
