//! The queue of leaves with deleted rows or few rows, for the background purge.
//!
//! A slot holds one leaf, as table and page, so a leaf that many removes meet is queued once. A bucket of slots is one
//! cache line. An operation that meets a queued leaf reads that line and writes nothing. If the bucket of a leaf is
//! full, the leaf's low key widens a range of its table. The purge visits all leaves of the range. So memory is bounded
//! and no leaf is forgotten.
//!
//! **Signal.** The purge is awake or asleep ([`LeafQueue::is_awake`]):
//!
//! 1. The thread that adds a leaf stores it, fences, and signals if the purge is asleep.
//! 2. The purge marks itself as asleep, fences, and reads the slots once more.
//!
//! One of the two fences is first. So either the purge sees the leaf, or the thread sees the purge asleep.

use foreshore_base::{PageId, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use foreshore_sync::{CachePadded, LockRank, Mutex, Signal};
use std::collections::BTreeMap;

/// Slots of a bucket: one cache line.
const BUCKET: usize = if MODEL { 2 } else { 8 };
/// Buckets: 32 KiB of slots.
const BUCKETS: usize = if MODEL { 2 } else { 512 };

/// A leaf that the purge should visit. It may have left its table by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedLeaf {
    /// The table to which the leaf belonged.
    pub table: TableId,
    /// Its page.
    pub page: PageId,
}

/// A range of keys, bounds included, whose leaves were not queued one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRange {
    /// A key of the first leaf.
    pub from: Vec<u8>,
    /// A key of the last leaf.
    pub to: Vec<u8>,
}

/// The queue of leaves, with the ranges for those that found no slot.
#[derive(Debug)]
pub(crate) struct LeafQueue {
    /// The slots. A used slot has the table in its upper half and the page, which is never zero, in its lower half. A
    /// free slot is 0.
    buckets: Box<[CachePadded<[AtomicU64; BUCKET]>]>,
    ranges: Mutex<BTreeMap<TableId, QueuedRange>>,
    /// The bucket that is read next.
    next: AtomicU64,
    is_awake: AtomicBool,
    signal: Signal,
}

impl LeafQueue {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)))).collect(),
            ranges: Mutex::new(LockRank::Leaf, BTreeMap::new()),
            next: AtomicU64::new(0),
            is_awake: AtomicBool::new(false),
            signal: Signal::new(),
        }
    }

    pub(crate) fn signal(&self) -> Signal {
        self.signal.clone()
    }

    /// Adds a leaf unless it is queued. `low` returns the key at which it begins.
    #[inline]
    pub(crate) fn add(&self, table: TableId, page: PageId, low: impl FnOnce() -> Vec<u8>) {
        debug_assert!(0 < page.0 && page.0 >> 32 == 0, "page {page} of {table:?} does not fit a slot of the queue");
        let word = u64::from(table.0) << 32 | page.0;
        let bucket = &self.buckets[(page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BUCKETS];
        // ORDERING: hint. A leaf that is about to be taken out is added again by the operation that meets it next.
        if !bucket.iter().any(|slot| slot.load(Ordering::Relaxed) == word) {
            self.add_new(bucket, word, low);
        }
    }

    #[cold]
    fn add_new(&self, bucket: &[AtomicU64; BUCKET], word: u64, low: impl FnOnce() -> Vec<u8>) {
        let is_in = bucket.iter().any(|slot| {
            // ORDERING: Relaxed, the fence below orders it before the look at `is_awake`.
            slot.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        if !is_in {
            let (table, low) = (TableId((word >> 32) as u32), low());
            let mut ranges = self.ranges.lock();
            let range = ranges.entry(table).or_insert_with(|| QueuedRange { from: low.clone(), to: low.clone() });
            if low < range.from {
                range.from = low;
            } else if low > range.to {
                range.to = low;
            }
            debug_assert!(range.from <= range.to, "the queued range of {table:?} is empty: {range:?}");
        }
        if !mutant("queue: no fence before the look at the purge") {
            // ORDERING: store, fence, look: pairs with the fence of `sleep`.
            fence(Ordering::SeqCst);
        }
        // ORDERING: Relaxed, ordered by the fence.
        if !self.is_awake.load(Ordering::Relaxed) {
            self.signal.notify();
        }
    }

    /// Marks the purge as awake, so that it gets no signal.
    pub(crate) fn wake(&self) {
        // ORDERING: hint. A late store costs only an unneeded signal.
        self.is_awake.store(true, Ordering::Relaxed);
    }

    /// Marks the purge as asleep, unless a leaf is queued. Returns whether it is asleep.
    pub(crate) fn sleep(&self) -> bool {
        // ORDERING: Relaxed, the fence orders it.
        self.is_awake.store(false, Ordering::Relaxed);
        if !mutant("queue: no fence before the last look") {
            // ORDERING: store, fence, look: pairs with the fence of `add_new`.
            fence(Ordering::SeqCst);
        }
        let is_empty = self.is_empty();
        if !is_empty {
            self.wake();
        }
        is_empty
    }

    /// Returns whether no leaf is queued.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed, ordered by the fence of `sleep`.
        let mut slots = self.buckets.iter().flat_map(|bucket| bucket.iter());
        slots.all(|slot| slot.load(Ordering::Relaxed) == 0) && self.ranges.lock().is_empty()
    }

    /// Takes out about `most` leaves. The slots of one bucket are taken together. The next call continues after them,
    /// so that no leaf starves behind leaves that are added repeatedly.
    pub(crate) fn take(&self, most: usize, mut out: impl FnMut(QueuedLeaf)) {
        // ORDERING: hint, one thread takes leaves out.
        let first = self.next.load(Ordering::Relaxed);
        let (mut at, mut taken) = (first, 0);
        while at < first + BUCKETS as u64 && taken < most {
            for slot in self.buckets[at as usize % BUCKETS].iter() {
                // ORDERING: hint, as most slots are free.
                if slot.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                // ORDERING: Relaxed, the page is read under its latch.
                let word = slot.swap(0, Ordering::Relaxed);
                if word != 0 {
                    taken += 1;
                    out(QueuedLeaf { table: TableId((word >> 32) as u32), page: PageId(word & 0xffff_ffff) });
                }
            }
            at += 1;
        }
        // ORDERING: hint, as above.
        self.next.store(at % BUCKETS as u64, Ordering::Relaxed);
    }

    /// Takes out all ranges.
    pub(crate) fn take_ranges(&self) -> BTreeMap<TableId, QueuedRange> {
        std::mem::take(&mut *self.ranges.lock())
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    fn taken(queue: &LeafQueue) -> Vec<QueuedLeaf> {
        let mut leaves = Vec::new();
        queue.take(usize::MAX, |leaf| leaves.push(leaf));
        leaves.sort_by_key(|leaf| leaf.page);
        leaves
    }

    #[test]
    fn a_leaf_is_in_the_queue_once_and_leaves_it_once() {
        let queue = LeafQueue::new();
        for _ in 0..3 {
            queue.add(TableId(7), PageId(9), || unreachable!("its bucket is not full"));
        }
        assert!(!queue.sleep());
        assert_eq!(taken(&queue), [QueuedLeaf { table: TableId(7), page: PageId(9) }]);
        assert!(taken(&queue).is_empty() && queue.sleep());
    }

    #[test]
    fn what_the_slots_have_no_place_for_is_in_a_range_of_its_table() {
        let queue = LeafQueue::new();
        let many = 2 * (BUCKET * BUCKETS) as u64;
        for page in 1..=many {
            queue.add(TableId(7), PageId(page), || page.to_be_bytes().to_vec());
        }
        let leaves = taken(&queue);
        assert!(leaves.len() <= BUCKET * BUCKETS && !queue.sleep());
        let ranges = queue.take_ranges();
        let range = &ranges[&TableId(7)];
        for page in 1..=many {
            let key = page.to_be_bytes().to_vec();
            let is_queued = leaves.binary_search_by_key(&PageId(page), |leaf| leaf.page).is_ok();
            assert!(is_queued || (range.from <= key && key <= range.to), "page {page} is forgotten");
        }
        assert!(queue.sleep());
    }
}
