//! Tables that are listed, opened only where they exist, and counted.

use crate::support::{NUMBERS, TEXTS, fill, in_memory};
use foreshore::{Db, Error, Isolation, TableDef, Transaction, TxnOptions};
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

fn begin(db: &Db, level: Isolation) -> Transaction {
    db.begin_with(TxnOptions::new().isolation(level).lock_timeout(Duration::from_millis(20)))
}

fn names(tx: &Transaction) -> Vec<String> {
    tx.tables().unwrap().into_iter().map(|table| table.name).collect()
}

#[test]
fn a_transaction_lists_the_tables_that_it_sees() {
    let (db, _) = in_memory();
    assert_eq!(names(&db.begin()), [""; 0]);
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    let before = db.read();
    assert_eq!(before.tables().unwrap()[0].name, "numbers");
    let tx = db.begin();
    tx.open(TEXTS).unwrap();
    let listed = tx.tables().unwrap();
    let types: Vec<_> = listed.iter().map(|table| (&*table.name, &*table.key_type, &*table.value_type)).collect();
    assert_eq!(types, [("numbers", "u64", "i64"), ("texts", "str", "str")]);
    assert!(tx.drop_table("numbers").unwrap());
    assert_eq!(names(&tx), ["texts"]);
    tx.commit().unwrap();
    assert_eq!(before.tables().unwrap().len(), 1, "as its snapshot sees them");
    assert_eq!(before.tables().unwrap()[0].name, "numbers");
    assert_eq!(db.read().tables().unwrap()[0].name, "texts");
}

#[test]
fn a_table_that_does_not_exist_is_not_created_by_a_look() {
    for level in LEVELS {
        let (db, fs) = in_memory();
        let tx = begin(&db, level);
        assert!(matches!(tx.open_existing(NUMBERS), Err(Error::NoTable { .. })), "{level:?}");
        tx.open(TEXTS).unwrap();
        tx.open_existing(TEXTS).unwrap().put("own", "created").unwrap();
        tx.commit().unwrap();
        let tx = begin(&db, level);
        assert_eq!(tx.open_existing(TEXTS).unwrap().get("own").unwrap().as_deref(), Some("created"));
        let other = tx.open_existing(TableDef::<u64, u64>::new("texts"));
        assert!(matches!(other, Err(Error::TableTypes { .. })));
        assert!(tx.drop_table("texts").unwrap());
        assert!(matches!(tx.open_existing(TEXTS), Err(Error::NoTable { .. })), "{level:?}");
        tx.rollback().unwrap();
        assert!(begin(&db, level).open_existing(TEXTS).is_ok());
        db.close(Duration::ZERO).unwrap();
        let db = crate::support::open(&fs).unwrap();
        let tx = begin(&db, level);
        assert_eq!(tx.open_existing(TEXTS).unwrap().len().unwrap(), 1);
        assert!(matches!(tx.open_existing(NUMBERS), Err(Error::NoTable { .. })));
    }
}

#[test]
fn a_table_that_is_absent_stays_so_for_a_serializable_transaction() {
    let (db, _) = in_memory();
    let tx = begin(&db, Isolation::Serializable);
    assert!(matches!(tx.open_existing(NUMBERS), Err(Error::NoTable { .. })));
    let create = begin(&db, Isolation::Serializable).open(NUMBERS).map(drop);
    assert!(matches!(create, Err(Error::LockTimeout { .. })));
    drop(tx);
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
}

#[test]
fn a_table_that_exists_stays_so_for_a_serializable_transaction() {
    let (db, _) = in_memory();
    fill(&db, 3);
    let drop_it = || begin(&db, Isolation::Serializable).drop_table("numbers");
    let tx = begin(&db, Isolation::Serializable);
    tx.open_existing(NUMBERS).unwrap();
    assert!(matches!(drop_it(), Err(Error::LockTimeout { .. })));
    drop(tx);
    // An error that tells its types is an answer too.
    let tx = begin(&db, Isolation::Serializable);
    assert!(matches!(tx.open_existing(TableDef::<u64, u64>::new("numbers")), Err(Error::TableTypes { .. })));
    assert!(matches!(drop_it(), Err(Error::LockTimeout { .. })));
    drop(tx);
    drop_it().unwrap();
}

/// The look waits for the end of a drop, and finds whether it has happened.
#[test]
fn a_serializable_look_waits_for_a_drop() {
    for is_dropped in [true, false] {
        let (db, _) = in_memory();
        fill(&db, 3);
        let dropper = db.begin();
        dropper.drop_table("numbers").unwrap();
        let waits = db.stats().txn.locks.waits;
        std::thread::scope(|scope| {
            let look = scope.spawn(|| {
                let tx = db.begin_with(TxnOptions::new().isolation(Isolation::Serializable));
                tx.open_existing(NUMBERS).map(|table| table.len().unwrap())
            });
            while db.stats().txn.locks.waits == waits {
                std::thread::yield_now();
            }
            if is_dropped { dropper.commit().map(drop) } else { dropper.rollback() }.unwrap();
            match look.join().unwrap() {
                Ok(rows) => assert_eq!((rows, is_dropped), (3, false)),
                Err(error) => assert!(matches!(error, Error::NoTable { .. }) && is_dropped, "{error}"),
            }
        });
    }
}

#[test]
fn a_look_below_serializable_waits_for_no_transaction_and_holds_none_up() {
    for level in [Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, _) = in_memory();
        fill(&db, 3);
        let creator = db.begin();
        creator.open(TEXTS).unwrap();
        assert!(creator.drop_table("numbers").unwrap());
        let tx = begin(&db, level);
        assert!(matches!(tx.open_existing(TEXTS), Err(Error::NoTable { .. })), "{level:?}");
        assert_eq!(tx.open_existing(NUMBERS).unwrap().get(1).unwrap(), Some(1), "{level:?}");
        creator.rollback().unwrap();
        let other = begin(&db, Isolation::Serializable);
        other.open(TEXTS).unwrap();
        other.commit().unwrap();
        tx.open_existing(TEXTS).unwrap();
    }
}

/// A table whose types differ is gone for the transaction that has dropped it.
#[test]
fn a_table_that_the_transaction_has_dropped_has_no_types() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 3);
        let tx = begin(&db, level);
        assert!(tx.drop_table("numbers").unwrap());
        let look = tx.open_existing(TableDef::<u64, u64>::new("numbers"));
        assert!(matches!(look, Err(Error::NoTable { .. })), "{level:?}");
    }
}

#[test]
fn statistics_count_what_there_is() {
    const ROWS: u64 = 20_000;
    let (db, _) = in_memory();
    let of = |db: &Db| db.read().open(NUMBERS).unwrap().stats().unwrap();
    fill(&db, 1);
    let small = of(&db);
    assert_eq!((small.rows, small.leaf_pages, small.inner_pages, small.levels), (1, 1, 0, 1));
    fill(&db, ROWS);
    let full = of(&db);
    assert_eq!((full.rows, full.row_bytes), (ROWS, 16 * ROWS));
    assert!(full.levels > 1 && full.inner_pages > 0, "{full:?}");
    assert_eq!(full.bytes, (full.leaf_pages + full.inner_pages) * 8192);
    assert!((400..=1000).contains(&full.fill_permille), "{full:?}");
    // A snapshot keeps the deleted rows.
    let reader = db.read();
    assert_eq!(reader.open(NUMBERS).unwrap().len().unwrap(), ROWS);
    db.run(|tx| tx.open(NUMBERS)?.remove_range(..500)).unwrap();
    let less = of(&db);
    assert_eq!((less.rows, less.ghosts), (ROWS - 500, 500));
    // Writers beside it do no harm.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..2000 {
                db.run(|tx| tx.open(NUMBERS)?.put(10 * number, 0)).unwrap();
            }
        });
        while !writer.is_finished() {
            assert!(of(&db).rows >= ROWS - 500);
        }
    });
    db.check().unwrap();
}
