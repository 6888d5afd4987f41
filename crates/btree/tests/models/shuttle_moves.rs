//! Readers, splits and merges beside moves of nodes to other pages, and beside the next life of the old pages. The real
//! tree over the real pool, under many orders of steps.

use crate::common::{Bed, scan};
use foreshore_base::{Error, PageId};
use foreshore_btree::NodePlace;
use foreshore_space::Purpose;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::Txn;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

const ITERATIONS: usize = 150;
const ROWS: u8 = 10;
const SIZE: usize = 1800;

/// A tree of several leaves behind as many free pages as there are leaves, and the first page behind those. So the old
/// pages of the leaves are the next ones that are used.
fn behind_free_pages() -> (Arc<Bed>, PageId) {
    let bed = Bed::new(32);
    // Makes those free that were taken ahead for the first trees.
    let _ = bed.space.free_below(PageId(0));
    let pages: Vec<_> = (0..16).map(|_| bed.space.take(1, Purpose::Data).expect("a page")).collect();
    for key in 0..ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &[key], &[key; SIZE]));
    }
    let limit = PageId(pages.iter().map(|pid| pid.0).max().expect("some pages") + 1);
    let leaves = bed.verify().leaves;
    assert!(leaves >= 3);
    pages.into_iter().take(leaves).for_each(|pid| bed.space.give_back(pid));
    let _ = bed.space.free_below(PageId(0));
    (Arc::new(bed), limit)
}

fn move_all(bed: &Bed, limit: PageId) -> u64 {
    let (mut moved, mut place) = (0, Some(NodePlace::default()));
    while let Some(at) = place {
        let done = bed.run(|txn| bed.tree.move_nodes(txn, &at, limit, 2));
        moved += done.moved;
        place = done.next;
    }
    moved
}

/// Inserts rows between the others, so that leaves are split. Returns how many.
fn insert(bed: &Bed, keys: impl Iterator<Item = u8>) -> u64 {
    let mut added = 0;
    for key in keys {
        let mut txn = bed.begin();
        match bed.tree.insert_new(&mut txn, &[key, 1], &[key; SIZE]) {
            Ok(()) => {
                drop(txn.commit().expect("a commit"));
                added += 1;
            }
            // Under shuttle any wait for a lock may be over at once.
            Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => {
                let _ = txn.rollback().expect("a rollback");
            }
            Err(error) => panic!("row {key}: {error:?}"),
        }
    }
    added
}

fn read_twice(bed: &Bed, txn: &mut Txn) -> Result<(), Error> {
    let behind = |txn: &mut Txn| scan(&bed.tree, txn, Excluded(&[1]), Unbounded);
    let (first, mut out) = (behind(txn)?, Vec::new());
    for key in [3, ROWS - 1] {
        assert!(bed.tree.get(txn, &[key], &mut out)? && out == [key; SIZE], "led astray from row {key}");
    }
    assert!(first == behind(txn)?, "led astray: a serializable scan finds other rows than before");
    Ok(())
}

/// Nodes move, and rows are inserted between the others.
fn readers_beside_moves() {
    let (bed, limit) = behind_free_pages();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let bed = bed.clone();
            thread::spawn(move || {
                let mut txn = bed.begin();
                match read_twice(&bed, &mut txn) {
                    Ok(()) => drop(txn.commit().expect("a commit")),
                    Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => {
                        let _ = txn.rollback().expect("a rollback");
                    }
                    Err(error) => panic!("led astray: {error:?}"),
                }
            })
        })
        .collect();
    assert!(move_all(&bed, limit) >= 3);
    let added = insert(&bed, [2, 5, 8].into_iter());
    readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    assert_eq!(bed.verify().rows, u64::from(ROWS) + added);
}

/// A writer splits leaves, and a scan goes over them, while they move.
fn writer_beside_moves() {
    let (bed, limit) = behind_free_pages();
    let writer = thread::spawn({
        let bed = bed.clone();
        move || insert(&bed, [1, 4, 7, 8].into_iter())
    });
    let reader = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = bed.begin();
            match scan(&bed.tree, &mut txn, Unbounded, Unbounded) {
                Ok(found) => assert!(found.len() >= usize::from(ROWS), "a scan misses rows"),
                Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => {}
                Err(error) => panic!("a scan: {error:?}"),
            }
            let _ = txn.rollback().expect("a rollback");
        }
    });
    move_all(&bed, limit);
    bed.run(|txn| (0..ROWS).try_for_each(|key| bed.tree.pack_leaf(txn, &[key]).map(drop)));
    let added = writer.join().expect("a writer");
    reader.join().expect("a reader");
    let found = bed.tree.verify().unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(found.rows, u64::from(ROWS) + added);
}

#[test]
fn readers_are_not_led_astray_by_moves() {
    shuttle(ITERATIONS, readers_beside_moves);
}

#[test]
#[should_panic(expected = "led astray")]
fn a_page_that_a_node_has_left_behind_its_readers_is_noticed() {
    shuttle_mutated("btree: a page is freed behind its readers", 20 * ITERATIONS, readers_beside_moves);
}

#[test]
fn splits_and_merges_beside_moves_lose_no_row() {
    shuttle(ITERATIONS, writer_beside_moves);
}

#[test]
#[should_panic(expected = "led astray")]
fn a_move_is_noticed_by_the_version_of_the_parent() {
    shuttle_mutated("btree: child read without validating the parent", 20 * ITERATIONS, readers_beside_moves);
}
