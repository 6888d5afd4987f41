//! Requests that do not wait, under many orders of steps: the transaction of one that is refused goes on, and nothing has
//! changed. So nobody waits for it either.
#![cfg(foreshore_shuttle)]

mod common;

use common::Bed;
use foreshore_base::Error;
use foreshore_lock::{Locked, RowLock};
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

/// A request beside a writer of the row, which takes its change back. `asks` says whether it was refused or passed over.
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
        Err(error) => panic!("{error}"),
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
            Err(error) => panic!("{error}"),
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
    shuttle_mutated(STAYS, ITERATIONS, || beside_a_writer(Isolation::Serializable, b"c", whole_range));
}
