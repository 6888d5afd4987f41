//! Models of a scan against an insert into its interval: the version of the leaf and the count of intervals. Either the
//! scan finds the leaf changed, or the insert finds the interval.

use foreshore_base::TableId;
use foreshore_lock::{Interval, LockManager, LockOptions, Owner, Target};
use foreshore_sync::model::{check, mutant, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{HybridLatch, ParkTable};
use std::sync::Arc;

const TABLE: TableId = TableId(1);
const KEY: &[u8] = b"k";
const BESIDE: &[u8] = b"a";

struct Leaf {
    locks: Arc<LockManager>,
    latch: HybridLatch,
    waiters: ParkTable,
    /// Rows in the interval.
    rows: AtomicU64,
}

impl Leaf {
    fn new(locks: Arc<LockManager>) -> Arc<Self> {
        let (latch, waiters) = (HybridLatch::new(), ParkTable::new());
        Arc::new(Self { locks, latch, waiters, rows: AtomicU64::new(0) })
    }

    /// What it has found and locked; `None` if the leaf has changed.
    fn scan(&self, owner: &mut Owner) -> Option<u64> {
        let version = self.latch.optimistic_version()?;
        let seen = self.rows.load(Ordering::Relaxed);
        let early = mutant("range: the leaf is validated before the interval grows") && self.latch.validate(version);
        assert!(self.locks.try_cover(owner, TABLE, &Interval::of_key(KEY)).is_some());
        (early || self.latch.validate(version)).then_some(seen)
    }

    /// Whether the row is in.
    fn insert(&self, owner: &Owner) -> bool {
        self.latch.lock_exclusive(&self.waiters);
        let is_free = !self.locks.shared_by_other(owner, Target::row(TABLE, KEY));
        if is_free {
            self.rows.store(1, Ordering::Relaxed);
        }
        self.latch.unlock_exclusive(&self.waiters);
        is_free
    }
}

fn owners<const N: usize>(labels: [&'static str; N]) -> (Arc<LockManager>, [Owner; N]) {
    let options = LockOptions { max_owners: N, share_slots: 1, memory_units: 4 * N, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let owners = labels.map(|label| locks.lease(label).expect("a slot"));
    (locks, owners)
}

/// With an interval from before the owner is counted already, and the latch of the list orders the two.
fn scan_and_insert(has_interval: bool) {
    let (locks, [mut scanner, writer]) = owners(["scanner", "writer"]);
    if has_interval {
        assert!(locks.try_cover(&mut scanner, TABLE, &Interval::of_key(BESIDE)).is_some());
    }
    scan_against_insert(locks, scanner, writer);
}

/// Another owner has an interval in another stripe. So the writer looks at the counts of the stripes.
fn scan_in_a_stripe_and_insert() {
    let (locks, [scanner, mut other, writer]) = owners(["scanner", "other", "writer"]);
    assert_ne!(scanner.index() % 2, other.index() % 2, "two stripes");
    assert!(locks.try_cover(&mut other, TABLE, &Interval::of_key(BESIDE)).is_some());
    scan_against_insert(locks, scanner, writer);
    drop(other);
}

/// Runs a scan and an insert at once. Only one of them finds nothing of the other.
fn scan_against_insert(locks: Arc<LockManager>, mut scanner: Owner, writer: Owner) {
    let leaf = Leaf::new(locks);
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

/// A reader of the key has its point lock merged into an interval, for want of memory, while a writer looks.
fn merge_and_write() {
    let options = LockOptions { max_owners: 2, share_slots: 1, memory_units: 1, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("a slot"));
    assert!(locks.try_share(&mut reader, Target::row(TABLE, KEY)).is_some());
    let merge = thread::spawn({
        let locks = locks.clone();
        move || {
            assert!(locks.try_share(&mut reader, Target::row(TABLE, BESIDE)).is_some());
            reader
        }
    });
    let write = thread::spawn({
        let locks = locks.clone();
        move || (locks.shared_by_other(&writer, Target::row(TABLE, KEY)), writer)
    });
    let reader = merge.join().expect("the reader ends");
    let (is_shared, writer) = write.join().expect("the writer ends");
    assert!(is_shared, "a lock is missed while it is merged");
    assert_eq!(reader.held_ranges().len(), 1, "merged");
    drop((reader, writer));
}

/// A writer that no longer finds the interval comes after what its owner did before it ended.
fn end_and_insert() {
    let (locks, [scanner, writer]) = owners(["scanner", "writer"]);
    end_against_insert(locks, scanner, writer);
}

/// Another owner has an interval in another stripe. So the writer finds the end in the count of the scan's stripe.
fn end_in_a_stripe_and_insert() {
    let (locks, [scanner, mut other, writer]) = owners(["scanner", "other", "writer"]);
    assert!(locks.try_cover(&mut other, TABLE, &Interval::of_key(BESIDE)).is_some());
    end_against_insert(locks, scanner, writer);
    drop(other);
}

fn end_against_insert(locks: Arc<LockManager>, mut scanner: Owner, writer: Owner) {
    assert!(locks.try_cover(&mut scanner, TABLE, &Interval::of_key(KEY)).is_some());
    let leaf = Leaf::new(locks);
    let end = thread::spawn({
        let leaf = leaf.clone();
        move || {
            leaf.rows.store(7, Ordering::Relaxed);
            leaf.locks.finish(&mut scanner, None);
            scanner
        }
    });
    let insert = thread::spawn({
        let leaf = leaf.clone();
        move || {
            let is_free = !leaf.locks.shared_by_other(&writer, Target::row(TABLE, KEY));
            (is_free.then(|| leaf.rows.load(Ordering::Relaxed)), writer)
        }
    });
    let scanner = end.join().expect("the scanner ends");
    let (seen, writer) = insert.join().expect("the insert ends");
    assert!(seen.is_none_or(|seen| seen == 7), "a writer that came before the end");
    drop((scanner, writer));
}

#[test]
fn a_scan_finds_the_leaf_changed_or_the_insert_finds_its_interval() {
    check(|| scan_and_insert(false));
}

#[test]
fn a_second_interval_of_an_owner_is_found_too() {
    check(|| scan_and_insert(true));
}

#[test]
fn a_scan_and_an_insert_see_each_other_in_one_of_two_stripes() {
    check(scan_in_a_stripe_and_insert);
}

#[test]
fn a_writer_that_finds_no_interval_in_a_stripe_comes_after_its_end() {
    check(end_in_a_stripe_and_insert);
}

#[test]
fn a_point_lock_is_found_while_it_is_merged() {
    check(merge_and_write);
}

#[test]
fn a_writer_that_finds_no_interval_comes_after_its_end() {
    check(end_and_insert);
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_needs_its_fence() {
    mutated("range: no fence after extending", || scan_and_insert(false));
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_needs_its_fence_for_the_count_of_its_stripe() {
    mutated("range: no fence after extending", scan_in_a_stripe_and_insert);
}

#[test]
#[should_panic(expected = "before the end")]
fn an_end_is_published_by_the_count_of_its_stripe() {
    mutated("range: relaxed retirement", end_in_a_stripe_and_insert);
}

#[test]
#[should_panic(expected = "a phantom")]
fn an_insert_needs_its_fence() {
    mutated("share count: no fence before looking", || scan_and_insert(false));
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_validates_after_its_interval_has_grown() {
    mutated("range: the leaf is validated before the interval grows", || scan_and_insert(false));
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_validates_after_it_has_added_a_second_interval() {
    mutated("range: the leaf is validated before the interval grows", || scan_and_insert(true));
}

#[test]
#[should_panic(expected = "a lock is missed")]
fn a_writer_loads_the_count_of_point_locks_first() {
    mutated("range: the count of intervals is loaded first", merge_and_write);
}

#[test]
#[should_panic(expected = "a lock is missed")]
fn point_locks_go_after_the_interval_that_they_are_merged_into_is_counted() {
    mutated("range: point locks go before they are merged", merge_and_write);
}

#[test]
#[should_panic(expected = "before the end")]
fn an_end_is_published_by_the_count() {
    mutated("range: relaxed retirement", end_and_insert);
}
