//! Serializable transactions on rows: which waits for which, and which commits a reader depends on.

use crate::common::{self, Bed, key};
use foreshore_base::{Error, Lockable};
use foreshore_lock::RowLock;
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(30);

fn bed() -> Bed {
    let bed = Bed::new(64);
    bed.run(|txn| bed.tree.put(txn, b"row", b"one"));
    bed.log.force(bed.log.current()).unwrap();
    bed
}

/// A transaction that times out soon.
fn hasty(bed: &Bed) -> Txn {
    bed.begin_as("hasty", SOON)
}

fn read(bed: &Bed, txn: &mut Txn, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut out = Vec::new();
    Ok(bed.tree.get(txn, key, &mut out)?.then_some(out))
}

#[test]
fn a_reader_waits_for_a_writer_and_names_it() {
    let bed = bed();
    let mut writer = bed.begin_as("writer", SOON);
    bed.tree.put(&mut writer, b"row", b"two").unwrap();
    let mut reader = hasty(&bed);
    match read(&bed, &mut reader, b"row") {
        Err(Error::LockTimeout { holder: "writer", what, .. }) => assert!(what.to_string().contains("row"), "{what}"),
        other => panic!("{other:?}"),
    }
    drop(reader);
    writer.rollback().unwrap();
    assert_eq!(bed.run(|txn| read(&bed, txn, b"row")), Some(b"one".to_vec()));
}

#[test]
fn a_writer_waits_for_a_reader_and_its_header_is_taken_back() {
    let bed = bed();
    let mut reader = bed.begin_as("reader", SOON);
    assert_eq!(read(&bed, &mut reader, b"row").unwrap(), Some(b"one".to_vec()));
    let mut writer = hasty(&bed);
    let refused = bed.tree.put(&mut writer, b"row", b"two");
    assert!(matches!(refused, Err(Error::LockTimeout { holder: "reader", .. })), "{refused:?}");
    // The reader itself writes: its own shared lock is no obstacle, and the loser's xid is gone from the header.
    bed.tree.put(&mut reader, b"row", b"three").unwrap();
    drop(writer);
    drop(reader.commit().unwrap());
    assert_eq!(bed.run(|txn| read(&bed, txn, b"row")), Some(b"three".to_vec()));
}

#[test]
fn readers_share_a_row_and_writers_of_other_rows_pass() {
    let bed = bed();
    bed.run(|txn| bed.tree.put(txn, b"other", b"x"));
    let (mut first, mut second, mut writer) = (hasty(&bed), hasty(&bed), hasty(&bed));
    assert!(read(&bed, &mut first, b"row").unwrap().is_some());
    assert!(read(&bed, &mut second, b"row").unwrap().is_some());
    bed.tree.put(&mut writer, b"other", b"y").unwrap();
}

#[test]
fn what_was_absent_stays_absent() {
    let bed = bed();
    let mut reader = bed.begin();
    assert_eq!(read(&bed, &mut reader, b"nothing").unwrap(), None);
    let mut writer = hasty(&bed);
    assert!(matches!(bed.tree.put(&mut writer, b"nothing", b"!"), Err(Error::LockTimeout { .. })));
    drop(writer);
    assert_eq!(read(&bed, &mut reader, b"nothing").unwrap(), None);
    drop(reader);
    // A deleted row is as absent as one that never was, ghost or not.
    bed.run(|txn| bed.tree.remove(txn, b"row"));
    let mut locker = bed.begin();
    assert!(!bed.tree.get_for_update(&mut locker, b"row", &mut Vec::new()).unwrap());
    let mut writer = hasty(&bed);
    assert!(matches!(bed.tree.insert_new(&mut writer, b"row", b"!"), Err(Error::LockTimeout { .. })));
}

#[test]
fn a_scan_keeps_writers_out() {
    let bed = bed();
    let mut reader = bed.begin();
    let rows = common::scan(&bed.tree, &mut reader, Bound::Unbounded, Bound::Unbounded).unwrap();
    assert_eq!(rows.len(), 1);
    let mut writer = hasty(&bed);
    assert!(matches!(bed.tree.put(&mut writer, b"phantom", b"!"), Err(Error::LockTimeout { .. })));
}

#[test]
fn key_exists_holds_the_row() {
    let bed = bed();
    let mut txn = bed.begin();
    assert!(matches!(bed.tree.insert_new(&mut txn, b"row", b"two"), Err(Error::KeyExists { .. })));
    let mut other = hasty(&bed);
    assert!(matches!(bed.tree.remove(&mut other, b"row"), Err(Error::LockTimeout { .. })));
    drop(other);
    txn.rollback().unwrap();
    bed.run(|txn| bed.tree.remove(txn, b"row"));
}

#[test]
fn what_changes_and_locks_no_row_draws_no_xid_and_what_changes_none_logs_nothing() {
    let bed = bed();
    let records = || bed.log.stats().records;
    let before = records();
    let mut txn = bed.begin();
    assert_eq!(bed.tree.remove(&mut txn, b"absent").unwrap(), None);
    assert_eq!(bed.tree.update(&mut txn, b"absent", b"!").unwrap(), None);
    assert!(!bed.tree.get_for_update(&mut txn, b"absent", &mut Vec::new()).unwrap());
    assert_eq!(txn.xid(), None, "that a row is absent is no header's affair");
    assert!(bed.tree.get_for_update(&mut txn, b"row", &mut Vec::new()).unwrap());
    assert!(matches!(bed.tree.insert_new(&mut txn, b"row", b"two"), Err(Error::KeyExists { .. })));
    assert!(txn.xid().is_some(), "a row is locked");
    let mut other = hasty(&bed);
    assert!(matches!(bed.tree.remove(&mut other, b"row"), Err(Error::LockTimeout { .. })));
    drop(other);
    assert!(txn.commit().unwrap().is_durable());
    assert_eq!(records(), before);
    let mut next = hasty(&bed);
    assert!(bed.tree.remove(&mut next, b"row").unwrap().is_some(), "the lock is gone");
    next.commit().unwrap().wait().unwrap();
    assert_eq!(records(), before + 2);
}

#[test]
fn a_row_that_was_only_locked_still_leads_to_its_last_writer() {
    let bed = bed();
    let mut writer = bed.begin();
    bed.tree.put(&mut writer, b"row", b"two").unwrap();
    let ticket = writer.commit_pipelined().unwrap();
    let csn = ticket.csn();
    for commits in [false, true] {
        let mut locker = bed.begin();
        assert!(bed.tree.get_for_update(&mut locker, b"row", &mut Vec::new()).unwrap());
        if commits {
            drop(locker.commit().unwrap());
        } else {
            locker.rollback().unwrap();
        }
        // Not durable yet: a reader of the row must wait for the writer's commit before it acknowledges anything.
        assert!(!ticket.is_durable());
        let mut reader = bed.begin();
        assert_eq!(read(&bed, &mut reader, b"row").unwrap(), Some(b"two".to_vec()));
        assert!(reader.observed() >= csn, "the reader rests on {csn}");
        let answer = reader.commit().unwrap();
        assert!(!answer.is_durable());
        drop(answer);
    }
    ticket.wait().unwrap();
}

#[test]
fn absence_rests_on_the_commit_that_made_it() {
    let bed = bed();
    let mut writer = bed.begin();
    bed.tree.remove(&mut writer, b"row").unwrap();
    let ticket = writer.commit_pipelined().unwrap();
    let mut reader = bed.begin();
    assert_eq!(read(&bed, &mut reader, b"row").unwrap(), None);
    assert!(reader.observed() >= ticket.csn());
}

fn begin_at(bed: &Bed, isolation: Isolation, lock_timeout: Duration) -> Txn {
    bed.txns.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap()
}

fn until_waits(bed: &Bed, waits: u64) {
    while bed.txns.stats().locks.waits < waits {
        thread::yield_now();
    }
}

/// Two wait for a row that is rolled back. The first is woken, finds no row and continues with other work; the second
/// does not wait for its end.
#[test]
fn a_waiter_that_finds_no_row_does_not_keep_the_next_one_waiting() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let bed = bed();
        let mut holder = bed.begin();
        bed.tree.insert_new(&mut holder, b"new", b"one").unwrap();
        let before = bed.txns.stats().locks.waits;
        let update = |txn: &mut Txn| bed.tree.update(txn, b"new", b"two").unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut txn = begin_at(&bed, isolation, Duration::from_secs(30));
                assert_eq!(update(&mut txn), None);
                txn
            });
            until_waits(&bed, before + 1);
            let second = scope.spawn(|| update(&mut begin_at(&bed, isolation, Duration::from_secs(30))));
            until_waits(&bed, before + 2);
            holder.rollback().unwrap();
            let still_running = first.join().unwrap();
            assert_eq!(second.join().unwrap(), None);
            drop(still_running);
        });
    }
}

/// The timeout of an operation does not count earlier waits and work of the transaction, even for the same row.
#[test]
fn a_second_wait_for_a_row_has_its_whole_time() {
    let (bed, timeout, clock) = (bed(), Duration::from_secs(2), SystemClock::new());
    let mut holder = bed.begin();
    bed.tree.insert_new(&mut holder, b"new", b"one").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut txn = begin_at(&bed, Isolation::ReadCommitted, timeout);
            let began = clock.now();
            assert_eq!(bed.tree.update(&mut txn, b"new", b"two").unwrap(), None);
            txn.release();
            let insert = || {
                let mut again = bed.begin();
                bed.tree.insert_new(&mut again, b"new", b"one").unwrap();
                again
            };
            // In another thread: a wait for one of this thread ends early.
            let _again = thread::scope(|scope| scope.spawn(insert).join().unwrap());
            // Time that must not count.
            while clock.now().since(began) < timeout / 4 {
                thread::yield_now();
            }
            let refused = bed.tree.update(&mut txn, b"new", b"two");
            let Err(Error::LockTimeout { waited, .. }) = refused else { panic!("{refused:?}") };
            assert!(waited >= timeout && clock.now().since(began) >= timeout + timeout / 4, "only {waited:?}");
        });
        until_waits(&bed, 1);
        holder.rollback().unwrap();
        waiter.join().unwrap();
    });
}

/// A step that would take several rows is refused one of them. Those before it are returned first, and those behind it
/// stay unlocked.
#[test]
fn a_refused_scan_leaves_what_it_has_not_handed_out_to_others() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let bed = bed();
        for key in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
            bed.run(|txn| bed.tree.insert_new(txn, key, b"one"));
        }
        bed.run(|txn| bed.tree.remove(txn, b"f"));
        let mut holder = bed.begin();
        bed.tree.put(&mut holder, b"g", b"two").unwrap();
        let mut reader = begin_at(&bed, isolation, SOON);
        let mut cursor =
            bed.tree.range_locked(&mut reader, Bound::Unbounded, Bound::Unbounded, RowLock::share().no_wait()).unwrap();
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            assert_eq!(cursor.next(&mut reader).unwrap().unwrap().0, key);
        }
        for _ in 0..2 {
            let refused = cursor.next(&mut reader).map(|row| row.map(|(key, _)| key.to_vec()));
            assert!(matches!(refused, Err(Error::RowLocked { .. })), "{refused:?}");
        }
        bed.tree.put(&mut hasty(&bed), b"h", b"two").unwrap();
        // The step that has handed out d and e has met the ghost behind them.
        let ghost = bed.tree.put(&mut hasty(&bed), b"f", b"two");
        assert_eq!(ghost.is_ok(), isolation == Isolation::ReadCommitted, "{ghost:?}");
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            assert!(bed.tree.put(&mut hasty(&bed), key, b"two").is_err(), "what was handed out is locked");
        }
        holder.rollback().unwrap();
        assert_eq!(cursor.next(&mut reader).unwrap().unwrap().0, b"g", "it goes on where it was");
    }
}

/// A step meets a deleted row and then one that it is refused: it releases the lock of the first.
#[test]
fn a_refused_scan_leaves_no_lock_of_what_it_has_met() {
    let bed = bed();
    for key in [b"a", b"b", b"c", b"d"] {
        bed.run(|txn| bed.tree.insert_new(txn, key, b"one"));
    }
    bed.run(|txn| bed.tree.remove(txn, b"b"));
    let mut holder = bed.begin();
    bed.tree.put(&mut holder, b"c", b"two").unwrap();
    let mut reader = hasty(&bed);
    let mut cursor =
        bed.tree.range_locked(&mut reader, Bound::Unbounded, Bound::Unbounded, RowLock::share().no_wait()).unwrap();
    assert_eq!(cursor.next(&mut reader).unwrap().unwrap().0, b"a");
    let refused = cursor.next(&mut reader).map(|row| row.map(|(key, _)| key.to_vec()));
    assert!(matches!(refused, Err(Error::RowLocked { .. })), "one step meets both: {refused:?}");
    bed.tree.put(&mut hasty(&bed), b"b", b"two").unwrap();
    assert!(bed.tree.put(&mut hasty(&bed), b"a", b"two").is_err(), "what was handed out is locked");
}

/// A key in front of a row is refused: the row is as free as before.
#[test]
fn a_scan_for_update_that_is_refused_a_key_locks_no_row() {
    let bed = bed();
    bed.run(|txn| bed.tree.insert_new(txn, b"a", b"one"));
    let mut reader = bed.begin();
    let none = (Bound::Excluded(&b"a"[..]), Bound::Excluded(&b"row"[..]));
    assert!(common::scan(&bed.tree, &mut reader, none.0, none.1).unwrap().is_empty());
    thread::scope(|scope| {
        let writer = scope.spawn(|| bed.run(|txn| bed.tree.insert_new(txn, b"b", b"one")));
        until_waits(&bed, 1);
        let mut hasty = hasty(&bed);
        let lock = RowLock::update().no_wait();
        let mut cursor = bed.tree.range_locked(&mut hasty, none.0, Bound::Unbounded, lock).unwrap();
        let refused = cursor.next(&mut hasty).map(|row| row.map(|(key, _)| key.to_vec()));
        let is_the_writers = |what: &Lockable| matches!(what, Lockable::Row(_, key) if key == b"b");
        assert!(matches!(&refused, Err(Error::RowLocked { what, .. }) if is_the_writers(what)), "{refused:?}");
        bed.tree.put(&mut begin_at(&bed, Isolation::ReadCommitted, SOON), b"row", b"two").unwrap();
        drop(reader);
        writer.join().unwrap();
        assert_eq!(cursor.next(&mut hasty).unwrap().unwrap().0, b"b", "it goes on where it was");
        assert_eq!(cursor.next(&mut hasty).unwrap().unwrap().0, b"row");
        assert!(cursor.next(&mut hasty).unwrap().is_none());
    });
}

#[test]
fn two_upgrades_of_one_row_are_a_deadlock_and_one_goes_on() {
    let bed = Arc::new(bed());
    let workers: Vec<_> = (0..2_u8)
        .map(|n| {
            let bed = bed.clone();
            thread::spawn(move || {
                let mut done = 0;
                for _ in 0..40 {
                    let mut txn = bed.begin();
                    let result = read(&bed, &mut txn, b"row").and_then(|_| bed.tree.put(&mut txn, b"row", &[n]));
                    match result {
                        Ok(_) => {
                            drop(txn.commit().unwrap());
                            done += 1;
                        }
                        Err(Error::Deadlock { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
                done
            })
        })
        .collect();
    let done: i32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(done >= 40, "each deadlock has a survivor, but only {done} went on");
    bed.verify();
}

/// The place of a locked row is kept for the write that follows. Rows that others insert before it move it.
#[test]
fn a_locked_row_is_written_though_it_has_moved_in_its_leaf() {
    let bed = Bed::new(64);
    bed.run(|txn| (10..20).try_for_each(|n| bed.tree.put(txn, &key(n), &[n as u8]).map(drop)));
    for round in 0..200_usize {
        let (row, other) = (10 + round % 10, round / 3 % 10);
        let mut txn = bed.begin();
        assert!(bed.tree.get_for_update(&mut txn, &key(row), &mut Vec::new()).unwrap());
        let is_there = |txn: &Txn| {
            let place = txn.last_row(bed.tree.table()).expect("the last row locked");
            bed.pool.exclusive_at(place.page).is_some()
        };
        assert!(is_there(&txn), "the leaf is as it was left");
        // Moves it to the right or to the left, or changes the size of one beside it.
        match round % 3 {
            0 => bed.run(|txn| bed.tree.put(txn, &key(other), &[0; 30]).map(drop)),
            1 => bed.run(|txn| bed.tree.remove(txn, &key(other)).map(drop)),
            _ => {}
        }
        assert_eq!(is_there(&txn), round % 3 == 2, "only an unchanged leaf is returned to");
        bed.tree.put(&mut txn, &key(row), &vec![row as u8; 1 + round % 40]).unwrap();
        assert!(txn.commit().unwrap().wait().is_ok());
    }
    let mut txn = bed.begin();
    let mut out = Vec::new();
    for n in 10..20 {
        assert!(bed.tree.get(&mut txn, &key(n), &mut out).unwrap());
        assert!(out.iter().all(|&byte| byte == n as u8), "row {n}: {out:?}");
    }
    txn.rollback().unwrap();
    bed.tree.verify().unwrap();
}
