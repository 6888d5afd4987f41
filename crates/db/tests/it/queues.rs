//! Rows taken from the ends of a table: each by one transaction, in order, and none is passed over.

use crate::script::disk;
use crate::support::{DIR, NUMBERS, POLICIES, fill, in_memory, numbers, small};
use foreshore::{Db, Error, Isolation, Transaction, TxnOptions};
use foreshore_io::{Fs, Sim};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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

#[test]
fn rows_that_others_insert_before_the_taken_ones_are_taken_at_read_committed_alone() {
    for (level, next) in [(Isolation::ReadCommitted, (1, 7)), (Isolation::Snapshot, (4, 4))] {
        let (db, _) = in_memory();
        fill(&db, 10);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        (0..4).for_each(|number| assert_eq!(table.pop_first().unwrap().unwrap().0, number));
        tx.rollback().unwrap();
        db.run(|tx| tx.open(NUMBERS)?.remove(1)).unwrap();
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        [0, 2, 3].iter().for_each(|&number| assert_eq!(table.pop_first().unwrap().unwrap().0, number));
        db.run_with(TxnOptions::new().isolation(level), |tx| tx.open(NUMBERS)?.put(1, 7)).unwrap();
        assert_eq!(table.pop_first().unwrap(), Some(next), "{level:?}");
        tx.commit().unwrap();
        assert_eq!(numbers(&db).len(), 6);
        db.check().unwrap();
    }
}

#[test]
fn rows_come_back_when_what_took_them_is_rolled_back() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 300);
        let before = numbers(&db);
        for commits in [false, true] {
            let tx = begin(&db, level);
            let table = tx.open(NUMBERS).unwrap();
            let take = |count: u64| {
                let rows = (0..count).map(|_| [table.pop_first(), table.pop_last()].map(|row| row.unwrap().unwrap().0));
                rows.collect::<Vec<_>>()
            };
            let first = take(20);
            let savepoint = tx.savepoint().unwrap();
            let then = take(70);
            tx.rollback_to(&savepoint).unwrap();
            assert_eq!(take(70), then);
            tx.rollback_to(&savepoint).unwrap();
            assert_eq!((&first[..2], then[0]), (&[[0, 299], [1, 298]][..], [20, 279]));
            if commits { tx.commit().map(drop) } else { tx.rollback() }.unwrap();
            let left: Vec<_> = if commits { before[20..280].to_vec() } else { before.clone() };
            assert_eq!(numbers(&db), left);
        }
        db.check().unwrap();
    }
}

/// Takes rows that others have inserted, changed and removed, three in a transaction, while others are inserted at the
/// same end. Each is taken once.
#[test]
fn rows_that_are_inserted_meanwhile_are_taken_once_each() {
    const ROWS: u64 = 150;
    for level in LEVELS {
        let (db, _) = in_memory();
        let (taken, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let options = || TxnOptions::new().isolation(level);
        std::thread::scope(|scope| {
            let (db, taken, is_over) = (&db, &taken, &is_over);
            for _ in 0..2 {
                scope.spawn(move || {
                    loop {
                        let was_over = is_over.load(Ordering::Relaxed);
                        let rows = db.run_with(options(), |tx| {
                            let table = tx.open(NUMBERS)?;
                            (0..3).filter_map(|_| table.pop_last().transpose()).collect::<Result<Vec<_>, _>>()
                        });
                        let rows = rows.unwrap();
                        if rows.is_empty() && was_over {
                            break;
                        }
                        assert!(
                            rows.iter().all(|&(number, value)| value == -(number as i64)),
                            "a row before its update"
                        );
                        taken.lock().unwrap().extend(rows.into_iter().map(|(number, _)| number));
                    }
                });
            }
            for number in 0..ROWS {
                let write = |tx: &Transaction| {
                    let table = tx.open(NUMBERS)?;
                    table.put(number, 0)?;
                    table.put(number, -(number as i64))
                };
                db.run_with(options(), write).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let taken = taken.into_inner().unwrap();
        assert_eq!(taken.len() as u64, ROWS, "{level:?}");
        assert!(taken.into_iter().collect::<BTreeSet<_>>().into_iter().eq(0..ROWS));
        db.check().unwrap();
    }
}

#[test]
fn a_row_that_was_taken_is_lost_by_no_crash_and_comes_back_by_none() {
    let sim = disk(3);
    let open = |sim: &Sim| {
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        small().lab(|lab| {
            lab.background = false;
            lab.fs = Some(fs);
        })
    };
    let db = open(&sim).open(DIR).unwrap();
    fill(&db, 400);
    let mut left = vec![(sim.ops(), 0, 400)];
    for number in 0..40 {
        let tx = db.begin();
        let table = tx.open(NUMBERS).unwrap();
        let (first, last) = (left[number].1 + 2, left[number].2 - 1);
        for _ in 0..2 {
            table.pop_first().unwrap().unwrap();
        }
        let savepoint = tx.savepoint().unwrap();
        assert_eq!(table.pop_first().unwrap().unwrap().0, first);
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(table.pop_last().unwrap().unwrap().0, last);
        if number % 3 == 2 {
            tx.rollback().unwrap();
            left.push((sim.ops(), left[number].1, left[number].2));
        } else {
            tx.commit().unwrap();
            left.push((sim.ops(), first, last));
        }
    }
    drop(db);
    let (mut points, mut images) = (sim.crash_points(), 0);
    loop {
        let op = points.op();
        if op >= left[0].0 && op % 5 == 0 {
            let policy = &POLICIES[images % POLICIES.len()];
            let image = points.image(policy, op);
            let rows = numbers(&open(&image).open(DIR).unwrap());
            let known = left.iter().rposition(|&(at, ..)| at <= op).unwrap();
            let is_legal = |&(_, first, last): &(u64, u64, u64)| rows.iter().map(|&(number, _)| number).eq(first..last);
            assert!(left[known..].iter().take(2).any(is_legal), "operation {op}, {policy:?}: {rows:?}");
            images += 1;
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 8, "{images} images");
}
