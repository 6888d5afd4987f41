//! Nodes of all levels move to lower pages, and leaves are packed. After a crash at any record the tree is whole.

use crate::common::{self, Bed, restart};
use foreshore_base::PageId;
use foreshore_btree::NodePlace;
use foreshore_buffer::PageMut;
use foreshore_space::Purpose;

/// Long keys, so that a few hundred rows make three levels.
fn key(number: usize) -> Vec<u8> {
    format!("{number:0300}").into_bytes()
}

const ROWS: usize = 700;

/// A tree of three levels whose nodes lie behind free pages, and the first page behind those. Another worker takes
/// them, and keeps what it has taken ahead.
fn behind_free_pages(frames: usize) -> (Bed, PageId) {
    let bed = Bed::new(frames);
    // Makes those free that were taken ahead for the first trees.
    let _ = bed.space.free_below(PageId(0));
    let pages: Vec<_> = (0..64).map(|_| bed.space.take(63, Purpose::Data).unwrap()).collect();
    for number in 0..ROWS {
        bed.run(|txn| bed.tree.put(txn, &key(number * 7919 % ROWS), &[7; 40]));
    }
    let limit = PageId(pages.iter().map(|pid| pid.0).max().unwrap() + 1);
    pages.into_iter().for_each(|pid| bed.space.give_back(pid));
    (bed, limit)
}

/// Moves all nodes in pages from `limit` on, a few in each call, until no page before is free.
fn move_all(bed: &Bed, limit: PageId) -> u64 {
    let (mut moved, mut place) = (0, Some(NodePlace::default()));
    while let Some(at) = place {
        let done = bed.run(|txn| bed.tree.move_nodes(txn, &at, limit, 3));
        assert!(done.moved <= 3 && done.stuck == 0, "{done:?}");
        moved += done.moved;
        place = done.next;
    }
    moved
}

fn pack_all(bed: &Bed) -> u64 {
    let (mut freed, mut from) = (0, Some(Vec::new()));
    while let Some(key) = from {
        let done = bed.run(|txn| bed.tree.pack_leaf(txn, &key));
        freed += done.pages;
        from = done.next;
    }
    freed
}

#[test]
fn every_node_but_the_root_moves() {
    let (bed, limit) = behind_free_pages(256);
    let (before, contents) = (bed.verify(), bed.contents());
    assert!(before.height >= 3, "{before:?}");
    let root = bed.tree.root();
    assert!(before.pages.iter().all(|&pid| pid == root || pid >= limit));
    // As many as there are free pages, beside the reserve.
    let moved = move_all(&bed, limit);
    assert_eq!(moved, 64.min(before.pages.len() as u64 - 1));
    let after = bed.verify();
    assert_eq!(after.pages.iter().filter(|&&pid| pid < limit).count() as u64, moved + 1);
    assert_eq!((bed.contents(), after.rows), (contents.clone(), ROWS as u64));
    assert_eq!(bed.trees.stats().moves, moved);
    bed.space.verify(&after.pages.iter().copied().chain(bed.trees.chains().verify().unwrap().pages).collect()).unwrap();
    let (bed, _) = bed.crash();
    assert_eq!(bed.contents(), contents);
    bed.verify();
}

#[test]
fn packed_leaves_are_full() {
    let bed = Bed::new(256);
    for number in 0..ROWS {
        bed.run(|txn| bed.tree.put(txn, &key(number * 7919 % ROWS), &[number as u8; 40]));
    }
    for number in (0..ROWS).filter(|number| number % 5 > 1) {
        bed.run(|txn| bed.tree.remove(txn, &key(number)));
    }
    bed.log.force(bed.log.current()).unwrap();
    let contents = bed.contents();
    let freed = pack_all(&bed);
    let found = bed.verify();
    // A row takes 364 bytes of 8128, and the leaves at the end of an inner node need not be full.
    assert!(freed > 10 && found.leaves <= contents.len().div_ceil(22) + 2, "{freed} pages, {found:?}");
    assert_eq!((bed.contents(), found.ghosts), (contents.clone(), 0));
    assert_eq!(pack_all(&bed), 0, "a packed tree stays as it is");
    let (bed, _) = bed.crash();
    assert_eq!(bed.contents(), contents);
    bed.verify();
}

#[test]
fn a_leaf_with_the_row_of_a_live_writer_is_moved_and_not_packed() {
    let (bed, limit) = behind_free_pages(256);
    for number in (0..ROWS).filter(|number| number % 5 > 0) {
        bed.run(|txn| bed.tree.remove(txn, &key(number)));
    }
    bed.log.force(bed.log.current()).unwrap();
    let contents = bed.contents();
    let mut txn = bed.begin();
    for number in (0..ROWS).step_by(10) {
        bed.tree.remove(&mut txn, &key(number)).unwrap();
    }
    let before = bed.verify().leaves;
    pack_all(&bed);
    assert!(bed.verify().leaves * 2 > before, "{} of {before} leaves", bed.verify().leaves);
    assert!(move_all(&bed, limit) > 20);
    txn.rollback().unwrap();
    assert_eq!(bed.contents(), contents);
    assert!(pack_all(&bed) > 10);
    assert_eq!((bed.contents(), bed.verify().ghosts), (contents, 0));
}

/// Each record of a history that packs and moves is the last one once.
#[test]
fn a_crash_behind_any_record_leaves_a_whole_tree() {
    let (bed, limit) = behind_free_pages(256);
    for number in (0..ROWS).filter(|number| number % 4 > 1) {
        bed.run(|txn| bed.tree.remove(txn, &key(number)));
    }
    bed.log.force(bed.log.current()).unwrap();
    let (from, contents) = (bed.log.current(), bed.contents());
    let (freed, moved) = (pack_all(&bed), move_all(&bed, limit));
    assert!(freed > 5 && moved > 15, "{freed} pages, {moved} moves");
    bed.log.force(bed.log.current()).unwrap();
    assert_eq!(bed.pool.stats().pages_written, 0, "the data file is blank");
    let fs = bed.fs.clone();
    drop(bed);
    let lsns = common::lsns(&fs, 256);
    for limit in lsns.partition_point(|lsn| *lsn <= from)..=lsns.len() {
        let (bed, _) = restart(&fs, 256, limit);
        bed.verify();
        assert_eq!(bed.contents(), contents, "{limit} records");
    }
}

/// The leftmost child of an inner node is changed to the node itself, or to the root: neither a hang nor a panic.
#[test]
fn a_node_that_leads_to_itself_or_to_the_root_does_not_move() {
    const AT_LEFTMOST: usize = 48;
    let leftmost = |page: &[u8]| PageId(u64::from_le_bytes(page[AT_LEFTMOST..AT_LEFTMOST + 8].try_into().unwrap()));
    for leads_to_root in [false, true] {
        let (bed, _) = behind_free_pages(256);
        let root = bed.tree.root();
        let inner = leftmost(&bed.pool.shared(root).unwrap());
        {
            let mut page = bed.pool.exclusive(inner).unwrap();
            let child = if leads_to_root { root } else { inner };
            page.mark_dirty();
            page.write(AT_LEFTMOST, &child.0.to_le_bytes());
        }
        let mut txn = bed.begin();
        let (mut place, mut stuck) = (Some(NodePlace::default()), 0);
        // Every page is behind this limit, and so is the root.
        while let Some(at) = place {
            let done = bed.tree.move_nodes(&mut txn, &at, PageId(3), 3).unwrap_or_default();
            stuck += done.stuck;
            place = done.next;
        }
        let mut place = Some(NodePlace::default());
        while let Some(at) = place {
            let done = bed.tree.move_nodes(&mut txn, &at, inner, 3).unwrap_or_default();
            stuck += done.stuck;
            place = done.next;
        }
        txn.rollback().unwrap();
        assert!(stuck > 0, "the node is refused");
    }
}

/// The copy of a large value lies before the limit as a whole, or the transaction is refused.
#[test]
fn a_large_value_is_copied_to_before_the_limit_or_not_at_all() {
    let bed = Bed::new(256);
    let _ = bed.space.free_below(PageId(0));
    let low: Vec<_> = (0..12).map(|_| bed.space.take(63, Purpose::Data).unwrap()).collect();
    let limit = PageId(low.iter().map(|pid| pid.0).max().unwrap() + 1);
    let value = vec![7; 40_000];
    bed.run(|txn| bed.tree.put(txn, b"large", &value));
    let far = |bed: &Bed| bed.run(|txn| bed.tree.far_values(txn, b"", limit)).rows;
    // Five pages of data, and the root above them.
    assert_eq!(far(&bed), [(b"large".to_vec(), 6)]);
    let mut low = low.into_iter();
    low.by_ref().take(5).for_each(|pid| bed.space.give_back(pid));
    let _ = bed.space.free_below(PageId(0));
    let mut txn = bed.begin();
    let refused = bed.tree.renew_value(&mut txn, b"large", limit);
    assert!(matches!(refused, Err(foreshore_base::Error::DiskFull { .. })), "{refused:?}");
    txn.rollback().unwrap();
    assert_eq!(far(&bed).len(), 1);
    low.for_each(|pid| bed.space.give_back(pid));
    assert!(bed.run(|txn| bed.tree.renew_value(txn, b"large", limit)));
    assert!(far(&bed).is_empty(), "all pages of the copy lie before the limit");
    assert!(!bed.run(|txn| bed.tree.renew_value(txn, b"large", limit)), "nothing is left to do");
    let found = bed.contents();
    assert!(found.len() == 1 && found[&b"large"[..]] == value);
}
