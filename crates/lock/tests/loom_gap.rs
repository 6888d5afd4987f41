//! Models of a scan against an insert into the gap that it scans: the version of the leaf and the counter of locks. Either the
//! scan finds the leaf changed, or the insert finds the lock.
#![cfg(foreshore_loom)]

use foreshore_base::TableId;
use foreshore_lock::{Gap, LockManager, LockOptions, Owner, Target};
use foreshore_sync::model::{check, mutant, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{HybridLatch, ParkTable};
use std::sync::Arc;

const TABLE: TableId = TableId(1);
/// Ends the gap.
const KEY: &[u8] = b"k";

struct Leaf {
    locks: Arc<LockManager>,
    latch: HybridLatch,
    waiters: ParkTable,
    /// Rows in the gap.
    rows: AtomicU64,
}

impl Leaf {
    /// What it has found and locked; `None` if the leaf has changed.
    fn scan(&self, owner: &mut Owner) -> Option<u64> {
        let version = self.latch.optimistic_version()?;
        let seen = self.rows.load(Ordering::Relaxed);
        let early = mutant("gap: the leaf is validated before the lock is entered") && self.latch.validate(version);
        assert!(self.locks.try_share(owner, Target::gap(TABLE, Some(KEY))).expect("room"));
        (early || self.latch.validate(version)).then_some(seen)
    }

    /// Whether the row is in.
    fn insert(&self, owner: &Owner) -> bool {
        self.latch.lock_exclusive(&self.waiters);
        let is_free = self.locks.gap_before(owner, TABLE, Some(KEY)) == Gap::Free;
        if is_free {
            self.rows.store(1, Ordering::Relaxed);
        }
        self.latch.unlock_exclusive(&self.waiters);
        is_free
    }
}

fn scan_and_insert(has_row: bool) {
    let options = LockOptions { max_owners: 2, share_slots: 1, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut scanner, writer] = ["scanner", "writer"].map(|label| locks.lease(label).expect("a slot"));
    if has_row {
        assert!(locks.try_share(&mut scanner, Target::row(TABLE, KEY)).expect("room"));
    }
    let (latch, waiters) = (HybridLatch::new(), ParkTable::new());
    let leaf = Arc::new(Leaf { locks, latch, waiters, rows: AtomicU64::new(0) });
    let scan = thread::spawn({
        let leaf = leaf.clone();
        // The lock stays until both are through.
        move || (leaf.scan(&mut scanner), scanner)
    });
    let insert = thread::spawn({
        let leaf = leaf.clone();
        move || (leaf.insert(&writer), writer)
    });
    let (seen, scanner) = scan.join().expect("the scan ends");
    let (inserted, writer) = insert.join().expect("the insert ends");
    assert!(!(seen == Some(0) && inserted), "a phantom");
    drop((scanner, writer));
}

#[test]
fn a_scan_finds_the_leaf_changed_or_the_insert_finds_its_lock() {
    check(|| scan_and_insert(false));
}

/// The key is counted already, so nothing is announced: the lock of its shard orders the two.
#[test]
fn a_scan_of_the_gap_before_a_row_that_it_has_is_found_too() {
    check(|| scan_and_insert(true));
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_needs_its_fence() {
    mutated("share count: no fence after announcing", || scan_and_insert(false));
}

#[test]
#[should_panic(expected = "a phantom")]
fn an_insert_needs_its_fence() {
    mutated("share count: no fence before looking", || scan_and_insert(false));
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_validates_after_it_has_entered_its_lock() {
    mutated("gap: the leaf is validated before the lock is entered", || scan_and_insert(false));
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_validates_after_it_has_entered_a_second_part() {
    mutated("gap: the leaf is validated before the lock is entered", || scan_and_insert(true));
}
