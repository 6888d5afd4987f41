//! Many threads read by one transaction, and see the rows of one moment, whatever others do meanwhile.

use crate::support::{NUMBERS, SetOnDrop, fill, in_memory, small};
use foreshore::{Db, Durability, Error, IndexDef, ReadOptions, ReadTransaction, TableDef, TxnOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: u64 = 8;
const ROWS: u64 = 400;
const TOTAL: i64 = 1000 * ROWS as i64;

const BY_VALUE: IndexDef<u64, i64, i64> = IndexDef::new("by value", |_, value: &i64, keys| keys.add(*value));
const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts").with_indexes(&[&BY_VALUE]);

/// Everything that a thread finds is of one moment, and of the same one each time.
fn read_all(reader: &ReadTransaction, thread: u64) -> Result<Vec<(u64, i64)>, Error> {
    let accounts = reader.open(ACCOUNTS)?;
    let rows: Vec<(u64, i64)> = accounts.iter().collect::<Result<_, _>>()?;
    assert_eq!((rows.len() as u64, rows.iter().map(|(_, value)| value).sum()), (ROWS, TOTAL));
    for n in (thread..ROWS).step_by(7) {
        assert_eq!(accounts.get(n)?, Some(rows[n as usize].1));
    }
    let many = accounts.get_many(&[thread, thread + 1])?;
    assert_eq!(many, [Some(rows[thread as usize].1), Some(rows[thread as usize + 1].1)]);
    let by_value = accounts.by_index(BY_VALUE)?;
    let (key, value) = rows[(31 * thread % ROWS) as usize];
    assert!(by_value.range(value..=value).any(|row| row.is_ok_and(|row| row == (key, value))));
    assert_eq!(accounts.range(..ROWS / 2).rev().count() as u64, ROWS / 2);
    Ok(rows)
}

#[test]
fn threads_read_one_moment_beside_writers_and_vacuum() {
    let (db, _fs) = in_memory();
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        (0..ROWS).try_for_each(|n| accounts.put(n, 1000))
    })
    .unwrap();
    let is_over = AtomicBool::new(false);
    let (db, over) = (&db, &is_over);
    thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    let (from, to) = ((n * 7 + writer) % ROWS, (n * 13 + 5) % ROWS);
                    db.run(|tx| {
                        let accounts = tx.open(ACCOUNTS)?;
                        accounts.update_with(from, |old| old.map(|value| value - 1))?;
                        accounts.update_with(to, |old| old.map(|value| value + 1)).map(drop)
                    })
                    .unwrap();
                }
            });
        }
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                db.run(|tx| {
                    let scratch = tx.open(NUMBERS)?;
                    (0..100).try_for_each(|n| scratch.put(n, 1))?;
                    scratch.clear().map(drop)
                })
                .unwrap();
                db.vacuum().unwrap();
            }
        });
        let _over = SetOnDrop(over);
        for round in 0..12 {
            let reader = db.read_with(if round % 2 == 0 { ReadOptions::new() } else { ReadOptions::new().latest() });
            let first = (round % 3 == 0).then(|| read_all(&reader, 0).unwrap());
            let found: Vec<_> = thread::scope(|readers| {
                let read = |thread| {
                    let reader = &reader;
                    move || {
                        let first = read_all(reader, thread).unwrap();
                        (0..3).for_each(|_| assert_eq!(read_all(reader, thread).unwrap(), first));
                        first
                    }
                };
                let threads: Vec<_> = (0..THREADS).map(|thread| readers.spawn(read(thread))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(found.iter().chain(&first).all(|rows| *rows == found[0]), "threads read different moments");
            reader.finish().unwrap().wait().unwrap();
        }
    });
    db.check().unwrap();
}

/// Reads a row on a thread of its own.
fn get_elsewhere(reader: &ReadTransaction) -> Result<Option<i64>, Error> {
    thread::scope(|scope| scope.spawn(|| reader.open(NUMBERS)?.get(1)).join().unwrap())
}

#[test]
fn a_reader_that_has_moved_reads_by_its_snapshot() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let reader = db.read();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    db.run(|tx| tx.open(NUMBERS)?.put(1, 100)).unwrap();
    let reader = thread::spawn(move || {
        assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
        reader
    });
    let reader = Arc::new(reader.join().unwrap());
    let fork = reader.fork().unwrap();
    assert_eq!((get_elsewhere(&reader).unwrap(), get_elsewhere(&fork).unwrap()), (Some(1), Some(1)));
    drop(reader);
    db.vacuum().unwrap();
    assert_eq!((get_elsewhere(&fork).unwrap(), fork.open(NUMBERS).unwrap().get(1).unwrap()), (Some(1), Some(1)));
    drop(fork);
    assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(100));
}

/// Opens a database of two sessions, with ten rows.
fn with_two_sessions() -> Db {
    let fs: Arc<dyn foreshore_io::Fs> = Arc::new(foreshore_io::Mem::null());
    let db = small().max_transactions(2).lock_timeout(std::time::Duration::ZERO);
    let db = db.lab(|lab| lab.fs = Some(fs)).open(crate::support::DIR).unwrap();
    fill(&db, 10);
    db
}

/// The first thread keeps its session, whatever becomes of the others.
#[test]
fn a_thread_that_gets_no_session_is_told_and_may_ask_again() {
    let db = with_two_sessions();
    let reader = db.read();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    let other = db.begin();
    other.open(NUMBERS).unwrap().put(1, 2).unwrap();
    let refused = get_elsewhere(&reader);
    assert!(matches!(refused, Err(Error::TooManyTransactions { .. })), "{refused:?}");
    other.commit().unwrap();
    assert_eq!(get_elsewhere(&reader).unwrap(), Some(1));
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
}

#[test]
fn a_thread_that_ends_frees_its_session() {
    let db = with_two_sessions();
    let reader = db.read();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    for round in 0..20 {
        assert_eq!(get_elsewhere(&reader).unwrap(), Some(1));
        db.run(|tx| tx.open(NUMBERS)?.put(1, round)).unwrap();
    }
    reader.finish().unwrap().wait().unwrap();
}

/// The first thread's transaction ends with an error. The ticket waits for what another thread has read.
#[test]
fn an_error_of_one_thread_hides_no_read_of_another() {
    let (db, _fs) = in_memory();
    const WRONG: TableDef<u64, i64> = TableDef::new("wrong");
    db.run(|tx| {
        tx.open(WRONG)?;
        tx.open_raw("wrong")?.put(&1u64.to_be_bytes()[..], &[1][..])
    })
    .unwrap();
    let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
    tx.open(NUMBERS).unwrap().put(1, 1).unwrap();
    let csn = tx.commit().unwrap();
    let reader = db.read_with(ReadOptions::new().latest());
    let failed = reader.open(WRONG).unwrap().get(1);
    assert!(matches!(failed, Err(Error::Undecodable { .. })), "{failed:?}");
    assert!(matches!(reader.open(NUMBERS), Err(Error::RolledBack)));
    assert_eq!(get_elsewhere(&reader).unwrap(), Some(1));
    let ticket = reader.finish().unwrap();
    ticket.wait().unwrap();
    assert!(ticket.csn() >= csn && db.durable_csn() >= csn);
}

/// The ticket waits for what other threads than the first have read.
#[test]
fn a_ticket_covers_the_reads_of_all_threads() {
    let (db, _fs) = in_memory();
    const EMPTY: TableDef<u64, i64> = TableDef::new("empty");
    db.run(|tx| tx.open(EMPTY).and_then(|_| tx.open(NUMBERS)?.put(1, 0))).unwrap();
    let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
    tx.open(NUMBERS).unwrap().put(1, 1).unwrap();
    let csn = tx.commit().unwrap();
    let reader = db.read_with(ReadOptions::new().latest());
    assert!(reader.open(EMPTY).unwrap().is_empty().unwrap());
    assert_eq!(get_elsewhere(&reader).unwrap(), Some(1));
    let ticket = reader.finish().unwrap();
    ticket.wait().unwrap();
    assert!(ticket.csn() >= csn && db.durable_csn() >= csn);
}

/// Each thread is told why the transaction did not begin.
#[test]
fn all_threads_get_the_error_of_the_begin() {
    let db = with_two_sessions();
    let others = [db.begin(), db.begin()];
    let reader = db.read();
    for refused in [get_elsewhere(&reader), get_elsewhere(&reader), reader.fork().map(|_| None)] {
        assert!(matches!(refused, Err(Error::TooManyTransactions { .. })), "{refused:?}");
    }
    drop(others);
}

/// One thread after another uses the transaction with its open tables.
#[test]
fn a_single_reader_moves_with_its_tables() {
    let db = with_two_sessions();
    let reader = db.read_with(ReadOptions::new()).into_single();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    let reader = thread::spawn(move || {
        assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
        reader
    });
    let reader = reader.join().unwrap();
    assert_eq!(reader.open(NUMBERS).unwrap().get(2).unwrap(), Some(2));
    // It has one session.
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(1));
    reader.finish().unwrap().wait().unwrap();
}

#[test]
fn a_cancelled_snapshot_is_cancelled_for_each_thread() {
    let (db, _fs) = in_memory();
    fill(&db, 500);
    let reader = db.read_with(ReadOptions::new().snapshot_max_bytes(16 << 10));
    let is_cancelled = |found: Result<Option<i64>, Error>| match found {
        Err(Error::SnapshotTooOld { .. }) => true,
        found => {
            assert_eq!(found.unwrap(), Some(1));
            false
        }
    };
    assert!(!is_cancelled(reader.open(NUMBERS).unwrap().get(1)) && !is_cancelled(get_elsewhere(&reader)));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _over = SetOnDrop(&is_over);
            // The thread may begin after the cancellation.
            while !is_cancelled(reader.open(NUMBERS).and_then(|numbers| numbers.get(1))) {
                thread::yield_now();
            }
        });
        for round in 0.. {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            db.run(|tx| (0..500).try_for_each(|n| tx.open(NUMBERS)?.put(n, round))).unwrap();
        }
    });
    assert!(is_cancelled(reader.open(NUMBERS).and_then(|numbers| numbers.get(1))));
    assert!(is_cancelled(get_elsewhere(&reader)));
}
