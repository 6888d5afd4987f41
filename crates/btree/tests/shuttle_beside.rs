//! An insert behind the last row of a leaf looks for the next key in the next leaf, and waits for no latch meanwhile: a frame may have
//! changed hands by then, and be latched by who waits for the very leaf that the insert has.
#![cfg(foreshore_shuttle)]

mod common;

use common::Bed;
use foreshore_base::PageId;
use foreshore_space::CATALOGUE_ROOT;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use std::sync::Arc;

const ITERATIONS: usize = 100;

/// An insert at the end of one of two leaves, while the other one is latched by who wants the first.
fn beside_a_latch() {
    let bed = Arc::new(Bed::new(16));
    for key in *b"abcdefg" {
        bed.run(|txn| bed.tree.insert_new(txn, &[key], &[7; 1200]));
    }
    let mut leaves: Vec<PageId> = bed.verify().pages.into_iter().filter(|&pid| pid != CATALOGUE_ROOT).collect();
    leaves.sort_unstable();
    let &[first, next] = &leaves[..] else { panic!("two leaves: {leaves:?}") };
    let latched = bed.pool.exclusive(next).expect("a latch");
    let insert = thread::spawn({
        let bed = bed.clone();
        move || bed.run(|txn| bed.tree.insert_new(txn, b"e5", b"one more"))
    });
    drop(bed.pool.exclusive(first).expect("a latch"));
    drop(latched);
    insert.join().expect("the insert");
    assert_eq!(bed.verify().rows, 8);
}

#[test]
fn an_insert_waits_for_no_latch_beside_its_own() {
    shuttle(ITERATIONS, beside_a_latch);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_insert_that_reads_the_next_leaf_without_latches_is_noticed() {
    shuttle_mutated("gap: the next leaf is read without latches", ITERATIONS, beside_a_latch);
}
