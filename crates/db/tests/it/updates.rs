//! Changes of a row that depend on its value: none is lost, at any isolation level.

use crate::support::{NUMBERS, TEXTS, in_memory};
use foreshore::{Db, Error, Isolation, Transaction, TxnOptions};
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

fn begin(db: &Db, level: Isolation) -> Transaction {
    db.begin_with(TxnOptions::new().isolation(level).lock_timeout(Duration::from_millis(20)))
}

#[test]
fn update_with_inserts_changes_and_removes() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(TEXTS)?;
        assert_eq!(table.update_with("a", |old| old)?, None);
        assert_eq!(table.update_with("a", |_| Some("x".into()))?, Some("x".into()));
        assert_eq!(table.update_with("a", |old| old.map(|old| old + "y"))?, Some("xy".into()));
        assert_eq!(table.get("a")?, Some("xy".into()));
        assert_eq!(table.update_with("a", |_| None)?, None);
        assert!(!table.contains("a")?);
        let too_long = "x".repeat(foreshore::limits::MAX_KEY + 1);
        assert!(matches!(table.update_with(&*too_long, |old| old), Err(Error::KeyTooLarge { .. })));
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn entries_insert_change_and_remove() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        assert_eq!(table.entry(1)?.get(), None);
        assert_eq!(table.entry(1)?.and_modify(|_| unreachable!("no row"))?.remove()?, None);
        assert_eq!(table.entry(1)?.or_insert(5)?, 5);
        assert_eq!(table.entry(1)?.or_insert_with(|| unreachable!("a row"))?, 5);
        assert_eq!(table.entry(1)?.and_modify(|value| *value += 1)?.get(), Some(&6));
        assert_eq!(table.get(1)?, Some(6));
        assert_eq!(table.entry(1)?.insert(9)?, Some(6));
        assert_eq!(table.entry(2)?.insert(8)?, None);
        assert_eq!(table.entry(1)?.remove()?, Some(9));
        assert_eq!(table.iter().collect::<Result<Vec<_>, _>>()?, [(2, 8)]);
        Ok::<_, Error>(())
    })
    .unwrap();
}

type Add = fn(&Transaction) -> Result<(), Error>;

/// Two ways to add one to a number.
const ADDERS: [Add; 2] = [
    |tx| tx.open(NUMBERS)?.update_with(1, |old| Some(old.unwrap_or(0) + 1)).map(drop),
    |tx| tx.open(NUMBERS)?.entry(1)?.and_modify(|value| *value += 1).map(drop),
];

#[test]
fn no_change_of_a_row_is_lost_however_many_change_it() {
    const EACH: i64 = 100;
    for level in LEVELS {
        for add in ADDERS {
            let (db, _) = in_memory();
            db.run(|tx| tx.open(NUMBERS)?.put(1, 0)).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        (0..EACH).for_each(|_| db.run_with(TxnOptions::new().isolation(level), add).unwrap())
                    });
                }
            });
            assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(3 * EACH), "{level:?}");
        }
    }
}

#[test]
fn a_row_that_is_inserted_by_many_at_once_counts_each() {
    for level in LEVELS {
        for round in 0..20_i64 {
            let (db, _) = in_memory();
            db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| db.run_with(TxnOptions::new().isolation(level), ADDERS[0]).unwrap());
                }
            });
            assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(3), "{level:?} {round}");
        }
    }
}

#[test]
fn an_absent_row_that_is_inserted_meanwhile_is_found_or_a_conflict() {
    for level in [Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, _) = in_memory();
        db.run(|tx| tx.open(NUMBERS)?.put(9, 9)).unwrap();
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.get(9).unwrap(), Some(9));
        let entry = table.entry(1).unwrap();
        assert_eq!(entry.get(), None);
        db.run(|tx| tx.open(NUMBERS)?.put(1, 7)).unwrap();
        match entry.or_insert(3) {
            Ok(value) => assert_eq!((value, level), (7, Isolation::ReadCommitted)),
            Err(error) => assert!(matches!(error, Error::Conflict { .. }) && level == Isolation::Snapshot, "{error}"),
        }
    }
    // At serializable the absence is locked.
    let (db, _) = in_memory();
    let tx = begin(&db, Isolation::Serializable);
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    let table = tx.open(NUMBERS).unwrap();
    let entry = table.entry(1).unwrap();
    let insert = begin(&db, Isolation::Serializable).open(NUMBERS).unwrap().put(1, 7);
    assert!(matches!(insert, Err(Error::LockTimeout { .. })));
    assert_eq!(entry.or_insert(3).unwrap(), 3);
}

#[test]
fn an_entry_replaces_and_removes_the_row_as_it_is_then() {
    // Another transaction inserts the row that was absent.
    let (db, _) = in_memory();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    let tx = begin(&db, Isolation::ReadCommitted);
    let table = tx.open(NUMBERS).unwrap();
    let entry = table.entry(1).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.put(1, 7)).unwrap();
    assert_eq!(entry.insert(3).unwrap(), Some(7));
    assert_eq!(table.get(1).unwrap(), Some(3));
    drop(tx);
    // The transaction itself writes the row.
    for level in LEVELS {
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        let entry = table.entry(1).unwrap();
        table.put(1, 8).unwrap();
        assert_eq!(entry.insert(9).unwrap(), Some(8), "{level:?}");
        let entry = table.entry(1).unwrap();
        table.put(1, 10).unwrap();
        assert_eq!(entry.remove().unwrap(), Some(10), "{level:?}");
        assert!(!table.contains(1).unwrap());
    }
}
