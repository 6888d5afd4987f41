//! Rows taken from the ends of a table: each by one transaction, in order, and none is passed over.

use crate::support::{NUMBERS, fill, in_memory, numbers};
use foreshore::{Db, Error, Isolation, Transaction, TxnOptions};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

fn begin(db: &Db, level: Isolation) -> Transaction {
    db.begin_with(TxnOptions::new().isolation(level).lock_timeout(Duration::from_millis(20)))
}

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

#[test]
fn a_table_is_emptied_from_both_ends() {
    const ROWS: u64 = 2000;
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, ROWS);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        for number in 0..ROWS / 2 {
            let last = ROWS - 1 - number;
            assert_eq!(table.pop_first().unwrap(), Some((number, number as i64)));
            assert_eq!(table.pop_last().unwrap(), Some((last, last as i64)));
        }
        assert_eq!((table.pop_first().unwrap(), table.pop_last().unwrap()), (None, None));
        tx.commit().unwrap();
        assert_eq!(numbers(&db), []);
        db.check().unwrap();
    }
}

#[test]
fn rows_that_come_before_the_last_taken_one_are_taken_next() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 20);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        (0..5).for_each(|number| assert_eq!(table.pop_first().unwrap(), Some((number, number as i64))));
        table.insert(2, -2).unwrap();
        assert_eq!(table.pop_first().unwrap(), Some((2, -2)));
        let savepoint = tx.savepoint().unwrap();
        (5..8).for_each(|number| assert_eq!(table.pop_first().unwrap(), Some((number, number as i64))));
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(table.pop_first().unwrap(), Some((5, 5)), "{level:?}");
        assert_eq!(table.pop_last().unwrap(), Some((19, 19)));
        assert_eq!(table.pop_first().unwrap(), Some((6, 6)));
        table.insert(30, 30).unwrap();
        assert_eq!(table.pop_last().unwrap(), Some((30, 30)));
        // The next transaction of the session begins at the end again.
        tx.rollback().unwrap();
        assert_eq!(db.run(|tx| tx.open(NUMBERS)?.pop_first()).unwrap(), Some((0, 0)));
    }
}

#[test]
fn each_row_is_taken_by_one_transaction() {
    const ROWS: u64 = 200;
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, ROWS);
        let taken = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, taken) = (&db, &taken);
                scope.spawn(move || {
                    loop {
                        let row = db.run_with(TxnOptions::new().isolation(level), |tx| {
                            let table = tx.open(NUMBERS)?;
                            if thread % 2 == 0 { table.pop_first() } else { table.pop_last() }
                        });
                        let Some((number, _)) = row.unwrap() else { break };
                        assert!(taken.lock().unwrap().insert(number), "{number} was taken twice");
                    }
                });
            }
        });
        assert!(taken.into_inner().unwrap().into_iter().eq(0..ROWS));
    }
}

#[test]
fn a_serializable_transaction_keeps_others_from_inserting_before_what_it_took() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let tx = begin(&db, Isolation::Serializable);
    let table = tx.open(NUMBERS).unwrap();
    assert_eq!(table.remove(0).unwrap(), Some(0));
    (1..4).for_each(|number| assert_eq!(table.pop_first().unwrap().unwrap().0, number));
    assert_eq!(table.pop_last().unwrap(), Some((9, 9)));
    let insert = |number| begin(&db, Isolation::ReadCommitted).open(NUMBERS).unwrap().insert(number, 0).map(drop);
    for number in [0, 1, 3, 9, 10, u64::MAX] {
        assert!(matches!(insert(number), Err(Error::LockTimeout { .. })), "{number}");
    }
    for number in [4, 6, 8] {
        insert(number).unwrap();
    }
}

#[test]
fn a_row_that_another_transaction_has_changed_is_a_conflict_for_a_snapshot() {
    let (db, _) = in_memory();
    fill(&db, 10);
    type Change = fn(&foreshore::Table<'_, u64, i64>) -> Result<(), Error>;
    let changes: [Change; 2] = [|table| table.remove(0).map(drop), |table| table.put(1, 7)];
    for change in changes {
        let tx = begin(&db, Isolation::Snapshot);
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.len().unwrap(), numbers(&db).len() as u64);
        db.run(|tx| change(&tx.open(NUMBERS)?)).unwrap();
        assert!(matches!(table.pop_first(), Err(Error::Conflict { .. })));
    }
}
