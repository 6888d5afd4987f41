//! Creation of tables: all or nothing, whatever stops it.

use crate::common::{Bed, Model, Rng, key, scan, value};
use foreshore_base::{Error, PageId, Result, TableId};
use foreshore_btree::Tree;
use foreshore_txn::Txn;
use std::ops::Bound;

const NEW: TableId = TableId(7);

fn create(bed: &Bed, txn: &mut Txn, name: &[u8]) -> Result<Tree> {
    bed.tree.create_table(txn, name, NEW, |root| root.0.to_le_bytes().to_vec())
}

fn fill(tree: &Tree, txn: &mut Txn, rows: usize, rng: &mut Rng) -> Model {
    let mut model = Model::new();
    for number in 0..rows {
        let (key, value) = (key(number), value(rng));
        tree.put(txn, &key, &value).unwrap();
        model.insert(key, value);
    }
    model
}

/// Allocated pages, according to the map.
fn used(bed: &Bed) -> u64 {
    bed.space.stats().used_pages
}

#[test]
fn a_committed_table_survives_with_its_rows() {
    let bed = Bed::new(256);
    let mut txn = bed.begin();
    let tree = create(&bed, &mut txn, b"accounts").unwrap();
    let model = fill(&tree, &mut txn, 200, &mut Rng(1));
    let refused = create(&bed, &mut txn, b"accounts");
    assert!(matches!(refused, Err(Error::KeyExists { .. })), "{refused:?}");
    drop(txn.commit().unwrap());
    bed.verify_with(&[&tree]);
    let root = tree.root();
    drop(tree);
    let (bed, _) = bed.crash();
    let catalogue = bed.contents();
    assert_eq!(catalogue[&b"accounts"[..]], root.0.to_le_bytes());
    let tree = bed.trees.tree(NEW, root);
    bed.verify_with(&[&tree]);
    let rows = bed.run(|txn| scan(&tree, txn, Bound::Unbounded, Bound::Unbounded));
    assert_eq!(rows, model);
}

#[test]
fn a_rolled_back_table_leaves_no_page_behind() {
    let bed = Bed::new(256);
    bed.run(|txn| Ok(fill(&bed.tree, txn, 40, &mut Rng(2))));
    let (before, contents) = (used(&bed), bed.contents());
    for rows in [0, 1, 30, 400] {
        let mut txn = bed.begin();
        let tree = create(&bed, &mut txn, b"new").unwrap();
        fill(&tree, &mut txn, rows, &mut Rng(rows as u64));
        assert!(used(&bed) > before);
        txn.rollback().unwrap();
        bed.verify();
        assert_eq!(used(&bed), before, "{rows} rows");
        assert_eq!(bed.contents(), contents);
    }
}

#[test]
fn a_crash_takes_a_table_back_and_its_pages_are_used_again() {
    for seed in 0..8 {
        let bed = Bed::new(256);
        bed.run(|txn| Ok(fill(&bed.tree, txn, 40, &mut Rng(3))));
        let contents = bed.contents();
        // Creations that came and went leave pages with a past.
        let mut txn = bed.begin();
        let tree = create(&bed, &mut txn, b"first").unwrap();
        fill(&tree, &mut txn, 150, &mut Rng(seed));
        txn.rollback().unwrap();
        if seed % 2 == 0 {
            bed.pool.flush_all().unwrap();
        }
        let before = used(&bed);
        let mut txn = bed.begin();
        let tree = create(&bed, &mut txn, b"second").unwrap();
        fill(&tree, &mut txn, 50 * seed as usize, &mut Rng(seed));
        if seed % 3 == 0 {
            bed.pool.flush_all().unwrap();
        }
        std::mem::forget(txn);
        drop(tree);
        let (bed, restart) = bed.crash();
        assert_eq!(restart.losers, 1);
        assert_eq!((used(&bed), bed.contents()), (before, contents.clone()), "seed {seed}");
        bed.verify();
        let (bed, restart) = bed.crash();
        assert_eq!(restart.losers, 0);
        bed.verify();
        let mut txn = bed.begin();
        let tree = create(&bed, &mut txn, b"third").unwrap();
        let model = fill(&tree, &mut txn, 100, &mut Rng(seed));
        drop(txn.commit().unwrap());
        bed.verify_with(&[&tree]);
        assert_eq!(bed.run(|txn| scan(&tree, txn, Bound::Unbounded, Bound::Unbounded)), model);
        assert!(tree.root() >= PageId(4));
    }
}

/// Whichever pages are freed when power is lost, the others are freed afterwards, and new users of freed pages are
/// whole.
#[test]
fn a_dropped_table_is_freed_across_crashes_while_its_pages_are_used_again() {
    const ROW: &[u8] = b"\xffdropped";
    for seed in 0..16_u64 {
        let mut bed = Bed::new(256);
        bed.run(|txn| Ok(fill(&bed.tree, txn, 40, &mut Rng(3))));
        let (before, contents) = (used(&bed), bed.contents());
        let mut txn = bed.begin();
        let tree = create(&bed, &mut txn, ROW).unwrap();
        fill(&tree, &mut txn, 600, &mut Rng(seed));
        let (root, by) = (tree.root(), txn.commit().unwrap().csn());
        drop(tree);
        let mut rng = Rng(seed);
        let mut others = Model::new();
        loop {
            if seed % 2 == 0 {
                bed.pool.flush_all().unwrap();
            }
            bed = bed.crash().0;
            let tree = bed.trees.tree(NEW, root);
            let mut txn = bed.begin();
            let pages = 1 + (rng.next() % 20) as usize;
            let is_root_left = tree.free_some(&mut txn, by, pages).unwrap();
            if is_root_left {
                bed.tree.end_table(&mut txn, ROW, &tree, by).unwrap();
            }
            txn.rollback().unwrap();
            let (key, value) = (key(10_000 + others.len()), value(&mut rng));
            bed.run(|txn| bed.tree.put(txn, &key, &value));
            others.insert(key, value);
            if is_root_left {
                break;
            }
            let mut owned = &tree.pages().unwrap() | &bed.tree.verify().unwrap().pages;
            owned.extend(bed.trees.chains().verify().unwrap().pages);
            bed.space.verify(&owned).unwrap();
        }
        let (bed, _) = bed.crash();
        bed.verify();
        let mut expected = contents;
        expected.extend(others);
        assert_eq!(bed.contents(), expected, "seed {seed}");
        assert!(used(&bed) < before + 30);
    }
}

#[test]
fn a_page_that_is_handed_out_and_not_linked_keeps_its_last_life() {
    let bed = Bed::new(256);
    bed.run(|txn| bed.tree.put(txn, b"taken", b"by a row"));
    let mut txn = bed.begin();
    let root = create(&bed, &mut txn, b"new").unwrap().root();
    txn.rollback().unwrap();
    // The record that freed the root may be lost in a crash, and the page go home before: then it must be a root still.
    let freed = bed.pool.shared(root).unwrap().to_vec();
    let mut txn = bed.begin();
    assert!(matches!(create(&bed, &mut txn, b"taken"), Err(Error::KeyExists { .. })));
    assert!(*bed.pool.shared(root).unwrap() == freed[..], "the page was changed without a record");
}
