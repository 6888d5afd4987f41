//! Readers and writers beside merges: of the leaves that they read or split, and beside the next life of the page that
//! is freed. The real tree over the real pool, under many orders of steps.

use crate::common::{Bed, scan};
use foreshore_base::Error;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::Txn;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

const ITERATIONS: usize = 150;
const ROWS: u8 = 12;

/// A tree of several leaves in which few rows are left, so that any two leaves can be merged.
fn thinned() -> Arc<Bed> {
    let bed = Bed::new(32);
    for key in 0..ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &[key], &[key; 1800]));
    }
    for key in (0..ROWS).filter(|key| key % 4 != 3) {
        bed.run(|txn| bed.tree.remove(txn, &[key]));
    }
    bed.log.force(bed.log.current()).expect("the log");
    bed.run(|txn| (0..ROWS).try_for_each(|key| bed.tree.purge_leaf(txn, &[key], true).map(drop)));
    assert!(bed.verify().leaves >= 3);
    Arc::new(bed)
}

/// Merges all leaves, and takes new ones into use that have rows between the old ones.
fn merge_and_grow(bed: &Bed) {
    let freed = bed.run(|txn| (0..ROWS).try_fold(0, |freed, key| Ok(freed + bed.tree.merge_leaf(txn, &[key])?.pages)));
    assert!(freed >= 2, "{freed} pages");
    for key in (0..ROWS).filter(|key| key % 4 == 2) {
        let mut txn = bed.begin();
        match bed.tree.insert_new(&mut txn, &[key, 1], &[key; 1800]) {
            Ok(()) => drop(txn.commit().expect("a commit")),
            // Under shuttle any wait for a lock may be over at once.
            Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => drop(txn.rollback().expect("a rollback")),
            Err(error) => panic!("row {key}: {error:?}"),
        }
    }
}

fn read_twice(bed: &Bed, txn: &mut Txn) -> Result<(), Error> {
    let behind = |txn: &mut Txn| scan(&bed.tree, txn, Excluded(&[5]), Unbounded);
    let (first, mut out) = (behind(txn)?, Vec::new());
    for key in [7, 11] {
        assert!(bed.tree.get(txn, &[key], &mut out)? && out == [key; 1800], "row {key} stays");
    }
    assert!(first == behind(txn)?, "a serializable scan finds the same rows twice");
    Ok(())
}

fn reader_beside_merges() {
    let bed = thinned();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let bed = bed.clone();
            thread::spawn(move || {
                let mut txn = bed.begin();
                match read_twice(&bed, &mut txn) {
                    Ok(()) => drop(txn.commit().expect("a commit")),
                    Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => {
                        drop(txn.rollback().expect("a rollback"))
                    }
                    Err(error) => panic!("a reader: {error:?}"),
                }
            })
        })
        .collect();
    merge_and_grow(&bed);
    readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    bed.verify();
}

/// Leaves of three, two and three rows: of four that a leaf has the space for, so that no two fit one leaf.
fn uneven() -> Arc<Bed> {
    let bed = Bed::new(32);
    for key in 0..ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &[key], &[key; 1800]));
    }
    bed.run(|txn| bed.tree.remove(txn, &[4]));
    bed.log.force(bed.log.current()).expect("the log");
    bed.run(|txn| (0..ROWS).try_for_each(|key| bed.tree.purge_leaf(txn, &[key], true).map(drop)));
    Arc::new(bed)
}

fn readers_beside_shifts() {
    let bed = uneven();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let bed = bed.clone();
            thread::spawn(move || {
                let mut txn = bed.begin();
                for key in [3, 5, 3] {
                    // No lock is in the way.
                    let found = bed.tree.get(&mut txn, &[key], &mut Vec::new());
                    assert!(matches!(found, Ok(true)), "row {key} stays: {found:?}");
                }
                drop(txn.commit().expect("a commit"));
            })
        })
        .collect();
    bed.run(|txn| bed.tree.merge_leaf(txn, &[3]).map(drop));
    readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    assert_eq!(bed.trees.stats().shifts, 1, "{:?}", bed.trees.stats());
    assert_eq!(bed.verify().rows, u64::from(ROWS) - 1);
}

#[test]
fn readers_are_not_led_astray_by_shifts() {
    shuttle(ITERATIONS, readers_beside_shifts);
}

#[test]
#[should_panic(expected = "stays")]
fn a_row_that_moves_is_missed_without_a_look_at_the_parent() {
    shuttle_mutated("btree: child read without validating the parent", 20 * ITERATIONS, readers_beside_shifts);
}

/// Adds rows behind all others until their leaf has been split.
fn split(bed: &Bed) -> u8 {
    let mut added = 0;
    for row in 0..4 {
        let mut txn = bed.begin();
        match bed.tree.insert_new(&mut txn, &[ROWS, row], &[row; 1800]) {
            Ok(()) => {
                drop(txn.commit().expect("a commit"));
                added += 1;
            }
            Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => drop(txn.rollback().expect("a rollback")),
            Err(error) => panic!("row {row}: {error:?}"),
        }
    }
    added
}

fn writer_beside_merges() {
    let bed = thinned();
    let writer = thread::spawn({
        let bed = bed.clone();
        move || split(&bed)
    });
    let reader = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = bed.begin();
            for key in [7, 11] {
                assert!(bed.tree.get(&mut txn, &[key], &mut Vec::new()).expect("no lock is in the way"), "row {key}");
            }
            drop(txn.commit().expect("a commit"));
        }
    });
    bed.run(|txn| (0..=ROWS).rev().try_for_each(|key| bed.tree.merge_leaf(txn, &[key]).map(drop)));
    let added = writer.join().expect("a writer");
    reader.join().expect("a reader");
    let found = bed.tree.verify().unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(found.rows, u64::from(ROWS / 4 + added));
}

#[test]
fn splits_beside_merges_lose_no_leaf() {
    shuttle(ITERATIONS, writer_beside_merges);
}

#[test]
#[should_panic(expected = "does not cover the keys")]
fn an_open_split_that_is_merged_away_is_noticed() {
    shuttle_mutated("btree: a merge takes a node whose split is open", 20 * ITERATIONS, writer_beside_merges);
}

#[test]
fn readers_are_not_led_astray_by_merges() {
    shuttle(ITERATIONS, reader_beside_merges);
}

#[test]
#[should_panic(expected = "finds the same rows twice")]
fn a_page_that_is_freed_behind_its_readers_is_noticed() {
    shuttle_mutated("btree: a page is freed behind its readers", 20 * ITERATIONS, reader_beside_merges);
}
