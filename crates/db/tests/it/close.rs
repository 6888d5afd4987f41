//! Closing: what it waits for, what it leaves to the next open, and what handles say afterwards.

use crate::support::{NUMBERS, fill, in_memory, numbers, open};
use foreshore::Error;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn every_handle_says_closed() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let clone = db.clone();
    db.close(Duration::ZERO).unwrap();
    for db in [&db, &clone] {
        assert!(matches!(db.begin().open(NUMBERS), Err(Error::Closed)));
        assert!(matches!(db.begin().commit(), Err(Error::Closed)));
        assert!(matches!(db.run(|tx| tx.open(NUMBERS).map(drop)), Err(Error::Closed)));
        assert!(matches!(db.sync(), Err(Error::Closed)));
        assert!(matches!(db.checkpoint(), Err(Error::Closed)));
        assert!(matches!(db.check(), Err(Error::Closed)));
    }
    db.close(Duration::ZERO).unwrap();
}

#[test]
fn a_running_transaction_gets_the_time_to_end() {
    let (db, fs) = in_memory();
    fill(&db, 10);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(3, 33).unwrap();
    std::thread::scope(|scope| {
        let closer = scope.spawn(|| db.close(Duration::from_secs(600)));
        while !matches!(db.begin().open(NUMBERS), Err(Error::Closed)) {
            std::thread::yield_now();
        }
        tx.open(NUMBERS).unwrap().insert(4, 44).unwrap();
        tx.commit().unwrap();
        // Woken when the last transaction ends: a close that is not told is out of time, and says so.
        closer.join().unwrap().unwrap();
    });
    assert_eq!(numbers(&open(&fs).unwrap())[3..5], [(3, 33), (4, 44)]);
}

#[test]
fn a_transaction_that_is_left_is_undone_by_the_next_open() {
    let (db, fs) = in_memory();
    fill(&db, 200);
    let before = numbers(&db);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    for n in 0..200 {
        table.insert(n, -1).unwrap();
    }
    db.checkpoint().unwrap();
    db.close(Duration::from_millis(1)).unwrap();
    assert!(matches!(table.get(1), Err(Error::Closed)));
    let again = open(&fs).unwrap();
    assert_eq!(numbers(&again), before);
    // Giving it up late neither fails nor reaches the database that is open now.
    drop(table);
    drop(tx);
    again.check().unwrap();
    assert_eq!(numbers(&again), before);
}

#[test]
fn reopen_gives_a_fresh_handle() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let before = numbers(&db);
    let again = db.reopen().unwrap();
    assert!(matches!(db.begin().open(NUMBERS), Err(Error::Closed)));
    assert_eq!(numbers(&again), before);
    let third = again.reopen().unwrap();
    assert_eq!(numbers(&third), before);
}

/// A caller that will not wait shortens the wait of the call that closes: neither waits for the transaction.
#[test]
fn a_long_close_is_cut_short_by_one_that_does_not_wait() {
    const LONG: Duration = Duration::from_secs(600);
    for reopens in [true, false] {
        let (db, fs) = in_memory();
        fill(&db, 10);
        let before = numbers(&db);
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(3, 33).unwrap();
        let (report, reports) = mpsc::channel();
        let (closer, shortens) = (db.clone(), db.clone());
        let (closed, again) = (report.clone(), report);
        let long = std::thread::spawn(move || closed.send(closer.close(LONG).map(|()| None)));
        while !matches!(db.begin().open(NUMBERS), Err(Error::Closed)) {
            std::thread::yield_now();
        }
        assert!(matches!(open(&fs), Err(Error::Locked { .. })), "an open by path does not wait at all");
        let short = std::thread::spawn(move || {
            again.send(match reopens {
                true => shortens.reopen().map(Some),
                false => shortens.close(Duration::ZERO).map(|()| None),
            })
        });
        let outcomes = [(); 2].map(|()| reports.recv_timeout(LONG / 10).expect("no call waits for the transaction"));
        let reopened = outcomes.map(Result::unwrap).into_iter().flatten().next();
        assert_eq!(reopened.is_some(), reopens);
        let again = reopened.unwrap_or_else(|| open(&fs).unwrap());
        assert_eq!(numbers(&again), before, "what the transaction did is taken back");
        assert!(matches!(tx.commit(), Err(Error::Closed)));
        [long, short].into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    }
}

#[test]
fn dropping_the_last_handle_closes() {
    let (db, fs) = in_memory();
    fill(&db, 10);
    drop(db);
    let db = open(&fs).unwrap();
    assert_eq!(numbers(&db).len(), 10);
    assert_eq!(db.stats().recovery.redone, 0, "a closed database has nothing to redo");
}
