//! Serializable: what one transaction has seen stays true until it ends.

use crate::support::{NUMBERS, fill, in_memory};
use foreshore::{Db, Error, Isolation, TxnOptions};
use std::time::Duration;

/// Begins a transaction with a short lock timeout.
fn impatient(db: &Db) -> foreshore::Transaction {
    db.begin_with(TxnOptions::new().lock_timeout(Duration::from_millis(20)))
}

fn must_wait<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
}

#[test]
fn an_uncommitted_write_is_not_read() {
    let (db, _) = in_memory();
    fill(&db, 3);
    let writer = db.begin();
    writer.open(NUMBERS).unwrap().insert(1, 100).unwrap();
    must_wait(impatient(&db).open(NUMBERS).unwrap().get(1));
    must_wait(impatient(&db).open(NUMBERS).unwrap().iter().collect::<Result<Vec<_>, _>>());
    must_wait(impatient(&db).open(NUMBERS).unwrap().insert(1, 5));
    assert_eq!(impatient(&db).open(NUMBERS).unwrap().get(2).unwrap(), Some(2), "another row is free");
    writer.rollback().unwrap();
    assert_eq!(impatient(&db).open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
}

#[test]
fn a_row_that_was_read_stays_as_it_is() {
    let (db, _) = in_memory();
    fill(&db, 3);
    let reader = db.begin();
    let table = reader.open(NUMBERS).unwrap();
    assert_eq!(table.get(1).unwrap(), Some(1));
    must_wait(impatient(&db).open(NUMBERS).unwrap().insert(1, 5));
    must_wait(impatient(&db).open(NUMBERS).unwrap().remove(1));
    must_wait(impatient(&db).open(NUMBERS).unwrap().get_for_update(1));
    assert_eq!(impatient(&db).open(NUMBERS).unwrap().get(1).unwrap(), Some(1), "readers share");
    assert_eq!(table.get(1).unwrap(), Some(1));
    // A transaction is not blocked by its own lock.
    table.insert(1, 7).unwrap();
    reader.commit().unwrap();
}

#[test]
fn a_row_that_was_read_as_absent_stays_absent() {
    let (db, _) = in_memory();
    fill(&db, 3);
    let reader = db.begin();
    assert_eq!(reader.open(NUMBERS).unwrap().get(50).unwrap(), None);
    must_wait(impatient(&db).open(NUMBERS).unwrap().insert(50, 5));
    reader.commit().unwrap();
    impatient(&db).open(NUMBERS).unwrap().insert(50, 5).unwrap();
}

#[test]
fn a_range_that_was_read_gets_no_phantoms() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let reader = db.begin();
    let table = reader.open(NUMBERS).unwrap();
    let sum = || table.range(2..8).map(|row| row.unwrap().1).sum::<i64>();
    assert_eq!(sum(), 27);
    must_wait(impatient(&db).open(NUMBERS).unwrap().insert(5, 0));
    must_wait(impatient(&db).open(NUMBERS).unwrap().insert(7, 0));
    let elsewhere = impatient(&db);
    elsewhere.open(NUMBERS).unwrap().insert(100, 0).unwrap();
    elsewhere.commit().unwrap();
    assert_eq!(sum(), 27);
    // A range without an upper bound also locks the keys after its last row.
    assert_eq!(table.range(100..).count(), 1);
    must_wait(impatient(&db).open(NUMBERS).unwrap().insert(101, 0));
    assert_eq!(table.range(100..).count(), 1);
    reader.commit().unwrap();
}

#[test]
fn write_skew_does_not_happen() {
    // Two doctors on call; each may leave if the other stays.
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        table.insert(1, 1)?;
        table.insert(2, 1).map(drop)
    })
    .unwrap();
    std::thread::scope(|scope| {
        for (me, other) in [(1, 2), (2, 1)] {
            let db = &db;
            scope.spawn(move || {
                db.run(|tx| {
                    let table = tx.open(NUMBERS)?;
                    if table.get(other)? == Some(1) {
                        table.insert(me, 0)?;
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
            });
        }
    });
    let on_call: i64 = crate::support::numbers(&db).iter().map(|(_, on)| on).sum();
    assert_eq!(on_call, 1);
}

#[test]
fn an_iteration_sees_what_its_own_transaction_writes_ahead_of_it() {
    let (db, _) = in_memory();
    fill(&db, 5);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    let mut seen = vec![];
    for row in table.range(..100) {
        let (key, _) = row.unwrap();
        if key < 5 {
            table.insert(key + 10, 0).unwrap();
        }
        if key == 3 {
            table.remove(4).unwrap();
        }
        seen.push(key);
    }
    assert_eq!(seen, [0, 1, 2, 3, 10, 11, 12, 13]);
    tx.rollback().unwrap();
}

#[test]
fn a_transaction_may_move_to_another_thread() {
    let (db, _) = in_memory();
    fill(&db, 2);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(0, 5).unwrap();
    std::thread::spawn(move || {
        tx.open(NUMBERS).unwrap().insert(1, 6).unwrap();
        tx.commit().unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(crate::support::numbers(&db), [(0, 5), (1, 6)]);
}

/// A scan does not see commits since its begin, not even in rows that the transaction locks meanwhile. It sees the
/// transaction's own writes.
#[test]
fn a_read_committed_scan_sees_one_snapshot_also_of_rows_that_the_transaction_locks_meanwhile() {
    const ROWS: u64 = 2000;
    let (db, _) = in_memory();
    fill(&db, ROWS);
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
    let table = tx.open(NUMBERS).unwrap();
    let mut scan = table.iter();
    assert_eq!(scan.next().unwrap().unwrap(), (0, 0));
    db.run(|tx| tx.open(NUMBERS)?.insert(ROWS - 2, -1)).unwrap();
    assert_eq!(table.get_for_update(ROWS - 2).unwrap(), Some(-1), "what is newest");
    assert_eq!(table.get_for_update(ROWS - 3).unwrap(), Some(ROWS as i64 - 3));
    table.insert(ROWS - 1, -2).unwrap();
    let rows: Vec<_> = scan.map(Result::unwrap).skip(ROWS as usize - 4).collect();
    let seen = [(ROWS - 3, ROWS as i64 - 3), (ROWS - 2, ROWS as i64 - 2), (ROWS - 1, -2)];
    assert_eq!(rows, seen, "its own change, and nothing else that is new");
    assert_eq!(table.get(ROWS - 2).unwrap(), Some(-1), "the next statement");
}
