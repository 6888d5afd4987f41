//! A check of the whole tree beside a writer that splits its leaves, while pages leave the pool: never a false alarm.

use crate::common::Bed;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use std::collections::HashSet;
use std::sync::Arc;

const ROWS: u16 = 20;
const ITERATIONS: usize = 150;

fn insert(bed: &Bed, row: u16) {
    bed.run(|txn| bed.tree.insert_new(txn, &row.to_be_bytes(), &[row as u8; 1200]));
}

fn check_beside_splits(frames: usize) {
    let bed = Arc::new(Bed::new(frames));
    (0..ROWS).for_each(|row| insert(&bed, 2 * row));
    let writer = {
        let bed = bed.clone();
        thread::spawn(move || (0..ROWS).for_each(|row| insert(&bed, 2 * row + 1)))
    };
    let before = bed.tree.verify().expect("nothing is wrong");
    assert!((u64::from(ROWS)..=u64::from(2 * ROWS)).contains(&before.rows), "{before:?}");
    // What was not met has come since, and its keys lead to it.
    let after = bed.tree.verify().expect("nothing is wrong");
    assert!(before.pages.is_subset(&after.pages), "a tree loses no page");
    for &pid in after.pages.difference(&before.pages).collect::<HashSet<_>>() {
        assert!(bed.tree.reaches(pid).expect("nothing is wrong"), "page {pid}");
    }
    writer.join().expect("the writer");
    assert_eq!(bed.verify().rows, u64::from(2 * ROWS));
}

#[test]
fn nothing_is_wrong_beside_splits() {
    shuttle(ITERATIONS, || check_beside_splits(64));
}

#[test]
fn nothing_is_wrong_beside_splits_and_evictions() {
    shuttle(ITERATIONS, || check_beside_splits(16));
}

#[test]
#[should_panic(expected = "no parent leads to the node")]
fn the_copy_of_a_parent_may_be_older_than_a_split() {
    shuttle_mutated("btree: verify believes the parent that it copied", ITERATIONS, || check_beside_splits(64));
}
