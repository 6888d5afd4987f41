//! A large value is replaced, rolled back and removed while two threads free the values that nothing needs. A snapshot
//! reader and a locking reader read it meanwhile. The real trees run over the real manager, under many schedules.

use crate::common::Bed;
use foreshore_base::Error;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, SnapshotRef, Txn, TxnOptions};
use std::sync::Arc;

const ITERATIONS: usize = 100;
const KEY: &[u8] = b"key";
/// A value in two pages below its first one.
const LEN: usize = 9000;
/// Passes of a thread that frees values, and reads of a reader.
const ROUNDS: usize = 4;

fn value(tag: u8) -> Vec<u8> {
    vec![tag; LEN]
}

/// Frees what nothing needs, and returns how many values were freed, and how many are left.
fn free(bed: &Bed) -> (usize, usize) {
    bed.log.force(bed.log.current()).expect("a sound log");
    let mut txn = bed.begin();
    let (mut from, mut freed, mut left) = (Vec::new(), 0, 0);
    loop {
        let found = bed.trees.free_chains(&mut txn, &from, 2).expect("a sound disk");
        assert!(found.damage.is_none(), "a value that is freed is damaged: {found:?}");
        (freed, left) = (freed + found.freed, left + found.left);
        match found.next {
            Some(next) => from = next,
            None => break,
        }
    }
    txn.rollback().expect("nothing to roll back");
    (freed, left)
}

/// Replaces the value, and rolls back a second replacement. A time limit may end either.
fn write(bed: &Bed) {
    for (tag, commits) in [(2, true), (3, false)] {
        let mut txn = bed.begin();
        match bed.tree.put(&mut txn, KEY, &value(tag)) {
            Ok(_) if commits => _ = txn.commit().expect("a commit"),
            Ok(_) | Err(Error::LockTimeout { .. }) => _ = txn.rollback().expect("a rollback"),
            Err(lost) => panic!("a writer has lost its value: {lost:?}"),
        }
    }
}

/// Reads the first value by a snapshot from before the others.
fn read_old(bed: &Bed, mut txn: Txn, snapshot: &SnapshotRef) {
    for _ in 0..ROUNDS {
        let mut found = Vec::new();
        let is_there = bed.tree.get_at(&mut txn, snapshot, KEY, &mut found);
        assert!(matches!(is_there, Ok(true)) && found == value(1), "a snapshot has lost its value: {is_there:?}");
    }
}

/// Reads the newest value under a lock.
fn read_new(bed: &Bed) {
    for _ in 0..ROUNDS / 2 {
        let (mut txn, mut found) = (bed.begin(), Vec::new());
        match bed.tree.get_newest(&mut txn, KEY, &mut found) {
            Ok(true) => assert!(found == value(1) || found == value(2), "a reader finds a value of {}", found[0]),
            Err(Error::LockTimeout { .. }) => {}
            lost => panic!("a locked row has lost its value: {lost:?}"),
        }
        txn.rollback().expect("nothing to roll back");
    }
}

fn free_beside_readers_and_a_writer() {
    let bed = Arc::new(Bed::new(48));
    let empty = bed.space.stats().used_pages;
    bed.run(|txn| bed.tree.put(txn, KEY, &value(1)));
    let options = TxnOptions { isolation: Isolation::Snapshot, ..TxnOptions::default() };
    let mut txn = bed.txns.begin(options).expect("a session");
    let snapshot = txn.reads_at().expect("a snapshot").expect("it reads by one");
    let spawn = |work: fn(&Bed)| {
        let bed = bed.clone();
        thread::spawn(move || work(&bed))
    };
    let passes = |bed: &Bed| (0..ROUNDS).for_each(|_| drop(free(bed)));
    let threads = [spawn(write), spawn(read_new), spawn(passes), spawn(passes)];
    let reader = thread::spawn({
        let bed = bed.clone();
        move || read_old(&bed, txn, &snapshot)
    });
    threads.into_iter().chain([reader]).for_each(|thread| thread.join().expect("no thread fails"));
    let (mut txn, mut found) = (bed.begin(), Vec::new());
    let is_there = bed.tree.get_newest(&mut txn, KEY, &mut found);
    let is_whole = matches!(is_there, Ok(true)) && (found == value(1) || found == value(2));
    assert!(is_whole, "the row has lost its value: {is_there:?}");
    txn.rollback().expect("nothing to roll back");
    bed.run(|txn| bed.tree.remove(txn, KEY));
    assert_eq!(free(&bed).1, 0, "no reader is left");
    bed.verify();
    assert_eq!(bed.space.stats().used_pages, empty, "pages are lost");
}

#[test]
fn a_value_goes_once_when_nothing_needs_it() {
    shuttle(ITERATIONS, free_beside_readers_and_a_writer);
}

#[test]
#[should_panic(expected = "has lost its value")]
fn freeing_waits_for_snapshots() {
    shuttle_mutated("sabotage: a large value goes that a snapshot needs", 20 * ITERATIONS, || {
        free_beside_readers_and_a_writer();
    });
}

#[test]
#[should_panic(expected = "has lost its value")]
fn freeing_waits_for_the_builder() {
    shuttle_mutated("sabotage: a large value goes while it is written", 20 * ITERATIONS, || {
        free_beside_readers_and_a_writer();
    });
}

#[test]
#[should_panic(expected = "a value that is freed is damaged")]
fn one_thread_frees_a_value() {
    shuttle_mutated("sabotage: two threads free one large value", 20 * ITERATIONS, free_beside_readers_and_a_writer);
}

#[test]
#[should_panic(expected = "allocated, but no tree reaches the page")]
fn a_replaced_value_is_retired() {
    shuttle_mutated("sabotage: a replaced large value is not retired", 20 * ITERATIONS, || {
        free_beside_readers_and_a_writer();
    });
}
