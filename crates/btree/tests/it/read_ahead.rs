//! Promise: a long scan finds its leaves read, each once, and a short one has nothing read that it does not want.

use crate::common::Bed;
use foreshore_base::Result;
use foreshore_btree::Cursor;
use foreshore_classics::replacement::ReplacementKind;
use foreshore_txn::Txn;
use std::ops::Bound;

const FRAMES: usize = 256;
const ROWS: u64 = 6000;
const VALUE: [u8; 900] = [7; 900];

/// A tree several times as large as the pool, of which nothing that a scan wants is in memory.
fn large() -> Bed {
    fill(Bed::new(FRAMES))
}

fn fill(bed: Bed) -> Bed {
    for from in (0..ROWS).step_by(100) {
        bed.run(|txn| (from..from + 100).try_for_each(|n| bed.tree.put(txn, &n.to_be_bytes(), &VALUE).map(drop)));
    }
    bed.pool.flush_all().unwrap();
    bed
}

/// Scans with a reader at work; the first and the last number, and how many.
fn scan(bed: &Bed, lower: u64, upper: u64) -> (u64, u64, u64) {
    bed.run(|txn| {
        let (lower, upper) = (lower.to_be_bytes(), upper.to_be_bytes());
        let mut cursor: Cursor = bed.tree.range(txn, Bound::Included(&lower), Bound::Excluded(&upper))?;
        let mut seen = (u64::MAX, 0, 0);
        while let Some((key, value)) = cursor.next(txn)? {
            let number = u64::from_be_bytes(key.try_into().unwrap());
            assert!(value == VALUE && (seen.2 == 0 || number == seen.1 + 1), "row {number} after {}", seen.1);
            seen = (seen.0.min(number), number, seen.2 + 1);
            bed.pool.reclaim_step()?;
        }
        Ok(seen)
    })
}

/// Asserts that a scan of the whole tree reads each leaf once, and nearly all of them before it comes there.
fn reads_ahead(scan: impl FnOnce(&Bed)) {
    let bed = large();
    let before = bed.pool.stats();
    scan(&bed);
    let after = bed.pool.stats();
    let (read, ahead) = (after.pages_read - before.pages_read, after.pages_ahead - before.pages_ahead);
    let leaves = ROWS / 8;
    assert!(read >= leaves - FRAMES as u64 && read < leaves * 3 / 2, "{read} reads of about {leaves} leaves");
    assert!(ahead > read * 9 / 10, "{ahead} of {read} pages read ahead");
}

#[test]
fn leaves_are_read_before_a_scan_comes_to_them_and_once() {
    reads_ahead(|bed| assert_eq!(scan(bed, 0, ROWS), (0, ROWS - 1, ROWS)));
}

#[test]
fn leaves_are_read_before_a_scan_from_the_back_comes_to_them_and_once() {
    reads_ahead(|bed| {
        bed.run(|txn| {
            let mut cursor: Cursor = bed.tree.range(txn, Bound::Unbounded, Bound::Unbounded)?;
            for number in (0..ROWS).rev() {
                let (key, value) = cursor.next_back(txn)?.expect("a row");
                assert!(key == number.to_be_bytes() && value == VALUE, "row {number}");
                bed.pool.reclaim_step()?;
            }
            assert!(cursor.next_back(txn)?.is_none());
            Ok(())
        });
    });
}

/// Asserts that what reads the whole tree leaves the pages in memory that are used.
fn leaves_what_is_used(read_all: impl Fn(&Bed, &mut Txn) -> Result<()>) {
    // Which any pass of this length pushes out, if the caller does not say that it is one.
    let bed = fill(Bed::with_policy(FRAMES, ReplacementKind::Lru));
    // About half as many leaves as frames.
    let hot = (0..ROWS).step_by(50);
    let misses = || {
        let before = bed.pool.stats().pages_read;
        bed.run(|txn| {
            let mut value = Vec::new();
            for number in hot.clone() {
                assert!(bed.tree.get(txn, &number.to_be_bytes(), &mut value)?, "row {number}");
            }
            Ok(())
        });
        bed.pool.stats().pages_read - before
    };
    misses();
    assert_eq!(misses(), 0, "all fit");
    bed.run(|txn| read_all(&bed, txn));
    let missed = misses();
    assert!(missed <= 12, "{missed} of {} pages are gone", hot.count());
}

#[test]
fn a_long_scan_leaves_the_pages_in_memory_that_are_used() {
    for backward in [false, true] {
        leaves_what_is_used(|bed, txn| {
            let mut cursor: Cursor = bed.tree.range(txn, Bound::Unbounded, Bound::Unbounded)?;
            for _ in 0..ROWS {
                let row = if backward { cursor.next_back(txn)? } else { cursor.next(txn)? };
                assert!(row.is_some());
                bed.pool.reclaim_step()?;
            }
            Ok(())
        });
    }
}

/// As after a restart, when the purge looks at all leaves of a table once.
#[test]
fn a_sweep_of_the_purge_leaves_the_pages_in_memory_that_are_used() {
    leaves_what_is_used(|bed, txn| {
        let (mut next, mut leaves) = (Some(Vec::new()), 0);
        while let Some(key) = next {
            (next, leaves) = (bed.tree.purge_leaf(txn, &key, true)?.next, leaves + 1);
        }
        assert!(leaves > 2 * FRAMES, "{leaves} leaves");
        Ok(())
    });
}

#[test]
fn a_scan_of_one_leaf_asks_for_no_other() {
    let bed = large();
    let before = bed.pool.stats();
    assert_eq!(scan(&bed, 100, 104), (100, 103, 4));
    assert_eq!(bed.pool.stats().pages_ahead, before.pages_ahead);
    // A few leaves, and not the ones behind the bound.
    assert_eq!(scan(&bed, 3000, 3060), (3000, 3059, 60));
    let stats = bed.pool.stats();
    assert!((1..=10).contains(&(stats.pages_ahead - before.pages_ahead)), "{stats:?}");
}
