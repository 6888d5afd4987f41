//! What was not committed is not there: after a rollback, a drop, a panic, an error, and in the pages of the file.

use crate::support::{DIR, NUMBERS, Snapshot, TEXTS, fill, in_memory, numbers, open, small};
use foreshore::{Error, TableDef};
use foreshore_io::{Fs, Mem};
use std::{sync::Arc, time::Duration};

#[test]
fn rollback_drop_and_panic_leave_the_rows_as_they_were() {
    let (db, _) = in_memory();
    fill(&db, 50);
    let before = numbers(&db);
    let change = |tx: &foreshore::Transaction| {
        let table = tx.open(NUMBERS).unwrap();
        table.insert(7, -7).unwrap();
        table.insert(7, -8).unwrap();
        table.remove(8).unwrap();
        table.insert(1000, 1).unwrap();
        table.remove(1000).unwrap();
        table.insert(1000, 2).unwrap();
        assert_eq!(table.get(7).unwrap(), Some(-8));
        assert_eq!(table.get(8).unwrap(), None);
    };

    let tx = db.begin();
    change(&tx);
    tx.rollback().unwrap();
    assert_eq!(numbers(&db), before);

    let tx = db.begin();
    change(&tx);
    drop(tx);
    assert_eq!(numbers(&db), before);

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.run(|tx| -> Result<(), Error> {
            change(tx);
            panic!("in the middle of a transaction");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(numbers(&db), before);
    db.check().unwrap();
}

#[test]
fn rollback_of_many_splits_restores_every_row() {
    let (db, fs) = in_memory();
    fill(&db, 300);
    let before = numbers(&db);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    for n in 0..3000 {
        table.insert(n * 3, -1).unwrap();
    }
    for n in 0..150 {
        table.remove(n).unwrap();
    }
    tx.rollback().unwrap();
    assert_eq!(numbers(&db), before);
    db.check().unwrap();
    db.close(Duration::ZERO).unwrap();
    let db = open(&fs).unwrap();
    assert_eq!(numbers(&db), before);
    db.check().unwrap();
}

#[test]
fn a_table_whose_creation_is_rolled_back_leaves_no_page_behind() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let before = db.check().unwrap();
    for _ in 0..3 {
        let tx = db.begin();
        tx.open(TEXTS).unwrap();
        tx.rollback().unwrap();
    }
    let after = db.check().unwrap();
    assert_eq!((after.tables, after.pages), (before.tables, before.pages));
    // The name is free for other types.
    const OTHER: TableDef<u32, u32> = TableDef::new("texts");
    db.run(|tx| tx.open(OTHER)?.insert(1, 1).map(drop)).unwrap();
}

#[test]
fn an_error_that_ends_a_transaction_is_followed_by_rolled_back() {
    let (db, _) = in_memory();
    fill(&db, 2);
    let waiting = foreshore::TxnOptions::new().lock_timeout(Duration::from_millis(10));
    let holder = db.begin_with(foreshore::TxnOptions::new().label("holder"));
    holder.open(NUMBERS).unwrap().insert(1, 0).unwrap();
    let tx = db.begin_with(waiting);
    let table = tx.open(NUMBERS).unwrap();
    table.insert(0, 99).unwrap();
    match table.get(1) {
        Err(Error::LockTimeout { holder: "holder", waited, .. }) => assert!(waited >= Duration::from_millis(10)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(table.get(0), Err(Error::RolledBack)));
    assert!(matches!(tx.open(NUMBERS), Err(Error::RolledBack)));
    // Its own lock is gone at once, before the transaction is given up.
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get_for_update(0)).unwrap(), Some(0));
    assert!(matches!(tx.commit(), Err(Error::RolledBack)));
    holder.commit().unwrap();
}

/// A session may have drawn the xid long before, and others later ones since: a checkpoint in between does not take the
/// transaction for one that has ended.
#[test]
fn a_transaction_that_begins_after_a_checkpoint_and_is_lost_is_taken_back() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().background(false).fs(Arc::clone(&fs)).open(DIR).unwrap();
    fill(&db, 4);
    // Whichever session has which of the xids, one of each pair has an earlier one.
    for _ in 0..3 {
        let both = [0, 1].map(|row| {
            let tx = db.begin();
            tx.open(NUMBERS).unwrap().insert(row, 10).unwrap();
            tx
        });
        for tx in both {
            tx.commit().unwrap();
        }
    }
    db.checkpoint().unwrap();
    let lost = [0, 1].map(|row| {
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(row, -1).unwrap();
        tx
    });
    db.run(|tx| tx.open(NUMBERS)?.insert(2, 20).map(drop)).unwrap();
    let killed = Snapshot::of(&fs).restore();
    assert_eq!(numbers(&open(&killed).unwrap()), [(0, 10), (1, 10), (2, 20), (3, 3)]);
    drop(lost);
}
