//! Pages with right checksums that no engine wrote: refused or survived, never a panic.

use crate::common::{self, Bed, Rng, key, value};
use foreshore_base::codec::{u16_at, u32_at};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Csn, Error, PageId, Result};
use foreshore_btree::Tree;
use foreshore_btree::format::{HAS_HIGH, INCOMPLETE};
use foreshore_buffer::PageMut;
use foreshore_buffer::format::page_level;
use foreshore_lock::RowLock;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound;

/// Every operation once. Only the error matters.
fn use_it(bed: &Bed, rng: &mut Rng) -> Result<()> {
    let mut txn = bed.begin();
    let mut out = Vec::new();
    for _ in 0..6 {
        let key = key(rng.below(300));
        bed.tree.get(&mut txn, &key, &mut out)?;
        bed.tree.get_for_update(&mut txn, &key, &mut out)?;
        bed.tree.put(&mut txn, &key, &value(rng))?;
        bed.tree.remove(&mut txn, &key)?;
        bed.tree.put(&mut txn, &key, &value(rng))?;
    }
    let mut cursor = bed.tree.range(&mut txn, Bound::Unbounded, Bound::Unbounded)?;
    while cursor.next(&mut txn)?.is_some() {}
    let mut cursor = bed.tree.range(&mut txn, Bound::Unbounded, Bound::Unbounded)?;
    while cursor.next_back(&mut txn)?.is_some() {}
    txn.rollback().map(drop)
}

#[test]
fn hostile_pages_are_refused_without_a_panic() {
    let mut refused = 0;
    for seed in 0..150 {
        let mut rng = Rng(seed);
        let bed = Bed::new(256);
        bed.run(|txn| (0..120).try_for_each(|n| bed.tree.put(txn, &key(n), &value(&mut rng)).map(drop)));
        let pages: Vec<PageId> = {
            let mut pages: Vec<_> = bed.tree.verify().unwrap().pages.into_iter().collect();
            pages.sort();
            pages
        };
        for _ in 0..1 + rng.below(3) {
            let mut page = bed.pool.exclusive(pages[rng.below(pages.len())]).unwrap();
            page.mark_dirty();
            for _ in 0..1 + rng.below(12) {
                // The id and the LSN stay: the pool checks them, and they are not the tree's to doubt.
                let at = match rng.below(3) {
                    0 => 4 + rng.below(4),
                    1 => 24 + rng.below(120),
                    _ => 24 + rng.below(PAGE_SIZE - 24),
                };
                page.write(at, &[rng.next() as u8]);
            }
        }
        let verdict = bed.tree.verify();
        let outcome = use_it(&bed, &mut rng);
        for error in [verdict.err(), outcome.err()].into_iter().flatten() {
            let known = matches!(
                error,
                Error::Corrupted { .. } | Error::Poisoned { .. } | Error::LockTimeout { .. } | Error::Io { .. }
            );
            assert!(known, "seed {seed}: {error:?}");
            refused += 1;
        }
    }
    assert!(refused > 100, "only {refused} refusals");
}

/// The header of a row is the word of a lock. One that names an xid of the future would be waited for without an end.
#[test]
fn a_row_held_by_a_transaction_that_never_began_is_refused() {
    let bed = Bed::new(64);
    bed.run(|txn| bed.tree.put(txn, b"row", b"value"));
    {
        let mut root = bed.pool.exclusive(bed.tree.root()).unwrap();
        let at = root.windows(8).position(|bytes| bytes == b"rowvalue").unwrap() - 16;
        root.mark_dirty();
        root.write(at, &(1_u64 << 40 << 16).to_le_bytes());
    }
    let mut out = Vec::new();
    let mut txn = bed.begin();
    let outcomes = [
        bed.tree.get(&mut txn, b"row", &mut out).map(drop),
        bed.tree.put(&mut txn, b"row", b"other").map(drop),
        common::scan(&bed.tree, &mut txn, Bound::Unbounded, Bound::Unbounded).map(drop),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::Corrupted { .. })), "{outcome:?}");
    }
}

/// Finishing such a split changes nothing, however often it is tried.
#[test]
fn a_split_that_cannot_be_finished_is_refused() {
    let bed = Bed::new(256);
    bed.run(|txn| (0..120).try_for_each(|n| bed.tree.put(txn, &key(n), &[n as u8; 100]).map(drop)));
    let leaf_with_low_fence = |pid: &PageId| {
        let page = bed.pool.shared(*pid).unwrap();
        page_level(&page) == 0 && u16_at(&page, 58) > 0
    };
    let pid = bed.tree.verify().unwrap().pages.into_iter().find(leaf_with_low_fence).unwrap();
    let key = {
        let mut page = bed.pool.exclusive(pid).unwrap();
        let (at, len) = (usize::from(u16_at(&page, 64)) + 16, usize::from(u16_at(&page, 66)));
        page.mark_dirty();
        page.set_page_flags(INCOMPLETE | HAS_HIGH);
        // The high fence becomes the empty key, which leads to the first leaf.
        page.write(62, &0_u16.to_le_bytes());
        page[at..at + len].to_vec()
    };
    let mut txn = bed.begin();
    let outcome = bed.tree.get(&mut txn, &key, &mut Vec::new());
    assert!(matches!(outcome, Err(Error::Corrupted { .. })), "{outcome:?}");
}

/// A scan that passes over damage ends: it goes on at ever larger keys, or is refused.
#[test]
fn a_separator_whose_head_lies_does_not_lead_in_a_circle() {
    let bed = Bed::new(256);
    bed.run(|txn| (0..240).try_for_each(|n| bed.tree.put(txn, &key(n), &[n as u8; 100]).map(drop)));
    let root = root_of(&bed);
    {
        let mut page = bed.pool.exclusive(root).unwrap();
        page.mark_dirty();
        // Four bytes into the first slot: all keys are below it, says the head of the first separator.
        page.write(64 + 4, &u32::MAX.to_le_bytes());
    }
    let first = bed.tree.separator_after_damage(b"").unwrap().expect("a first separator");
    let outcome = bed.tree.separator_after_damage(&first);
    assert!(matches!(outcome, Err(Error::Corrupted { .. })), "{outcome:?} behind {first:?}");
}

/// A writer latches the child while it reads the parent: the same page twice would be waited for without end.
#[test]
fn a_node_that_leads_to_itself_is_refused() {
    let bed = Bed::new(256);
    bed.run(|txn| (0..240).try_for_each(|n| bed.tree.put(txn, &key(n), &[n as u8; 100]).map(drop)));
    let root = root_of(&bed);
    {
        let mut page = bed.pool.exclusive(root).unwrap();
        page.mark_dirty();
        page.write(48, &root.0.to_le_bytes());
    }
    let mut txn = bed.begin();
    let outcome = bed.tree.put(&mut txn, b"", b"");
    assert!(matches!(outcome, Err(Error::Corrupted { .. })), "{outcome:?}");
}

/// A scan for update meets rows by their places and locks them by their keys. Without the check it does not return.
#[test]
fn a_row_that_its_key_does_not_lead_to_is_refused_to_a_scan_for_update() {
    let bed = Bed::new(64);
    bed.run(|txn| [b"a", b"b", b"c"].into_iter().try_for_each(|key| bed.tree.put(txn, key, b"value").map(drop)));
    {
        let mut page = bed.pool.exclusive(bed.tree.root()).unwrap();
        page.mark_dirty();
        // Four bytes into the second slot: the head of its key.
        page.write(64 + 8 + 4, &u32::MAX.to_le_bytes());
    }
    for lock in [RowLock::update(), RowLock::update().skip_locked()] {
        let mut txn = bed.begin();
        let mut cursor = bed.tree.range_locked(&mut txn, Bound::Unbounded, Bound::Unbounded, lock).unwrap();
        assert_eq!(cursor.next(&mut txn).unwrap().map(|(key, _)| key), Some(&b"a"[..]));
        let outcome = cursor.next(&mut txn).map(drop);
        assert!(matches!(outcome, Err(Error::Corrupted { .. })), "{lock:?}: {outcome:?}");
    }
}

/// A scan goes on behind the last key that it has met.
#[test]
fn a_scan_of_a_leaf_that_is_out_of_order_ends() {
    let bed = Bed::new(64);
    bed.run(|txn| (0..60_u8).try_for_each(|n| bed.tree.put(txn, &[n], b"value").map(drop)));
    for slot in 0..60 {
        {
            let mut page = bed.pool.exclusive(bed.tree.root()).unwrap();
            page.mark_dirty();
            // The head of a key, and back again.
            let lies = u32_at(&page, 64 + 8 * slot + 4) ^ u32::MAX;
            page.write(64 + 8 * slot + 4, &lies.to_le_bytes());
        }
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            for is_back in [false, true] {
                let mut txn = bed.txns.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
                let mut cursor = bed.tree.range(&mut txn, Bound::Unbounded, Bound::Unbounded).unwrap();
                let mut next = || {
                    if is_back { cursor.next_back(&mut txn) } else { cursor.next(&mut txn) }.map(|row| row.is_some())
                };
                let rows = (0..200).map_while(|_| next().unwrap_or(false).then_some(())).count();
                assert!(rows <= 60, "{isolation:?}, slot {slot}, back {is_back}: {rows} rows");
            }
        }
        let mut page = bed.pool.exclusive(bed.tree.root()).unwrap();
        let head = u32_at(&page, 64 + 8 * slot + 4) ^ u32::MAX;
        page.write(64 + 8 * slot + 4, &head.to_le_bytes());
    }
}

/// The leaf of the last write seems to cover the keys of all leaves behind it. Room is made in the leaf to which the
/// descent leads, so the write goes there, too. Without that it does not return.
#[test]
fn a_leaf_whose_high_fence_lies_is_written_until_it_is_full() {
    let key = |number: u32| number.to_be_bytes();
    let bed = Bed::new(256);
    bed.run(|txn| (0..400).try_for_each(|n| bed.tree.put(txn, &key(2 * n), &[1; 100]).map(drop)));
    let rows = |pid: PageId| u16_at(&bed.pool.shared(pid).unwrap(), 32);
    let first = first_leaf_of(&bed);
    {
        let mut page = bed.pool.exclusive(first).unwrap();
        page.mark_dirty();
        let fence = usize::from(u16_at(&page, 60));
        page.write(fence, &[u8::MAX]);
    }
    let before = rows(first);
    let mut txn = bed.begin();
    // Two rows of the first leaf, and new rows of the last ones.
    for number in [0, 2].into_iter().chain((501..701).step_by(2)) {
        bed.tree.put(&mut txn, &key(number), &[2; 100]).unwrap();
    }
    let added = rows(first) - before;
    assert!((1..100).contains(&added), "the first leaf took {added} of the new rows");
}

/// The search of a leaf out of order may miss a row that it has just inserted.
#[test]
fn a_row_that_was_inserted_out_of_order_is_written_again() {
    let bed = Bed::new(64);
    bed.run(|txn| [10, 20, 30, 40, 50].into_iter().try_for_each(|n: u8| bed.tree.put(txn, &[n], b"value").map(drop)));
    {
        let mut page = bed.pool.exclusive(bed.tree.root()).unwrap();
        page.mark_dirty();
        page.write(64 + 8 + 4, &u32::MAX.to_le_bytes());
    }
    let mut txn = bed.begin();
    assert_eq!(bed.tree.put(&mut txn, &[35], b"first").unwrap(), None);
    assert_eq!(bed.tree.put(&mut txn, &[35], b"second").unwrap().as_deref(), Some(&b"first"[..]));
}

/// Redo and rollbacks search the rows, and would not find these.
#[test]
fn rows_around_a_deleted_one_that_is_out_of_order_are_not_removed_together() {
    for damaged in [false, true] {
        let bed = Bed::new(64);
        let rows = [10_u8, 20, 30, 40, 50];
        bed.run(|txn| rows.iter().try_for_each(|&n| bed.tree.put(txn, &[n], b"value").map(drop)));
        bed.run(|txn| bed.tree.remove(txn, &[30]));
        if damaged {
            let mut page = bed.pool.exclusive(bed.tree.root()).unwrap();
            page.mark_dirty();
            let at = page.windows(6).position(|bytes| bytes == b"\x1evalue").unwrap();
            page.write(at, &[45]);
            page.write(64 + 2 * 8 + 4, &(45_u32 << 24).to_le_bytes());
        }
        let mut txn = bed.begin();
        let before = bed.log.current();
        let removed = bed.tree.remove_first(&mut txn, (Bound::Unbounded, Bound::Unbounded)).unwrap();
        assert_eq!(removed.map(|(count, _)| count), (!damaged).then_some(4));
        assert_eq!(bed.log.current() == before, damaged);
        txn.rollback().unwrap();
    }
}

/// A damaged row of the catalogue may name one. A scan would come to the high fence of such a root again and again.
#[test]
fn a_root_that_is_a_node_below_the_root_is_refused() {
    let bed = Bed::new(256);
    bed.run(|txn| (0..240).try_for_each(|n| bed.tree.put(txn, &key(n), &[n as u8; 100]).map(drop)));
    let mut pages = bed.tree.verify().unwrap().pages;
    pages.remove(&bed.tree.root());
    assert!(pages.len() > 2, "the first leaf, the last one and others");
    let uses: [fn(&Tree, &mut Txn) -> Result<()>; 5] = [
        |tree, txn| tree.put(txn, &key(0), b"value").map(drop),
        |tree, txn| tree.get(txn, &key(239), &mut Vec::new()).map(drop),
        |tree, _| tree.verify().map(drop),
        |tree, txn| tree.free_some(txn, Csn::ZERO, 1).map(drop),
        // The last one: without the check it does not return.
        |tree, txn| common::scan(tree, txn, Bound::Unbounded, Bound::Unbounded).map(drop),
    ];
    for page in pages {
        let tree = bed.trees.tree(common::TABLE, page);
        for (number, use_it) in uses.iter().enumerate() {
            let outcome = use_it(&tree, &mut bed.begin());
            let is_named = outcome.as_ref().is_err_and(|error| error.damaged_page() == Some(page));
            assert!(is_named, "use {number} of page {page}: {outcome:?}");
        }
    }
}

fn first_leaf_of(bed: &Bed) -> PageId {
    let is_first = |pid: &PageId| {
        let page = bed.pool.shared(*pid).unwrap();
        page_level(&page) == 0 && u16_at(&page, 58) == 0
    };
    bed.tree.verify().unwrap().pages.into_iter().find(is_first).unwrap()
}

fn root_of(bed: &Bed) -> PageId {
    let is_root = |pid: &PageId| page_level(&bed.pool.shared(*pid).unwrap()) == 1;
    bed.tree.verify().unwrap().pages.into_iter().find(is_root).unwrap()
}
