//! The groups between seal and completion: how many there may be, and how far they are complete without a gap.

use foreshore_base::{GroupNo, Lsn};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};

/// Groups `head .. next` are in flight: sealed, and not all complete from the oldest on. Never more than the width, so
/// that two groups of the window never share a place in a table of that many, and a group that is complete behind one
/// that is not keeps its place.
#[derive(Debug)]
pub(super) struct Window {
    /// Number of the next group. Written by the holder of the lead.
    next: CachePadded<AtomicU64>,
    /// Number of the oldest group that is not complete. Written under the lock of `done`; never above `next`.
    head: CachePadded<AtomicU64>,
    /// The cuts of complete groups from `head` on, by number modulo width.
    done: Mutex<Box<[Option<Lsn>]>>,
    /// Groups being written. For the model of a window that counts these alone.
    #[cfg(foreshore_loom)]
    writing: AtomicU64,
}

impl Window {
    /// A window of `width` groups, at least one, the first of which is `first`.
    pub(super) fn new(width: usize, first: GroupNo) -> Self {
        assert!(width > 0, "a log has at least one group in flight");
        Self {
            next: CachePadded::new(AtomicU64::new(first.0)),
            head: CachePadded::new(AtomicU64::new(first.0)),
            done: Mutex::new(LockRank::Leaf, vec![None; width].into()),
            #[cfg(foreshore_loom)]
            writing: AtomicU64::new(0),
        }
    }

    /// Number of the next group to be sealed.
    pub(super) fn next(&self) -> GroupNo {
        // ORDERING: Acquire, pairs with `seal`: who sees the new number appends behind what the group was cut from.
        GroupNo(self.next.load(Ordering::Acquire))
    }

    /// Number of the oldest group that is not complete: all before it are durable.
    pub(super) fn head(&self) -> GroupNo {
        // ORDERING: Acquire, who sees the number sees the completion of the groups before; pairs with `complete`.
        GroupNo(self.head.load(Ordering::Acquire))
    }

    /// Groups in flight. Exact under the lead but for completions meanwhile; elsewhere a hint.
    pub(super) fn in_flight(&self) -> u64 {
        // ORDERING: Relaxed, the caller's fence or the lead orders it. The head is read second and may have passed the
        // `next` that was read first.
        let next = self.next.load(Ordering::Relaxed);
        next.saturating_sub(self.head.load(Ordering::Relaxed))
    }

    /// Whether no further group may be sealed now. Binding under the lead only.
    pub(super) fn is_full(&self, width: usize) -> bool {
        #[cfg(foreshore_loom)]
        if mutant("window: counts running writes only") {
            // ORDERING: Relaxed, of the mutant.
            return self.writing.load(Ordering::Relaxed) >= width as u64;
        }
        self.in_flight() >= width as u64
    }

    /// Takes `number`, the next group, as sealed. Under the lead, after the leader has read the buffer's tails.
    pub(super) fn seal(&self, number: GroupNo) {
        // ORDERING: Relaxed, written under the lead alone.
        let next = self.next.load(Ordering::Relaxed);
        assert_eq!(number.0, next, "the group that is sealed, and the next one");
        #[cfg(foreshore_loom)]
        // ORDERING: Relaxed, of the mutant.
        self.writing.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Release, pairs with `next`.
        self.next.store(number.next().0, Ordering::Release);
    }

    /// Takes `number` as complete and raises `durable` to the cut of the last group behind which nothing is missing.
    pub(super) fn complete(&self, number: GroupNo, cut: Lsn, durable: &AtomicU64) {
        #[cfg(foreshore_loom)]
        // ORDERING: Relaxed, of the mutant.
        self.writing.fetch_sub(1, Ordering::Relaxed);
        let mut done = self.done.lock();
        let width = done.len() as u64;
        // ORDERING: Relaxed, written under the lock that is held.
        let first = self.head.load(Ordering::Relaxed);
        assert!((first..first + width).contains(&number.0), "group {number} ends, of {width} in flight from {first}");
        let before = done[(number.0 % width) as usize].replace(cut);
        assert_eq!(before, None, "two groups share a place in the window");
        if mutant("window: completes out of order") {
            // ORDERING: Release, as below.
            durable.fetch_max(cut.0, Ordering::Release);
        }
        // ORDERING: Relaxed, written under the lock alone.
        let mut head = self.head.load(Ordering::Relaxed);
        let mut last = Lsn::ZERO;
        while let Some(cut) = done[(head % width) as usize].take() {
            assert!(last <= cut, "group {head} is cut at {cut}, below {last} of the one before");
            last = cut;
            // ORDERING: Release, the group is durable before its stamp shows; pairs with `Pipeline::durable`. Raised only:
            // a group in the middle of a cut repeats the stamp of the cut before.
            durable.fetch_max(cut.0, Ordering::Release);
            head += 1;
        }
        assert!(head - first <= width, "{} groups of {width} in flight become durable at once", head - first);
        // ORDERING: Release, pairs with `head`.
        self.head.store(head, Ordering::Release);
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn durable_waits_for_the_oldest_group() {
        let (window, durable) = (Window::new(3, GroupNo(7)), AtomicU64::new(10));
        (7..10).for_each(|number| window.seal(GroupNo(number)));
        assert!(window.is_full(3) && window.next() == GroupNo(10));
        for (number, cut, upto, head) in [(9, 40, 10, 7), (7, 20, 20, 8), (8, 20, 40, 10)] {
            window.complete(GroupNo(number), Lsn(cut), &durable);
            assert_eq!((durable.load(Ordering::Relaxed), window.head()), (upto, GroupNo(head)));
            assert_eq!(window.in_flight(), 10 - head);
        }
    }
}
