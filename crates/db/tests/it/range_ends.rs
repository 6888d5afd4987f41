//! Iteration of ranges from both ends, and the locks of a transaction that reads the last row.

use crate::support::{NUMBERS, fill, in_memory, numbers};
use foreshore::{Db, Error, Isolation, RowLock, TxnOptions};
use std::time::Duration;

fn begin(db: &Db, level: Isolation) -> foreshore::Transaction {
    db.begin_with(TxnOptions::new().isolation(level).lock_timeout(Duration::from_millis(20)))
}

#[test]
fn both_ends_of_a_range_meet_in_the_middle() {
    const ROWS: u64 = 500;
    let (db, _) = in_memory();
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.last()).unwrap(), None);
    fill(&db, ROWS);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    assert_eq!((table.first().unwrap(), table.last().unwrap()), (Some((0, 0)), Some((ROWS - 1, ROWS as i64 - 1))));
    for step in [1, 7, 100] {
        let mut range = table.range(10..=489);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        while let Some(row) = range.next_back() {
            back.push(row.unwrap().0);
            front.extend(range.by_ref().take(step).map(|row| row.unwrap().0));
        }
        assert!(range.next().is_none() && range.next_back().is_none());
        assert!(front.len() > back.len() * step - step, "both ends have advanced");
        front.extend(back.into_iter().rev());
        assert_eq!(front, (10..=489).collect::<Vec<_>>());
    }
    let down: Vec<_> = table.iter().rev().map(|row| row.unwrap().0).collect();
    assert_eq!(down, (0..ROWS).rev().collect::<Vec<_>>());
    drop(tx);
    let read = db.read();
    let table = read.open(NUMBERS).unwrap();
    assert_eq!((table.first().unwrap(), table.last().unwrap()), (Some((0, 0)), Some((ROWS - 1, ROWS as i64 - 1))));
    assert_eq!(table.range(..100).next_back().unwrap().unwrap().0, 99);
}

/// Each transaction reads the last row and inserts the next key. If two read the same last row, one is the victim of a
/// deadlock and is retried, so `insert_new` never finds its key taken.
#[test]
fn transactions_that_append_after_the_last_row_do_not_collide() {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    let (db, _) = in_memory();
    fill(&db, 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    db.run(|tx| {
                        let table = tx.open(NUMBERS)?;
                        let (last, _) = table.last()?.expect("a row");
                        table.insert_new(last + 1, last as i64 + 1)
                    })
                    .unwrap();
                }
            });
        }
    });
    let all = (0..=THREADS * EACH).map(|number| (number as u64, number as i64));
    assert_eq!(numbers(&db), all.collect::<Vec<_>>());
}

#[test]
fn a_read_of_the_last_row_locks_it_and_the_keys_after_it_only() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        [10, 20, 30].into_iter().try_for_each(|number| table.insert(number, 0).map(drop))
    })
    .unwrap();
    let reader = begin(&db, Isolation::Serializable);
    assert_eq!(reader.open(NUMBERS).unwrap().last().unwrap(), Some((30, 0)));
    // Each insert is rolled back at once, when its transaction is dropped.
    let insert = |number| begin(&db, Isolation::Serializable).open(NUMBERS).unwrap().insert(number, 1);
    for number in [30, 31, 35] {
        assert!(matches!(insert(number), Err(Error::LockTimeout { .. })), "{number}");
    }
    for number in [5, 10, 15, 20, 25] {
        insert(number).unwrap();
    }
    // The weaker levels lock the last row if asked, but not the keys after it.
    drop(reader);
    for level in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let reader = begin(&db, level);
        let last = reader.open(NUMBERS).unwrap().range_locked(.., RowLock::update()).next_back();
        assert_eq!(last.unwrap().unwrap().0, 30);
        insert(25).unwrap();
        insert(35).unwrap();
        assert!(matches!(insert(30), Err(Error::LockTimeout { .. })));
    }
}
