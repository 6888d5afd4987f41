//! What was not committed is not there: after a rollback, a drop, a panic, an error, and in the pages of the file.

use crate::support::{DIR, NUMBERS, Snapshot, TEXTS, fill, in_memory, numbers, open, small};
use foreshore::{Db, Durability, Error, Isolation, TableDef, TxnOptions};
use foreshore_io::sim::Persist;
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
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(&fs));
        })
        .open(DIR)
        .unwrap();
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

/// What a transaction learns of a commit that is not durable, and what remains of that commit when power is lost after
/// the transaction has ended without its own commit.
#[test]
fn what_a_rollback_has_told_survives_power_loss() {
    type Tell = fn(&foreshore::Transaction);
    // It learns by a value, by a missing row, by a requested error, and by an error that ends the transaction.
    let tells: [(Isolation, Tell); 4] = [
        (Isolation::Serializable, |tx| assert_eq!(tx.open(NUMBERS).unwrap().get(1).unwrap(), Some(10))),
        (Isolation::Serializable, |tx| assert_eq!(tx.open(NUMBERS).unwrap().get(2).unwrap(), None)),
        (Isolation::Serializable, |tx| {
            assert!(matches!(tx.open(NUMBERS).unwrap().insert_new(3, 0), Err(Error::KeyExists { .. })));
        }),
        (Isolation::Snapshot, |tx| {
            assert!(matches!(tx.open(NUMBERS).unwrap().insert(1, 0), Err(Error::Conflict { .. })));
            assert!(matches!(tx.open(NUMBERS), Err(Error::RolledBack)));
        }),
    ];
    type End = fn(foreshore::Transaction, &Db);
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    // Whether the transaction is relaxed, how it ends, and whether that waits for what it was told.
    let ends: [(TxnOptions, End, bool); 6] = [
        (TxnOptions::new(), |tx, _| tx.rollback().unwrap(), true),
        (TxnOptions::new(), |tx, _| tx.rollback_pipelined().unwrap().wait().unwrap(), true),
        (
            TxnOptions::new(),
            |tx, db| {
                let ticket = tx.rollback_pipelined().unwrap();
                assert!(!ticket.is_durable(), "nobody has written it");
                while !ticket.is_durable() {
                    db.step();
                }
            },
            true,
        ),
        (TxnOptions::new(), |tx, _| drop(tx), false),
        (relaxed, |tx, _| tx.rollback().unwrap(), false),
        (relaxed, |tx, _| tx.rollback_pipelined().unwrap().wait().unwrap(), false),
    ];
    for (isolation, tell) in tells {
        for (at, (options, end, waits)) in ends.into_iter().enumerate() {
            let sim = crate::script::disk(3);
            let db = crate::script::options(&sim).open(DIR).unwrap();
            db.run(|tx| {
                let table = tx.open(NUMBERS)?;
                (1..3).try_for_each(|key| table.insert(key, 1).map(drop))
            })
            .unwrap();
            let tx = db.begin_with(options.isolation(isolation));
            let told = db.begin_with(relaxed);
            let table = told.open(NUMBERS).unwrap();
            table.insert(1, 10).unwrap();
            table.remove(2).unwrap();
            table.insert(3, 10).unwrap();
            told.commit().unwrap();
            tell(&tx);
            end(tx, &db);
            let again = crate::script::open(&sim.crash_image(&Persist::None, 1)).unwrap();
            let expected = if waits { [(1, 10), (3, 10)] } else { [(1, 1), (2, 1)] };
            assert_eq!(numbers(&again), expected, "{isolation}, end {at}");
        }
    }
}

#[test]
fn a_rollback_that_was_told_of_nothing_new_leaves_the_disk_alone() {
    let sim = crate::script::disk(3);
    let db = crate::script::options(&sim).open(DIR).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let others = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
    others.open(NUMBERS).unwrap().insert(2, 2).unwrap();
    let before = sim.ops();
    let relaxed = others.commit_pipelined().unwrap();
    for pipelined in [false, true] {
        let tx = db.begin();
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.get(1).unwrap(), Some(1));
        table.insert(1, 5).unwrap();
        if pipelined {
            assert!(tx.rollback_pipelined().unwrap().is_durable());
        } else {
            tx.rollback().unwrap();
        }
    }
    assert_eq!(sim.ops(), before, "what it did not see it does not wait for");
    assert!(!relaxed.is_durable());
}
