//! Empty and thin leaves are freed, inner nodes with them, and the root collapses. After a crash at any record of that
//! the tree is valid.

use crate::common::{self, Bed, Model, Rng, WAYS, restart, scan_by};
use foreshore_base::PageId;
use foreshore_btree::format::INCOMPLETE;
use foreshore_buffer::AccessPattern;
use foreshore_buffer::format::{page_flags, page_level};
use foreshore_sync::pause;
use foreshore_txn::{Txn, TxnOptions};
use foreshore_wal::LogLimits;
use std::cell::Cell;
use std::ops::Bound::Unbounded;
use std::rc::Rc;
use std::time::Duration;

/// Long keys, so that a few thousand rows make three levels.
fn key(number: usize) -> Vec<u8> {
    format!("{number:0300}").into_bytes()
}

fn fill(bed: &Bed, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        bed.run(|txn| bed.tree.put(txn, &key(number), &[7; 40]));
    }
}

fn empty(bed: &Bed, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        bed.run(|txn| bed.tree.remove(txn, &key(number)));
    }
    bed.log.force(bed.log.current()).unwrap();
}

/// What the background thread does, until no leaf is queued.
fn purge(bed: &Bed) -> usize {
    let (mut freed, mut txn) = (0, bed.begin());
    loop {
        let mut leaves = Vec::new();
        let ranges = bed.trees.take_queued(usize::MAX, |leaf| leaves.push(leaf.page));
        if leaves.is_empty() && ranges.is_empty() {
            break;
        }
        for page in leaves {
            freed += purge_page(bed, &mut txn, page);
        }
        for range in ranges.into_values() {
            freed += purge_range(bed, &mut txn, range.from, &range.to);
        }
    }
    txn.rollback().unwrap();
    freed
}

fn purge_range(bed: &Bed, txn: &mut Txn, from: Vec<u8>, to: &[u8]) -> usize {
    let (mut freed, mut from) = (0, Some(from));
    while let Some(key) = from.filter(|key| &key[..] <= to) {
        let done = bed.tree.purge_leaf(txn, &key, true).unwrap();
        freed += if done.is_thin { bed.tree.merge_leaf(txn, &key).unwrap().pages } else { 0 };
        from = done.next;
    }
    freed
}

fn purge_page(bed: &Bed, txn: &mut Txn, page: PageId) -> usize {
    let Some(key) = bed.tree.first_key_of(page).unwrap() else { return 0 };
    let done = bed.tree.purge_leaf(txn, &key, true).unwrap();
    assert_eq!(done.held, 0, "all deletions are durable, and no snapshot is held");
    if done.is_thin { bed.tree.merge_leaf(txn, &key).unwrap().pages } else { 0 }
}

const ROWS: usize = 3000;

#[test]
fn an_emptied_tree_is_one_leaf_again() {
    let bed = Bed::new(256);
    fill(&bed, 0..ROWS);
    let before = bed.verify();
    assert!(before.height >= 3, "{before:?}");
    empty(&bed, 0..ROWS);
    let freed = purge(&bed);
    let after = bed.verify();
    assert_eq!((after.height, after.pages.len(), after.ghosts), (1, 1, 0), "{after:?}");
    assert_eq!(freed, before.pages.len() - 1);
    assert!(bed.trees.stats().collapses >= 2);
    fill(&bed, 0..ROWS);
    assert_eq!(bed.verify().rows, ROWS as u64);
    let (bed, _) = bed.crash();
    assert_eq!(bed.verify().rows, ROWS as u64);
}

/// From either end, and from the middle to both.
#[test]
fn what_is_left_stays_within_a_few_leaves() {
    let orders: [fn(usize) -> usize; 3] = [|n| n, |n| ROWS - 1 - n, |n| n * 7919 % ROWS];
    for order in orders {
        let bed = Bed::new(256);
        fill(&bed, 0..ROWS);
        let full = bed.verify().leaves;
        for part in 0..30 {
            empty(&bed, (part * ROWS / 30..(part + 1) * ROWS / 30).map(order));
            purge(&bed);
            let found = bed.verify();
            let left = ROWS - (part + 1) * ROWS / 30;
            assert_eq!((found.rows, found.ghosts), (left as u64, 0));
            assert!(found.leaves <= 4 * full * left / ROWS + 2, "{left} rows in {} of {full} leaves", found.leaves);
        }
        assert_eq!(bed.verify().pages.len(), 1);
    }
}

/// Scans and single rows are as a map has them, whatever merges there were.
#[test]
fn rows_stay_where_they_are_to_their_readers() {
    for seed in 0..20 {
        let (bed, mut rng, mut model) = (Bed::new(64), Rng(seed), Model::new());
        for _ in 0..30 {
            for _ in 0..rng.below(120) {
                let key = common::key(rng.below(400));
                if rng.below(5) < 3 {
                    bed.run(|txn| bed.tree.remove(txn, &key));
                    model.remove(&key);
                } else {
                    let value = common::value(&mut rng);
                    bed.run(|txn| bed.tree.put(txn, &key, &value));
                    model.insert(key, value);
                }
            }
            bed.log.force(bed.log.current()).unwrap();
            purge(&bed);
            assert_eq!(bed.verify().ghosts, 0);
            for way in WAYS {
                let found = bed.run(|txn| scan_by(way, &bed.tree, txn, Unbounded, Unbounded));
                assert_eq!(found, model, "seed {seed}");
            }
        }
        assert!(bed.trees.stats().merges > 5, "{:?}", bed.trees.stats());
        let (bed, _) = bed.crash();
        assert_eq!(bed.contents(), model, "seed {seed}");
        bed.verify();
    }
}

/// Each record of a history that fills, purges, merges and collapses is the last one once.
#[test]
fn a_crash_behind_any_record_leaves_a_whole_tree() {
    let bed = Bed::new(256);
    let rows = 150;
    fill(&bed, 0..rows);
    let filled = bed.verify();
    assert!(filled.height >= 2);
    let from = bed.log.current();
    empty(&bed, 0..rows);
    purge(&bed);
    assert_eq!(bed.verify().height, 1);
    fill(&bed, 0..rows);
    bed.log.force(bed.log.current()).unwrap();
    assert_eq!(bed.pool.stats().pages_written, 0, "the data file is blank");
    let fs = bed.fs.clone();
    drop(bed);
    let lsns = common::lsns(&fs, 256);
    let first = lsns.partition_point(|lsn| *lsn <= from);
    let (mut open_splits, mut heights, mut freed) = (0, [0; 4], 0);
    for limit in first..=lsns.len() {
        let (bed, _) = restart(&fs, 256, limit);
        let found = bed.verify();
        open_splits += found.open_splits;
        heights[found.height] += 1;
        let before = bed.contents();
        if limit % 2 == 0 {
            let mut txn = bed.begin();
            freed += purge_range(&bed, &mut txn, Vec::new(), &[0xff]);
            txn.rollback().unwrap();
            assert_eq!(bed.verify().ghosts, 0, "{limit} records");
            assert_eq!(bed.contents(), before, "{limit} records");
        }
        // What is half done is finished by later operations, and the tree can be used.
        fill(&bed, 0..rows);
        let found = bed.verify();
        assert_eq!((found.rows, found.open_splits), (rows as u64, 0), "{limit} records");
        assert_eq!(bed.pool.stats().pages_written, 0, "the next prefix starts from a blank file, too");
    }
    assert!(open_splits > 3, "{open_splits} crashes between the two steps of a merge");
    assert!(freed > 100 && heights[1] > 0 && heights[2] > 0, "{freed} pages, {heights:?}");
}

/// Of three neighbours of which no two fit one leaf, two are left; a crash at any record loses nothing.
#[test]
fn three_leaves_become_two() {
    let bed = Bed::new(256);
    let rows = 200;
    fill(&bed, 0..rows);
    let from = bed.log.current();
    let goes = |number: &usize| number % 17 < 8;
    empty(&bed, (0..rows).filter(goes));
    let before = bed.verify().leaves;
    purge(&bed);
    let after = bed.verify();
    assert!(bed.trees.stats().shifts > 0, "{:?}", bed.trees.stats());
    assert!(5 * after.leaves <= 4 * before, "{} of {before} leaves", after.leaves);
    let contents = bed.contents();
    assert_eq!((contents.len(), after.ghosts), ((0..rows).filter(|number| !goes(number)).count(), 0));
    bed.log.force(bed.log.current()).unwrap();
    let fs = bed.fs.clone();
    drop(bed);
    let lsns = common::lsns(&fs, 256);
    let (mut open_splits, last) = (0, lsns.len());
    for limit in lsns.partition_point(|lsn| *lsn <= from)..=last {
        let (bed, _) = restart(&fs, 256, limit);
        open_splits += bed.verify().open_splits;
        let found = bed.contents();
        assert!(contents.iter().all(|(key, value)| found.get(key) == Some(value)), "{limit} records");
        fill(&bed, 0..rows);
        let found = bed.verify();
        assert_eq!((found.rows, found.open_splits), (rows as u64, 0), "{limit} records");
    }
    assert!(open_splits > 3, "{open_splits} crashes between two steps");
}

/// A node with an open split is left alone: its left neighbour does not absorb it, and nothing is damaged.
#[test]
fn an_open_split_is_not_merged_away() {
    let bed = Bed::new(256);
    const KEPT: usize = 4;
    let rows = 150;
    let from = bed.log.current();
    fill(&bed, 0..rows);
    bed.log.force(bed.log.current()).unwrap();
    let fs = bed.fs.clone();
    drop(bed);
    let lsns = common::lsns(&fs, 256);
    let mut seen = 0;
    for limit in lsns.partition_point(|lsn| *lsn <= from)..=lsns.len() {
        let (bed, _) = restart(&fs, 256, limit);
        let found = bed.verify();
        if found.open_splits == 0 || found.rows < 60 {
            continue;
        }
        // The last rows stay, so that no operation passes over the open split.
        let gone = 0..found.rows as usize - KEPT;
        empty(&bed, gone.clone());
        assert_eq!(bed.verify().open_splits, 1, "{limit} records");
        seen += 1;
        let mut txn = bed.begin();
        for number in gone.clone().chain(gone) {
            if bed.tree.purge_leaf(&mut txn, &key(number), true).unwrap().is_thin {
                bed.tree.merge_leaf(&mut txn, &key(number)).unwrap();
            }
        }
        txn.rollback().unwrap();
        let found = bed.verify();
        assert_eq!((found.open_splits, found.rows as usize), (1, KEPT), "{limit} records");
        fill(&bed, 0..rows);
        let found = bed.verify();
        assert_eq!((found.open_splits, found.rows), (0, rows as u64), "{limit} records");
    }
    assert!(seen > 0, "an open split was in a neighbour's way");
}

/// A large tree whose last split is open, and the key at which the new node begins or a larger one.
fn with_open_split(frames: usize) -> (Bed, Vec<u8>) {
    let bed = Bed::new(frames);
    let rows = 800;
    for number in 0..rows {
        bed.run(|txn| bed.tree.put(txn, &key(number), &[7; 2000]));
    }
    bed.log.force(bed.log.current()).unwrap();
    let fs = bed.fs.clone();
    drop(bed);
    let limits = (0..common::lsns(&fs, frames).len()).rev();
    let mut prefixes = limits.map(|limit| restart(&fs, frames, limit).0);
    let bed = prefixes.find(|bed| bed.tree.verify().unwrap().open_splits == 1).unwrap();
    let last = bed.tree.verify().unwrap().rows as usize - 1;
    (bed, key(last))
}

/// Empties the tree down to its root, and truncates the file. Returns by how many pages it is shorter.
fn empty_and_cut(bed: &Bed) -> u64 {
    empty(bed, 0..bed.verify().rows as usize);
    purge(bed);
    assert_eq!(bed.verify().pages.len(), 1);
    let cut =
        bed.space.start_truncation(&mut bed.log.session().unwrap(), foreshore_space::Spare::Growth).unwrap().unwrap();
    bed.pool.flush_all().unwrap();
    cut.finish().unwrap()
}

/// The left node of the open split.
fn left_of_split(bed: &Bed) -> PageId {
    let is_left = |pid: &PageId| page_flags(&bed.pool.shared(*pid).unwrap()) & INCOMPLETE != 0;
    bed.verify().pages.into_iter().find(is_left).unwrap()
}

/// Takes other pages into memory until `pid` is there no more. Inner nodes stay, whose reads would bring it with them.
fn evict(bed: &Bed, pid: PageId) {
    bed.pool.flush_all().unwrap();
    let mut pins: Vec<_> = bed.verify().pages.into_iter().map(|pid| bed.pool.pin(pid).unwrap()).collect();
    pins.retain(|node| page_level(&node.shared()) > 0 && node.pid() != pid);
    let is_there = || bed.pool.try_shared(pid, AccessPattern::Scan).unwrap().is_some();
    for number in (0..).take_while(|_| is_there()) {
        pins.push(bed.pool.pin_unread(PageId(100_000 + number)).unwrap());
    }
}

/// The left node of an open split is looked for without a latch once it is found to be on disk. If it is merged away
/// and truncated by then, that is no damaged page.
#[test]
fn a_split_whose_left_node_was_cut_off_meanwhile_is_none() {
    let (bed, last) = with_open_split(1024);
    let left = left_of_split(&bed);
    let (bed, gone) = (Rc::new(bed), Rc::new(Cell::new(0)));
    let mut txn = bed.begin();
    pause::set("btree: a split is to be linked", {
        let (bed, gone) = (bed.clone(), gone.clone());
        move || {
            evict(&bed, left);
            let (bed, gone) = (bed.clone(), gone.clone());
            pause::set("btree: the left node of a split is to be pinned", move || {
                gone.set(gone.get() + empty_and_cut(&bed));
                evict(&bed, left);
            });
        }
    });
    let found = bed.tree.purge_leaf(&mut txn, &last, true);
    pause::set("nowhere", || ());
    assert_eq!(found.unwrap().page, bed.tree.root());
    assert!(gone.get() > 64, "{} pages were cut off", gone.get());
    assert!(bed.pool.shared(left).is_err(), "beyond the end of the file");
    txn.rollback().unwrap();
    fill(&bed, 0..100);
    assert_eq!(bed.verify().rows, 100);
}

/// A map that has a page of the tree as free is damaged: the page stays, and the log continues.
#[test]
fn a_map_that_contradicts_the_tree_stops_no_log() {
    let bed = Bed::new(256);
    fill(&bed, 0..200);
    empty(&bed, 0..200);
    let pages = bed.verify().pages;
    for page in pages.into_iter().filter(|&page| page != bed.tree.root()) {
        let mut map = bed.pool.exclusive(foreshore_space::map_of(page)).unwrap();
        foreshore_space::mark_free(&mut map, page).unwrap();
    }
    let mut txn = bed.begin();
    assert!(bed.tree.purge_leaf(&mut txn, &key(0), true).unwrap().is_thin);
    let error = bed.tree.merge_leaf(&mut txn, &key(0)).unwrap_err();
    assert!(matches!(error, foreshore_base::Error::Corrupted { .. }), "{error:?}");
    txn.rollback().unwrap();
    assert!(bed.log.poisoned().is_none());
    assert_eq!(bed.tree.verify().unwrap().open_splits, 0);
}

/// Linking takes log space, for which the transaction has no time left; reading takes none.
#[test]
fn a_locking_read_past_its_time_for_log_space_passes_by_an_open_split() {
    let (bed, last) = with_open_split(1024);
    // The session of the next transaction owes for a record.
    bed.run(|txn| bed.tree.put(txn, &key(0), b"owed for"));
    bed.log.force(bed.log.current()).unwrap();
    bed.log.limit_backlog(Some(LogLimits { soft: 0, hard: 1 }));
    let hurried = TxnOptions { deadline: Some(Duration::from_millis(20)), ..TxnOptions::default() };
    let (mut txn, mut value) = (bed.txns.begin(hurried).unwrap(), Vec::new());
    assert!(bed.tree.get_newest(&mut txn, &last, &mut value).unwrap());
    txn.rollback().unwrap();
    assert_eq!(bed.verify().open_splits, 1, "it is not linked");
    bed.log.limit_backlog(None);
    let mut txn = bed.begin();
    assert!(bed.tree.get_newest(&mut txn, &last, &mut value).unwrap());
    txn.rollback().unwrap();
    assert_eq!(bed.verify().open_splits, 0);
}
