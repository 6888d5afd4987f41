//! Requests that do not wait, under many schedules: after a refusal the transaction continues, and nothing has
//! changed. So no transaction waits for it either.

use crate::common::Bed;
use foreshore_base::Error;
use foreshore_lock::{LockWait, Locked, RowLock};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 200;
const STAYS: &str = "share: what is given up stays";

fn begin(bed: &Bed, isolation: Isolation) -> Txn {
    let options = TxnOptions { isolation, lock_timeout: Duration::ZERO, ..TxnOptions::default() };
    bed.txns.begin(options).expect("a transaction")
}

/// A request beside a writer that rolls the row's change back. `asks` returns whether it was refused or skipped the
/// row.
fn beside_a_writer(isolation: Isolation, key: &'static [u8], asks: fn(&Bed, &mut Txn, &[u8]) -> bool) {
    let bed = Arc::new(Bed::new(16));
    for key in [b"a", b"c"] {
        bed.run(|txn| bed.tree.insert_new(txn, key, b"one"));
    }
    let writer = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = bed.begin_as("writer", Duration::MAX);
            bed.tree.put(&mut txn, key, b"two").expect("it waits for the reader");
            txn.rollback().expect("a rollback");
        }
    });
    let mut txn = begin(&bed, isolation);
    let is_refused = asks(&bed, &mut txn, key);
    if is_refused {
        writer.join().expect("the writer");
        let mut late = begin(&bed, Isolation::ReadCommitted);
        let put = bed.tree.put(&mut late, key, b"three");
        assert!(put.is_ok(), "a lock stays behind: {put:?}");
    } else {
        drop(txn);
        writer.join().expect("the writer");
    }
    bed.verify();
}

fn asks_for_a_row(lock: RowLock) -> impl Fn(&Bed, &mut Txn, &[u8]) -> bool {
    move |bed, txn, key| match bed.tree.get_locked(txn, key, lock, &mut Vec::new()) {
        Ok(locked) => locked == Locked::Skipped,
        Err(Error::RowLocked { .. }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

fn asks_for_a_range(lock: RowLock) -> impl Fn(&Bed, &mut Txn, &[u8]) -> bool {
    move |bed, txn, key| {
        let mut scan = || {
            let mut rows = Vec::new();
            let mut cursor = bed.tree.range_locked(txn, Bound::Unbounded, Bound::Included(key), lock)?;
            while let Some((key, _)) = cursor.next(txn)? {
                rows.push(key.to_vec());
            }
            Ok(rows)
        };
        match scan() {
            Ok(rows) => !rows.iter().any(|row| row == key),
            Err(Error::RowLocked { .. }) => true,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn shared_row(bed: &Bed, txn: &mut Txn, key: &[u8]) -> bool {
    asks_for_a_row(RowLock::share().no_wait())(bed, txn, key)
}

fn absent_row(bed: &Bed, txn: &mut Txn, key: &[u8]) -> bool {
    asks_for_a_row(RowLock::update().skip_locked())(bed, txn, key)
}

fn shared_range(bed: &Bed, txn: &mut Txn, key: &[u8]) -> bool {
    asks_for_a_range(RowLock::share().skip_locked())(bed, txn, key)
}

fn whole_range(bed: &Bed, txn: &mut Txn, key: &[u8]) -> bool {
    asks_for_a_range(RowLock::share().no_wait())(bed, txn, key)
}

/// A snapshot scan beside a writer that rolls its change back.
fn no_conflict(lock: RowLock) {
    let bed = Arc::new(Bed::new(16));
    bed.run(|txn| bed.tree.insert_new(txn, b"a", b"one"));
    let writer = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = bed.begin_as("writer", Duration::MAX);
            bed.tree.remove(&mut txn, b"a").expect("it waits for the reader");
            txn.rollback().expect("a rollback");
        }
    });
    let options = TxnOptions { isolation: Isolation::Snapshot, lock_timeout: Duration::MAX, ..TxnOptions::default() };
    let mut txn = bed.txns.begin(options).expect("a transaction");
    assert!(bed.tree.get(&mut txn, b"a", &mut Vec::new()).expect("a read"), "it has its snapshot");
    let mut cursor = bed.tree.range_locked(&mut txn, Bound::Unbounded, Bound::Unbounded, lock).expect("a scan");
    let met = cursor.next(&mut txn).map(|row| row.is_some());
    let passes = lock.on_conflict() == LockWait::SkipLocked;
    assert!(matches!(met, Ok(found) if found || passes), "nobody has changed the row: {met:?}");
    drop(txn);
    writer.join().expect("the writer");
    bed.verify();
}

#[test]
fn a_change_that_is_taken_back_is_no_conflict() {
    for lock in [RowLock::share(), RowLock::update(), RowLock::share().skip_locked(), RowLock::update().skip_locked()] {
        shuttle(ITERATIONS / 2, move || no_conflict(lock));
    }
}

#[test]
#[should_panic(expected = "nobody has changed the row")]
fn a_conflict_is_one_of_a_copy_that_holds() {
    shuttle_mutated("btree: a stale copy is a conflict", ITERATIONS, || no_conflict(RowLock::share().skip_locked()));
}

/// A scan that takes free rows, beside a transaction that holds the first one and releases it.
fn takes_one(gives_up: fn(&Bed, Txn)) {
    let bed = Arc::new(Bed::new(16));
    for key in [b"a", b"b", b"c"] {
        bed.run(|txn| bed.tree.insert_new(txn, key, b"one"));
    }
    let mut first = begin(&bed, Isolation::ReadCommitted);
    assert!(bed.tree.get_for_update(&mut first, b"a", &mut Vec::new()).expect("nobody has it"));
    let other = thread::spawn({
        let bed = bed.clone();
        move || gives_up(&bed, first)
    });
    let mut txn = begin(&bed, Isolation::Serializable);
    let lock = RowLock::update().skip_locked();
    let mut cursor = bed.tree.range_locked(&mut txn, Bound::Unbounded, Bound::Unbounded, lock).expect("a scan");
    let taken = cursor.next(&mut txn).expect("it waits for nothing").map(|(key, _)| key.to_vec());
    other.join().expect("the other");
    for key in [&b"a"[..], b"b", b"c"].into_iter().filter(|key| Some(*key) != taken.as_deref()) {
        let mut late = begin(&bed, Isolation::ReadCommitted);
        let put = bed.tree.put(&mut late, key, b"two");
        assert!(put.is_ok(), "a lock stays behind: {put:?}");
    }
}

fn takes_the_lock_back(_: &Bed, txn: Txn) {
    txn.rollback().map(drop).expect("a rollback");
}

/// Also takes all that the scan might have met with it, if no transaction holds it by then.
fn removes_what_is_left(bed: &Bed, mut txn: Txn) {
    for key in [b"a", b"b", b"c"] {
        match bed.tree.remove(&mut txn, key) {
            Ok(_) => {}
            Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => return,
            Err(error) => panic!("{error:?}"),
        }
    }
    drop(txn.commit().expect("a commit"));
}

#[test]
fn a_claim_of_one_row_locks_no_other() {
    shuttle(ITERATIONS, || takes_one(takes_the_lock_back));
    shuttle(ITERATIONS, || takes_one(removes_what_is_left));
}

#[test]
#[should_panic(expected = "a lock stays behind")]
fn the_row_that_is_locked_is_the_one_that_is_taken() {
    shuttle_mutated("btree: a scan looks for another row than it has locked", ITERATIONS, || {
        takes_one(takes_the_lock_back);
    });
}

#[test]
#[should_panic(expected = "a lock stays behind")]
fn a_row_that_has_gone_is_not_taken() {
    shuttle_mutated("btree: a scan locks what is not there", ITERATIONS, || takes_one(removes_what_is_left));
}

#[test]
fn a_refused_share_of_a_row_leaves_nothing() {
    shuttle(ITERATIONS, || beside_a_writer(Isolation::ReadCommitted, b"c", shared_row));
}

#[test]
fn a_refused_lock_of_an_absent_row_leaves_nothing() {
    shuttle(ITERATIONS, || beside_a_writer(Isolation::Serializable, b"b", absent_row));
}

#[test]
fn a_scan_leaves_nothing_of_what_it_has_passed_over() {
    shuttle(ITERATIONS, || beside_a_writer(Isolation::ReadCommitted, b"c", shared_range));
}

#[test]
fn a_refused_scan_leaves_nothing_of_what_it_has_not_handed_out() {
    shuttle(ITERATIONS, || beside_a_writer(Isolation::Serializable, b"c", whole_range));
}

#[test]
#[should_panic(expected = "a lock stays behind")]
fn what_a_row_was_to_be_shared_by_is_given_up() {
    shuttle_mutated(STAYS, ITERATIONS, || beside_a_writer(Isolation::ReadCommitted, b"c", shared_row));
}

#[test]
#[should_panic(expected = "a lock stays behind")]
fn what_an_absent_row_was_to_be_locked_by_is_given_up() {
    shuttle_mutated(STAYS, ITERATIONS, || beside_a_writer(Isolation::Serializable, b"b", absent_row));
}

#[test]
#[should_panic(expected = "a lock stays behind")]
fn what_a_scan_was_to_be_locked_by_is_given_up() {
    shuttle_mutated(STAYS, ITERATIONS, || beside_a_writer(Isolation::ReadCommitted, b"c", shared_range));
}

#[test]
#[should_panic(expected = "a lock stays behind")]
fn what_a_refused_scan_was_to_be_locked_by_is_given_up() {
    let name = "range: what is given up stays";
    // Few schedules have the writer's change between the cover of the range and its row.
    shuttle_mutated(name, 5 * ITERATIONS, || beside_a_writer(Isolation::Serializable, b"c", whole_range));
}
