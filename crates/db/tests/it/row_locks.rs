//! Locks of rows on request, with and without waits.

use crate::support::{NUMBERS, fill, in_memory, numbers};
use foreshore::{Db, Error, Isolation, Lockable, Locked, RowLock, TableDef, Transaction, TxnOptions};
use std::{ops::RangeFull, time::Duration};

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

fn begin(db: &Db, label: &'static str, isolation: Isolation) -> Transaction {
    db.begin_with(TxnOptions::new().label(label).isolation(isolation).lock_timeout(Duration::from_millis(20)))
}

fn all(tx: &Transaction, lock: RowLock) -> Result<Vec<(u64, i64)>, Error> {
    tx.open(NUMBERS)?.range_locked(RangeFull, lock).collect()
}

fn is_refused<T: std::fmt::Debug>(result: Result<T, Error>, number: u64, by: &str) {
    match result {
        Err(error @ Error::RowLocked { .. }) => {
            assert!(!error.is_retryable());
            let Error::RowLocked { what: Lockable::Row(_, key), holder } = error else { panic!("{error}") };
            assert_eq!((&key[..], holder), (&number.to_be_bytes()[..], by));
        }
        other => panic!("{other:?}"),
    }
}

fn must_wait<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
}

#[test]
fn a_request_without_wait_gets_the_holder_of_the_row_and_goes_on() {
    let (db, _) = in_memory();
    fill(&db, 4);
    for level in LEVELS {
        let writer = begin(&db, "writer", level);
        writer.open(NUMBERS).unwrap().insert(1, 100).unwrap();
        let reader = begin(&db, "reader", level);
        assert_eq!(reader.open(NUMBERS).unwrap().get_for_share(2).unwrap(), Some(2));
        let tx = begin(&db, "hasty", level);
        let table = tx.open(NUMBERS).unwrap();
        table.insert(3, 30).unwrap();
        for lock in [RowLock::share(), RowLock::update()] {
            is_refused(table.get_locked(1, lock.no_wait()), 1, "writer");
        }
        is_refused(table.get_locked(2, RowLock::update().no_wait()), 2, "reader");
        assert_eq!(table.get_locked(2, RowLock::share().no_wait()).unwrap(), Locked::Row(2), "readers share");
        let mut rows = table.range_locked(.., RowLock::update().no_wait());
        assert_eq!(rows.next().unwrap().unwrap(), (0, 0));
        is_refused(rows.next().unwrap(), 1, "writer");
        assert!(rows.next().is_none());
        tx.commit().unwrap();
        writer.rollback().unwrap();
        reader.commit().unwrap();
        assert_eq!(numbers(&db)[3], (3, 30), "what it did beside is committed");
        db.run(|tx| tx.open(NUMBERS)?.insert(3, 3)).unwrap();
    }
    assert_eq!(db.stats().lock.waits, 0);
}

#[test]
fn a_request_without_wait_does_not_wait_for_the_table_either() {
    let (db, _) = in_memory();
    fill(&db, 4);
    for level in LEVELS {
        let hasty = begin(&db, "hasty", level);
        let table = hasty.open(NUMBERS).unwrap();
        let whole = begin(&db, "whole", level);
        whole.open(NUMBERS).unwrap().lock_against_writes().unwrap();
        let waits = db.stats().lock.waits;
        for refused in [
            table.get_locked(1, RowLock::update().no_wait()).map(drop),
            table.range_locked(.., RowLock::update().no_wait()).next().unwrap().map(drop),
        ] {
            let Err(Error::RowLocked { what: Lockable::Table(_), holder: "whole" }) = refused else {
                panic!("{refused:?}")
            };
        }
        assert_eq!(table.get_locked(1, RowLock::share().no_wait()).unwrap(), Locked::Row(1), "both read");
        assert_eq!(db.stats().lock.waits, waits);
        whole.rollback().unwrap();
        assert_eq!(table.get_locked(1, RowLock::update().no_wait()).unwrap(), Locked::Row(1), "it goes on");
    }
}

#[test]
fn a_row_that_is_passed_over_is_not_one_that_is_absent() {
    let (db, _) = in_memory();
    fill(&db, 4);
    for level in LEVELS {
        let writer = begin(&db, "writer", level);
        let table = writer.open(NUMBERS).unwrap();
        table.insert(1, 100).unwrap();
        table.insert(7, 7).unwrap();
        table.remove(2).unwrap();
        for lock in [RowLock::share(), RowLock::update()] {
            let tx = begin(&db, "worker", level);
            let table = tx.open(NUMBERS).unwrap();
            for number in [1, 2, 7] {
                assert_eq!(table.get_locked(number, lock.skip_locked()).unwrap(), Locked::Skipped, "{number}");
            }
            assert_eq!(table.get_locked(9, lock.skip_locked()).unwrap(), Locked::Absent);
            assert_eq!(table.get_locked(3, lock.skip_locked()).unwrap(), Locked::Row(3));
            assert_eq!(all(&tx, lock.skip_locked()).unwrap(), [(0, 0), (3, 3)]);
            tx.commit().unwrap();
        }
        writer.rollback().unwrap();
    }
    assert_eq!(db.stats().lock.waits, 0);
}

#[test]
fn a_row_locked_for_a_share_is_read_by_others_and_changed_by_none() {
    let (db, _) = in_memory();
    fill(&db, 3);
    for level in LEVELS {
        let tx = begin(&db, "reader", level);
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.get_for_share(1).unwrap(), Some(1));
        assert_eq!(table.get_for_share(50).unwrap(), None);
        for other in LEVELS {
            let share = begin(&db, "share", other);
            assert_eq!(share.open(NUMBERS).unwrap().get_for_share(1).unwrap(), Some(1));
            share.commit().unwrap();
            must_wait(begin(&db, "writer", other).open(NUMBERS).unwrap().insert(1, 5));
            must_wait(begin(&db, "writer", other).open(NUMBERS).unwrap().get_for_update(1));
            must_wait(begin(&db, "writer", other).open(NUMBERS).unwrap().insert(50, 5));
        }
        // Its own share does not stand in its way.
        table.insert(1, 1).unwrap();
        tx.commit().unwrap();
    }
}

#[test]
fn a_snapshot_locks_no_row_that_has_changed_since() {
    for lock in [RowLock::share(), RowLock::update(), RowLock::share().skip_locked(), RowLock::update().no_wait()] {
        let (db, _) = in_memory();
        fill(&db, 4);
        for (number, change) in [(1, Some(10)), (2, None)] {
            let tx = begin(&db, "late", Isolation::Snapshot);
            assert_eq!(tx.open(NUMBERS).unwrap().get(number).unwrap(), Some(number as i64));
            let scan = begin(&db, "late", Isolation::Snapshot);
            assert_eq!(scan.open(NUMBERS).unwrap().get(number).unwrap(), Some(number as i64));
            db.run(|tx| {
                let table = tx.open(NUMBERS)?;
                match change {
                    Some(value) => table.insert(number, value),
                    None => table.remove(number),
                }
            })
            .unwrap();
            let refused = tx.open(NUMBERS).unwrap().get_locked(number, lock);
            assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
            let refused = all(&scan, lock);
            assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        }
    }
}

/// What a range has locked, and what it has not found, by level.
#[test]
fn a_range_locked_for_update_keeps_others_out_of_its_rows() {
    let (db, _) = in_memory();
    for level in LEVELS {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            [10, 20, 30, 40].into_iter().try_for_each(|number| table.insert(number, 0).map(drop))
        })
        .unwrap();
        let tx = begin(&db, "worker", level);
        let table = tx.open(NUMBERS).unwrap();
        let rows: Result<Vec<_>, _> = table.range_locked(15..=30, RowLock::update()).collect();
        assert_eq!(rows.unwrap(), [(20, 0), (30, 0)]);
        for number in [20, 30] {
            must_wait(begin(&db, "other", level).open(NUMBERS).unwrap().insert(number, 5));
            must_wait(begin(&db, "other", level).open(NUMBERS).unwrap().get_for_share(number));
        }
        let insert = |number| {
            let other = begin(&db, "other", level);
            let inserted = other.open(NUMBERS).unwrap().insert_new(number, 5);
            inserted.and_then(|()| other.rollback())
        };
        match level {
            Isolation::Serializable => must_wait(insert(25)),
            _ => insert(25).unwrap(),
        }
        insert(35).unwrap();
        begin(&db, "other", level).open(NUMBERS).unwrap().insert(40, 5).unwrap();
        table.insert(20, 1).unwrap();
        tx.commit().unwrap();
        assert_eq!(db.read().open(NUMBERS).unwrap().get(20).unwrap(), Some(1));
    }
}

/// Each adds one to every row of the same range: with shared locks they would all be each other's victims.
#[test]
fn ranges_locked_for_update_wait_for_each_other_without_a_deadlock() {
    const THREADS: i64 = 8;
    let (db, _) = in_memory();
    fill(&db, 30);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                db.run(|tx| {
                    let table = tx.open(NUMBERS)?;
                    for row in table.range_locked(.., RowLock::update()) {
                        let (number, value) = row?;
                        table.insert(number, value + 1)?;
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
            });
        }
    });
    assert!(numbers(&db).into_iter().all(|(number, value)| value == number as i64 + THREADS));
    assert_eq!(db.stats().lock.deadlocks, 0);
}

/// Each job is done once, and no worker waits for another, whatever the level.
#[test]
fn workers_that_skip_what_others_have_share_a_queue_and_never_wait() {
    const WORKERS: usize = 8;
    const JOBS: u64 = 400;
    const DONE: TableDef<u64, u64> = TableDef::new("done");
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, JOBS);
        db.run(|tx| tx.open(DONE).map(drop)).unwrap();
        let before = db.stats().lock;
        let work = |worker: u64| -> Result<bool, Error> {
            let tx = db.begin_with(TxnOptions::new().isolation(level));
            let jobs = tx.open(NUMBERS)?;
            let free = jobs.range_locked(.., RowLock::update().skip_locked()).next();
            let Some((number, _)) = free.transpose()? else { return Ok(false) };
            jobs.remove(number)?;
            // Some give up, and another worker finds the job.
            if (number + worker).is_multiple_of(7) {
                tx.rollback()?;
            } else {
                tx.open(DONE)?.insert_new(number, worker)?;
                drop(tx.commit_pipelined()?);
            }
            Ok(true)
        };
        std::thread::scope(|scope| {
            for worker in 0..WORKERS as u64 {
                let work = &work;
                // A job that one worker gives up again and again is taken by another.
                scope.spawn(move || (0..).find(|round| !work(worker + round).unwrap()));
            }
        });
        let after = db.stats().lock;
        while work(1).unwrap() || work(2).unwrap() {}
        assert!(numbers(&db).is_empty());
        let done: Vec<u64> = db.run(|tx| tx.open(DONE)?.iter().map(|row| Ok::<_, Error>(row?.0)).collect()).unwrap();
        assert_eq!(done, (0..JOBS).collect::<Vec<_>>());
        assert_eq!((after.waits, after.deadlocks), (before.waits, before.deadlocks), "{level}");
    }
}

/// A worker's snapshot has the job that another one has done since. A job that has changed is a conflict.
#[test]
fn a_worker_passes_over_jobs_that_were_done_since_its_snapshot() {
    let (db, _) = in_memory();
    fill(&db, 4);
    let late = || {
        let tx = begin(&db, "late", Isolation::Snapshot);
        assert_eq!(tx.open(NUMBERS).unwrap().get(1).unwrap(), Some(1), "it has its snapshot");
        tx
    };
    let workers = [late(), late()];
    let other = begin(&db, "other", Isolation::Snapshot);
    let jobs = other.open(NUMBERS).unwrap();
    let mut free = jobs.range_locked(.., RowLock::update().skip_locked());
    for number in [0, 1] {
        assert_eq!(free.next().unwrap().unwrap().0, number);
        jobs.remove(number).unwrap();
    }
    drop(free);
    other.commit().unwrap();
    let [first, second] = workers.each_ref().map(|tx| {
        let jobs = tx.open(NUMBERS).unwrap();
        let (number, _) = jobs.range_locked(.., RowLock::update().skip_locked()).next().unwrap().unwrap();
        jobs.remove(number).unwrap();
        number
    });
    assert_eq!((first, second), (2, 3));
    for tx in workers {
        tx.commit().unwrap();
    }
    assert!(numbers(&db).is_empty());
    fill(&db, 4);
    let worker = late();
    db.run(|tx| tx.open(NUMBERS)?.insert(0, 5)).unwrap();
    let refused = all(&worker, RowLock::update().skip_locked());
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}

/// A batch reads as single lookups do. A serializable transaction locks each key, whether it exists or not. The others
/// read by a snapshot, wait for no writer and lock nothing.
#[test]
fn a_batch_locks_what_single_lookups_lock() {
    let (db, _) = in_memory();
    fill(&db, 4);
    for level in LEVELS {
        let reader = begin(&db, "reader", level);
        let table = reader.open(NUMBERS).unwrap();
        assert_eq!(table.get_many(&[3, 50, 1, 3]).unwrap(), [Some(3), None, Some(1), Some(3)]);
        for number in [1, 50] {
            let writer = begin(&db, "writer", Isolation::Serializable);
            let written = writer.open(NUMBERS).unwrap().insert(number, 7);
            if level == Isolation::Serializable {
                must_wait(written);
            } else {
                assert!(written.is_ok(), "{written:?}");
                assert_eq!(table.get_many(&[number]).unwrap(), [(number == 1).then_some(1)], "{level}");
                writer.rollback().unwrap();
            }
        }
        let mut seen = Vec::new();
        table.get_many_with(&[2, 60], |index, row| seen.push((index, row.map(<[u8]>::len)))).unwrap();
        assert_eq!(seen, [(0, Some(8)), (1, None)]);
        assert!(table.get_many(&[] as &[u64]).unwrap().is_empty());
    }
}
