//! Readers without latches beside a writer that splits leaves, links them, and rolls a change back, while pages are
//! evicted: the real tree over the real pool, under many schedules. Which assertion finds a misled reader or writer
//! depends on the schedule.

use crate::common::Bed;
use foreshore_base::Error;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use std::sync::Arc;

/// Rows from the start; the writer inserts as many between them.
const ROWS: u16 = 20;
const ITERATIONS: usize = 120;
const FILL: usize = 1200;

fn value(key: u16, state: u8) -> Vec<u8> {
    let mut value = vec![state; FILL];
    value[..2].copy_from_slice(&key.to_le_bytes());
    value
}

fn read(bed: &Bed, key: u16) {
    let mut out = Vec::new();
    let mut txn = bed.begin();
    match bed.tree.get(&mut txn, &key.to_be_bytes(), &mut out) {
        Ok(found) => {
            assert!(found, "row {key} was there from the start");
            assert!(out == value(key, 1), "row {key} as it was never committed");
            drop(txn.commit().expect("a commit"));
        }
        // Under shuttle any wait for a lock may be over at once.
        Err(Error::LockTimeout { .. }) => {
            txn.rollback().expect("a rollback");
        }
        Err(error) => panic!("row {key}: {error:?}"),
    }
}

/// Every leaf holds a few rows, so the writer splits most of them, and links them in the root that all readers pass.
fn splits(frames: usize) {
    let bed = Arc::new(Bed::new(frames));
    for row in 0..ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &(2 * row).to_be_bytes(), &value(2 * row, 1)));
    }
    let writer = {
        let bed = bed.clone();
        thread::spawn(move || {
            for row in 0..ROWS {
                bed.run(|txn| bed.tree.insert_new(txn, &(2 * row + 1).to_be_bytes(), &value(2 * row + 1, 1)));
            }
        })
    };
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let bed = bed.clone();
            thread::spawn(move || (0..ROWS).for_each(|row| read(&bed, (row * 7 + reader * 3) % ROWS * 2)))
        })
        .collect();
    writer.join().expect("the writer");
    readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    assert_eq!(bed.verify().rows, u64::from(2 * ROWS));
}

/// Changes two rows, always with a rollback.
fn rollbacks() {
    let bed = Arc::new(Bed::new(16));
    for key in 0..2 {
        bed.run(|txn| bed.tree.insert_new(txn, &u16::to_be_bytes(key), &value(key, 1)));
    }
    let writer = {
        let bed = bed.clone();
        thread::spawn(move || {
            for round in 0..4 {
                let key = round % 2;
                let mut txn = bed.begin();
                match bed.tree.put(&mut txn, &u16::to_be_bytes(key), &value(key, 2)) {
                    Ok(_) | Err(Error::LockTimeout { .. }) => txn.rollback().expect("a rollback"),
                    Err(error) => panic!("row {key}: {error:?}"),
                };
            }
        })
    };
    for round in 0..6 {
        read(&bed, round % 2);
    }
    writer.join().expect("the writer");
}

/// New rows in all leaves, while leaves change places in a pool that is too small for them.
fn inserts_while_leaves_change_places() {
    let bed = Arc::new(Bed::new(8));
    for row in 0..2 * ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &(8 * row).to_be_bytes(), &value(8 * row, 1)));
    }
    let threads: Vec<_> = (0..2)
        .map(|thread| {
            let bed = bed.clone();
            thread::spawn(move || {
                for turn in 0..ROWS {
                    // One goes up, one down.
                    let row = if thread == 0 { 2 * turn } else { 2 * (ROWS - turn) - 1 };
                    bed.run(|txn| bed.tree.insert_new(txn, &(8 * row + 1 + thread).to_be_bytes(), b"small"));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a writer"));
    assert_eq!(bed.verify().rows, u64::from(4 * ROWS));
}

/// Threads that each update a row of their own, again and again, all in one leaf at first. Returns the splits that this
/// leads to.
fn updates_of_one_leaf(frames: usize) -> u64 {
    const WRITERS: u16 = 3;
    let bed = Arc::new(Bed::new(frames));
    for key in 0..WRITERS {
        bed.run(|txn| bed.tree.insert_new(txn, &key.to_be_bytes(), &[0]));
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|key| {
            let bed = bed.clone();
            thread::spawn(move || {
                for round in 0..6 {
                    bed.run(|txn| {
                        let old = bed.tree.update(txn, &key.to_be_bytes(), &[round + 1])?;
                        assert_eq!(old, Some(vec![round]), "row {key}");
                        Ok(())
                    });
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    assert_eq!(bed.verify().rows, u64::from(WRITERS));
    bed.trees.stats().contention_splits
}

#[test]
fn writers_of_one_leaf_are_kept_apart() {
    static SPLITS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    for frames in [64, 8] {
        shuttle(ITERATIONS, move || {
            SPLITS.fetch_add(updates_of_one_leaf(frames), std::sync::atomic::Ordering::Relaxed);
        });
    }
    let splits = SPLITS.load(std::sync::atomic::Ordering::Relaxed);
    assert!(splits >= ITERATIONS as u64 / 2, "{splits} splits in {ITERATIONS} schedules with each number of frames");
}

#[test]
fn writers_find_their_leaves_beside_evictions() {
    shuttle(ITERATIONS, inserts_while_leaves_change_places);
}

#[test]
#[should_panic(expected = "out of range")]
fn an_id_must_not_be_refused_before_it_is_known_to_have_been_there() {
    shuttle_mutated(
        "btree: an id is refused before it is validated",
        5 * ITERATIONS,
        inserts_while_leaves_change_places,
    );
}

#[test]
fn readers_find_their_rows_beside_splits() {
    shuttle(ITERATIONS, || splits(64));
}

#[test]
fn readers_find_their_rows_beside_splits_and_evictions() {
    shuttle(ITERATIONS, || splits(16));
}

#[test]
fn readers_see_no_change_that_is_taken_back() {
    shuttle(ITERATIONS, rollbacks);
}

#[test]
#[should_panic]
fn without_validation_of_the_parent_readers_are_led_astray() {
    shuttle_mutated("btree: child read without validating the parent", 5 * ITERATIONS, || splits(64));
}

#[test]
#[should_panic(expected = "as it was never committed")]
fn a_holder_asked_for_after_validation_may_have_rolled_back() {
    shuttle_mutated("btree: validate before the holder is asked for", 5 * ITERATIONS, rollbacks);
}
