//! Pages of somebody else's making, with sound checksums: refused or survived, never a panic.

use crate::common::{self, Bed, Rng, key, value};
use foreshore_base::codec::u16_at;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_btree::format::{HAS_HIGH, INCOMPLETE};
use foreshore_buffer::PageMut;
use foreshore_buffer::format::page_level;
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
            assert!(known, "seed {seed}: {error}");
            refused += 1;
        }
    }
    assert!(refused > 100, "only {refused} refusals");
}

/// The header of a row is the word of a lock. One that names an xid of the future would be waited for without an end.
#[test]
fn a_row_held_by_nobody_who_ever_began_is_refused() {
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
    let first = bed.tree.beyond_damage(b"").unwrap().expect("a first separator");
    let outcome = bed.tree.beyond_damage(&first);
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

fn root_of(bed: &Bed) -> PageId {
    let is_root = |pid: &PageId| page_level(&bed.pool.shared(*pid).unwrap()) == 1;
    bed.tree.verify().unwrap().pages.into_iter().find(is_root).unwrap()
}
