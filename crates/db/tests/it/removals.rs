//! Removal of many rows: those that are wanted and no others, at any isolation level.

use crate::support::{NUMBERS, TEXTS, fill, in_memory, numbers};
use foreshore::{Db, Error, Isolation, Transaction, TxnOptions};
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

fn begin(db: &Db, level: Isolation) -> Transaction {
    db.begin_with(TxnOptions::new().isolation(level).lock_timeout(Duration::from_millis(20)))
}

#[test]
fn a_range_is_removed_and_nothing_else() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 3000);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.remove_range(100..2900).unwrap(), 2800);
        assert_eq!(table.remove_range(100..2900).unwrap(), 0);
        assert_eq!(table.remove_range(50..=100).unwrap(), 50);
        assert_eq!(table.len().unwrap(), 150);
        tx.commit().unwrap();
        assert!(numbers(&db).into_iter().map(|(number, _)| number).eq((0..50).chain(2900..3000)));
        assert_eq!(db.run(|tx| tx.open(NUMBERS)?.clear()).unwrap(), 150);
        assert_eq!(numbers(&db), []);
        db.check().unwrap();
    }
}

#[test]
fn a_removed_range_comes_back_when_its_transaction_is_rolled_back() {
    let (db, _) = in_memory();
    fill(&db, 1000);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    let savepoint = tx.savepoint().unwrap();
    table.clear().unwrap();
    table.put(7, 7).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(table.len().unwrap(), 1000);
    table.retain(|number, _| number % 10 == 0).unwrap();
    assert_eq!(table.len().unwrap(), 100);
    tx.rollback().unwrap();
    assert_eq!(numbers(&db).len(), 1000);
}

#[test]
fn rows_are_extracted_one_by_one_and_the_others_stay() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 1000);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        let mut even = table.extract_if(10..=900, |number, value| number % 2 == 0 && *value > 20);
        assert_eq!(even.next().unwrap().unwrap(), (22, 22));
        assert_eq!(even.next().unwrap().unwrap(), (24, 24));
        // Rows that the caller writes meanwhile are seen if they lie ahead.
        table.put(25, 26).unwrap();
        table.remove(26).unwrap();
        table.put(28, 5).unwrap();
        table.put(22, 1000).unwrap();
        assert_eq!(even.next().unwrap().unwrap(), (30, 30));
        let rest = even.by_ref().take(100).count();
        assert_eq!((rest, even.next().unwrap().unwrap()), (100, (232, 232)));
        drop(even);
        assert_eq!(table.get(234).unwrap(), Some(234), "the iterator did not come so far");
        assert_eq!(table.len().unwrap(), 1000 - 104 - 1 + 1);
        assert_eq!(table.retain(|number, _| *number < 500).unwrap(), 500);
        tx.commit().unwrap();
        assert!(numbers(&db).iter().all(|(number, _)| *number < 500));
    }
}

#[test]
fn a_predicate_may_use_the_transaction() {
    let (db, _) = in_memory();
    fill(&db, 100);
    db.run(|tx| {
        let (table, texts) = (tx.open(NUMBERS)?, tx.open(TEXTS)?);
        texts.put("40", "")?;
        let removed = table.retain(|number, _| !texts.contains(&*number.to_string()).unwrap())?;
        assert_eq!((removed, table.contains(40)?), (1, false));
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn a_serializable_removal_keeps_others_from_inserting_into_the_range() {
    for remove in [
        |table: &foreshore::Table<'_, u64, i64>| table.remove_range(3..=6),
        |table: &foreshore::Table<'_, u64, i64>| Ok(table.extract_if(3..=6, |_, _| true).count() as u64),
    ] {
        let (db, _) = in_memory();
        fill(&db, 10);
        db.run(|tx| tx.open(NUMBERS)?.remove(4)).unwrap();
        let tx = begin(&db, Isolation::Serializable);
        assert_eq!(remove(&tx.open(NUMBERS).unwrap()).unwrap(), 3);
        let insert = |number| begin(&db, Isolation::ReadCommitted).open(NUMBERS).unwrap().put(number, 0);
        for number in 3..=6 {
            assert!(matches!(insert(number), Err(Error::LockTimeout { .. })), "{number}");
        }
        insert(2).unwrap();
        insert(7).unwrap();
    }
}

/// A writer changes a row between its read and its removal.
#[test]
fn a_row_that_is_not_wanted_any_more_stays() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 3);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        let mut asked = 0;
        let removed = table.retain(|&number, &value| {
            asked += 1;
            if number == 0 && value == 0 && level != Isolation::Serializable {
                db.run(|tx| tx.open(NUMBERS)?.put(1, 100)).unwrap();
            }
            value >= 100
        });
        match level {
            Isolation::Serializable => assert_eq!((removed.unwrap(), asked), (3, 3)),
            Isolation::Snapshot => assert!(matches!(removed, Err(Error::Conflict { .. }))),
            Isolation::ReadCommitted => {
                assert_eq!(removed.unwrap(), 2);
                assert_eq!(table.iter().collect::<Result<Vec<_>, _>>().unwrap(), [(1, 100)]);
            }
        }
    }
}

#[test]
fn what_a_predicate_has_written_is_what_is_removed() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 6);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        let removed = table.extract_if(.., |&number, _| {
            match number {
                // Rows that were read ahead, of which one is not wanted any more, and a new one.
                0 => {
                    table.put(1, 10).unwrap();
                    table.put(2, -1).unwrap();
                    table.remove(3).unwrap();
                    table.put(7, 70).unwrap();
                }
                // The row that the call is about.
                4 => table.put(4, table.get(4).unwrap().unwrap() + 100).unwrap(),
                5 => drop(table.remove(5).unwrap()),
                _ => {}
            }
            table.get(number).unwrap() != Some(-1)
        });
        let removed = removed.collect::<Result<Vec<_>, _>>().unwrap();
        // The predicate is asked twice about a row that it has written.
        assert_eq!(removed, [(0, 0), (1, 10), (4, 204), (7, 70)], "{level:?}");
        assert_eq!(table.iter().collect::<Result<Vec<_>, _>>().unwrap(), [(2, -1)], "{level:?}");
    }
}

/// The rows that `retain` has judged when its predicate writes are judged again, as they are then.
#[test]
fn what_a_predicate_has_written_is_kept_or_removed_as_it_is() {
    const ROWS: u64 = 600;
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, ROWS);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        let mut writes_at = Some(400);
        let removed = table.retain(|&number, &value| {
            if writes_at.take_if(|at| *at == number).is_some() {
                // Rows that are gone, rows that were judged just now, and rows ahead.
                [3, 390, 395, 410].into_iter().for_each(|number| table.put(number, -1).unwrap());
                [391, 411].into_iter().for_each(|number| assert!(table.remove(number).unwrap() != Some(-1)));
            }
            value < 0
        });
        // At read committed, rows are judged and removed one by one.
        let by_predicate = if level == Isolation::ReadCommitted { 2 } else { 5 };
        assert_eq!(removed.unwrap(), ROWS - by_predicate, "{level:?}");
        let left = table.iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(left, [(3, -1), (390, -1), (395, -1), (410, -1)], "{level:?}");
        tx.commit().unwrap();
        db.check().unwrap();
    }
}

#[test]
fn little_is_read_ahead_for_a_caller_that_writes() {
    let (db, _) = in_memory();
    fill(&db, 1000);
    let tx = begin(&db, Isolation::Serializable);
    let (table, texts) = (tx.open(NUMBERS).unwrap(), tx.open(TEXTS).unwrap());
    let mut all = table.extract_if(.., |_, _| true);
    for number in 0..50 {
        assert_eq!(all.next().unwrap().unwrap().0, number);
        texts.put("last", &*number.to_string()).unwrap();
    }
    let put = |number| begin(&db, Isolation::ReadCommitted).open(NUMBERS).unwrap().put(number, 0);
    assert!(matches!(put(50), Err(Error::LockTimeout { .. })));
    put(70).unwrap();
}
