//! The leaf of a session's last write leaves the tree before its next one: merged, packed, moved, or dropped and then
//! used by another table. The next write is where a search finds it.

use crate::common::{self, Bed, Model};
use foreshore_base::{PageId, TableId};
use foreshore_btree::{NodePlace, Tree};
use foreshore_space::Purpose;
use foreshore_txn::Txn;
use std::ops::Bound::Unbounded;

const ROWS: u32 = 1200;
/// A key in the middle of a tree, and of its leaf.
const MIDDLE: u32 = 608;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn fill(bed: &Bed, tree: &Tree) {
    bed.run(|txn| (0..ROWS).step_by(2).try_for_each(|number| tree.insert_new(txn, &key(number), &[7; 200])));
}

/// Writes two neighbours. Returns a transaction that is the next one of the same session, and their leaf.
fn after_writes(bed: &Bed, tree: &Tree) -> (Txn, PageId) {
    bed.run(|txn| [MIDDLE, MIDDLE + 2].iter().try_for_each(|&number| tree.put(txn, &key(number), &[8; 200]).map(drop)));
    let txn = bed.begin();
    let row = txn.last_row(tree.table()).expect("a leaf of the last write");
    let leaf = bed.pool.exclusive_at(row.page).expect("the leaf is as it was left").pid();
    assert!(leaf != tree.root() && tree.pages().unwrap().contains(&leaf));
    (txn, leaf)
}

fn contents(bed: &Bed, tree: &Tree) -> Model {
    bed.run(|txn| common::scan(tree, txn, Unbounded, Unbounded))
}

/// Writes the row that the session wrote last, and new rows on both sides of it. Checks that the tree has them beside
/// the rows that it had.
fn write_on(bed: &Bed, tree: &Tree, mut txn: Txn) {
    let mut expected = contents(bed, tree);
    for number in [MIDDLE + 2, MIDDLE + 3, MIDDLE + 1] {
        let value = [number as u8; 150].to_vec();
        let before = tree.put(&mut txn, &key(number), &value).unwrap();
        assert_eq!(before, expected.insert(key(number).to_vec(), value), "row {number}");
    }
    drop(txn.commit().unwrap());
    assert_eq!(contents(bed, tree), expected);
}

/// Leaves with few rows, which no merge has met.
fn sparse() -> Bed {
    let bed = Bed::new(256);
    fill(&bed, &bed.tree);
    let kept = |number: &u32| number.is_multiple_of(16) || (MIDDLE..MIDDLE + 4).contains(number);
    for number in (0..ROWS).step_by(2).filter(|number| !kept(number)) {
        bed.run(|txn| bed.tree.remove(txn, &key(number)));
    }
    bed.log.force(bed.log.current()).unwrap();
    let mut from = Some(Vec::new());
    while let Some(key) = from {
        from = bed.run(|txn| bed.tree.purge_leaf(txn, &key, true)).next;
    }
    assert_eq!(bed.verify().ghosts, 0);
    bed
}

#[test]
fn a_leaf_that_was_merged_away_is_not_written() {
    let bed = sparse();
    let (txn, leaf) = after_writes(&bed, &bed.tree);
    for number in 0..ROWS {
        bed.run(|txn| bed.tree.merge_leaf(txn, &key(number)));
    }
    assert!(!bed.verify().pages.contains(&leaf), "the leaf is merged into its neighbour");
    write_on(&bed, &bed.tree, txn);
    bed.verify();
}

#[test]
fn a_leaf_that_was_packed_into_another_is_not_written() {
    let bed = sparse();
    let (txn, leaf) = after_writes(&bed, &bed.tree);
    let mut from = Some(key(MIDDLE - 128).to_vec());
    while bed.verify().pages.contains(&leaf) {
        let at = from.expect("a leaf before takes the rows of this one");
        from = bed.run(|txn| bed.tree.pack_leaf(txn, &at)).next;
    }
    write_on(&bed, &bed.tree, txn);
    bed.verify();
}

#[test]
fn a_leaf_that_has_moved_is_written_at_its_new_page() {
    let bed = Bed::new(256);
    // Pages that were taken ahead for the first trees.
    let _ = bed.space.free_below(PageId(0));
    let low: Vec<_> = (0..64).map(|_| bed.space.take(63, Purpose::Data).unwrap()).collect();
    fill(&bed, &bed.tree);
    let limit = *low.iter().max().unwrap();
    low.into_iter().for_each(|pid| bed.space.give_back(pid));
    let (txn, leaf) = after_writes(&bed, &bed.tree);
    let mut place = Some(NodePlace::default());
    while let Some(at) = place {
        place = bed.run(|txn| bed.tree.move_nodes(txn, &at, limit, 64)).next;
    }
    assert!(!bed.verify().pages.contains(&leaf), "the leaf has moved");
    write_on(&bed, &bed.tree, txn);
    bed.verify();
}

/// A table that is created after the drop has the id of the dropped one.
#[test]
fn a_leaf_that_another_table_uses_after_a_drop_is_not_written() {
    let bed = Bed::new(256);
    let create = |name: &[u8], id| {
        let mut txn = bed.begin();
        let tree = bed.tree.create_table(&mut txn, name, id, |root| root.0.to_le_bytes().to_vec()).unwrap();
        (tree, txn.commit().unwrap().csn())
    };
    let (dropped, csn) = create(b"dropped", TableId(7));
    fill(&bed, &dropped);
    let (txn, leaf) = after_writes(&bed, &dropped);
    bed.run(|txn| {
        while !dropped.free_some(txn, csn, 100)? {}
        bed.tree.end_table(txn, b"dropped", &dropped, csn)
    });
    let (other, _) = create(b"other", TableId(8));
    fill(&bed, &other);
    assert!(other.pages().unwrap().contains(&leaf), "the other table has the page");
    let (again, _) = create(b"again", TableId(7));
    let before = contents(&bed, &other);
    write_on(&bed, &again, txn);
    assert_eq!(contents(&bed, &other), before);
    bed.verify_with(&[&other, &again]);
}
