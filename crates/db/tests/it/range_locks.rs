//! Serializable reads of any number of rows: what they have read is locked, whatever memory there is for locks, and no
//! more than that where it suffices.

use crate::support::{NUMBERS, TEXTS, fill, in_memory, numbers};
use foreshore::{Db, Error, Isolation, RowLock, Transaction, TxnOptions};
use std::{sync::Barrier, time::Duration};

/// Six times as many as there is memory for point locks in the test databases.
const MANY: u64 = 5000;
/// Bytes that a lock of short keys takes at most.
const ONE_LOCK: u64 = 512;

fn hasty(db: &Db) -> Transaction {
    db.begin_with(TxnOptions::new().label("hasty").lock_timeout(Duration::ZERO))
}

/// Whether a write of the row has to wait.
fn is_locked(db: &Db, row: u64) -> bool {
    match hasty(db).open(NUMBERS).and_then(|table| table.insert(row, -1)) {
        Ok(_) => false,
        Err(Error::LockTimeout { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_scan_of_any_length_takes_the_memory_of_one_lock() {
    let (db, _) = in_memory();
    fill(&db, MANY);
    for back in [false, true] {
        let tx = db.begin();
        let table = tx.open(NUMBERS).unwrap();
        let rows = table.range(10..MANY - 10);
        let count = if back { rows.rev().filter(Result::is_ok).count() } else { rows.filter(Result::is_ok).count() };
        assert_eq!(count as u64, MANY - 20);
        assert!(db.stats().memory_use.locks <= ONE_LOCK);
        assert!([10, 700, MANY - 11].into_iter().all(|row| is_locked(&db, row)), "{back}");
        assert!([0, 9, MANY - 10, MANY].into_iter().all(|row| !is_locked(&db, row)), "{back}");
        tx.commit().unwrap();
    }
}

/// No row is left, and a ghost of each may be.
#[test]
fn an_emptied_table_is_read_to_its_end() {
    let (db, _) = in_memory();
    fill(&db, MANY);
    for from in (0..MANY).step_by(100) {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            (from..from + 100).try_for_each(|row| table.remove(row).map(drop))
        })
        .unwrap();
    }
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    assert!(table.first().unwrap().is_none() && table.last().unwrap().is_none());
    assert_eq!(table.iter().count(), 0);
    assert!(db.stats().memory_use.locks <= ONE_LOCK);
    assert!([0, 77, MANY].into_iter().all(|row| is_locked(&db, row)), "nothing comes");
    tx.commit().unwrap();
    assert!(!is_locked(&db, 77));
}

/// A transaction that reads more rows one by one than there is memory for locks has the keys between them locked, and
/// no more.
#[test]
fn reads_of_any_number_of_rows_are_locked_by_wider_intervals() {
    let (db, _) = in_memory();
    fill(&db, MANY + 10);
    db.run(|tx| tx.open(TEXTS)?.insert("one", "").map(drop)).unwrap();
    let tx = db.begin();
    assert_eq!(tx.open(TEXTS).unwrap().get("one").unwrap().as_deref(), Some(""));
    let table = tx.open(NUMBERS).unwrap();
    for row in 0..MANY {
        // In no order.
        assert!(table.get(5 + row * 1777 % MANY).unwrap().is_some());
    }
    let (used, limit) = (db.stats().memory_use.locks, db.stats().memory.locks);
    assert!(used <= limit / 4, "{used} of {limit}");
    assert!((5..MANY + 5).step_by(499).all(|row| is_locked(&db, row)));
    assert!([0, 4, MANY + 5].into_iter().all(|row| !is_locked(&db, row)));
    db.run(|tx| tx.open(TEXTS)?.insert("two", "").map(drop)).unwrap();
    tx.commit().unwrap();
    assert_eq!(db.stats().memory_use.locks, 0);
    assert!((5..MANY).step_by(499).all(|row| !is_locked(&db, row)));
}

/// Each of two counts the rows of the range of the other and adds one to its own if it finds none. One after the other,
/// no more than one adds a row.
#[test]
fn write_skew_by_predicate_does_not_happen() {
    let (db, _) = in_memory();
    fill(&db, 1);
    for round in 1..40 {
        let (low, both_have_read) = (round * 100, Barrier::new(2));
        std::thread::scope(|scope| {
            for (mine, others) in [(low, low + 50), (low + 50, low)] {
                let (db, both_have_read) = (&db, &both_have_read);
                scope.spawn(move || {
                    let mut is_first = true;
                    db.run(|tx| {
                        let table = tx.open(NUMBERS)?;
                        let rows = table.range(others..others + 50);
                        let is_empty = rows.count() == 0;
                        if std::mem::take(&mut is_first) {
                            both_have_read.wait();
                        }
                        if is_empty {
                            table.insert(mine + 7, 0)?;
                        }
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                });
            }
        });
    }
    assert_eq!(numbers(&db).len(), 40, "one a round");
}

/// Writers beside a range that is read meet no lock, wherever leaves are split meanwhile.
#[test]
fn writers_beside_a_range_do_not_wait() {
    let (db, _) = in_memory();
    fill(&db, 1000);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    let mut rows = table.range(400..600);
    for row in 400..600 {
        assert_eq!(rows.next().unwrap().unwrap().0, row);
        let beside = if row % 2 == 0 { row - 400 } else { 10_000 - row };
        db.run(|tx| tx.open(NUMBERS)?.insert(beside, 1).map(drop)).unwrap();
    }
    assert!(rows.next().is_none());
    assert_eq!(db.stats().lock.waits, 0);
    assert!(is_locked(&db, 500));
}

/// What a scan that does not wait had covered when it was refused is free again.
#[test]
fn a_refused_scan_gives_back_what_it_covered() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let holder = db.begin();
    holder.open(NUMBERS).unwrap().insert(5, 0).unwrap();
    for lock in [RowLock::share(), RowLock::update()] {
        let tx = db.begin_with(TxnOptions::new().isolation(Isolation::Serializable));
        let table = tx.open(NUMBERS).unwrap();
        let mut rows = table.range_locked(2..9, lock.no_wait());
        let seen: Vec<u64> = rows.by_ref().map_while(Result::ok).map(|(row, _)| row).collect();
        assert_eq!(seen, [2, 3, 4]);
        drop(rows);
        assert!((2..5).all(|row| is_locked(&db, row)));
        assert!((6..10).all(|row| !is_locked(&db, row)));
        tx.rollback().unwrap();
    }
}
