//! The groups in flight, between seal and completion: how many there may be, how far they are complete without a gap, and how
//! long their flushes take.

use foreshore_base::{GroupNo, Lsn};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, Nanos};
use std::time::Duration;

/// The weight of the last flush in the mean latency.
///
/// A device that changes its speed is followed within some 20 groups, and one slow flush among them moves the mean by less than a
/// window's precision.
const WEIGHT: u32 = 8;

/// What is known of the flushes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flushes {
    /// Mean latency, recent flushes weighing most.
    pub(super) latency: Duration,
    pub(super) last: Duration,
    pub(super) count: u64,
    pub(super) completed_at: Nanos,
    /// Bytes that will have been appended when as many have come again as the last group acknowledged.
    pub(super) expected: u64,
}

impl Flushes {
    fn note(&mut self, began: Nanos, ended: Nanos, expected: Option<u64>) {
        self.last = ended.since(began);
        self.latency = self.latency - self.latency / WEIGHT + self.last / WEIGHT;
        self.count += 1;
        self.completed_at = ended;
        self.expected = expected.unwrap_or(self.expected);
    }
}

/// What is guarded together.
#[derive(Debug)]
struct Done {
    /// The cuts of complete groups from the head on, by number modulo width.
    cuts: Box<[Option<Lsn>]>,
    flushes: Flushes,
}

/// Groups `head .. next` are in flight: sealed, and not all complete from the oldest on. Never more than the width, so
/// that two groups of the window never share a place in a table of that many, and a group that is complete behind one
/// that is not keeps its place.
#[derive(Debug)]
pub(super) struct Window {
    /// Number of the next group. Written by the holder of the lead.
    next: CachePadded<AtomicU64>,
    /// Number of the oldest group that is not complete. Written under the lock of `done`; never above `next`.
    head: CachePadded<AtomicU64>,
    /// Every record with an LSN up to here survives. Raised under the lock of `done`.
    durable: CachePadded<AtomicU64>,
    /// Every record with an LSN up to here is in a sealed group. Written by the holder of the lead.
    sealed: CachePadded<AtomicU64>,
    done: Mutex<Done>,
    /// Groups being written. For the model of a window that counts these alone.
    #[cfg(foreshore_loom)]
    writing: AtomicU64,
}

impl Window {
    /// A window of `width` groups, at least one, the first of which is `first`. What is up to `durable` survives already.
    pub(super) fn new(width: usize, first: GroupNo, durable: Lsn) -> Self {
        assert!(width > 0, "a log has at least one group in flight");
        let done = Done { cuts: vec![None; width].into(), flushes: Flushes::default() };
        Self {
            next: CachePadded::new(AtomicU64::new(first.0)),
            head: CachePadded::new(AtomicU64::new(first.0)),
            durable: CachePadded::new(AtomicU64::new(durable.0)),
            sealed: CachePadded::new(AtomicU64::new(durable.0)),
            done: Mutex::new(LockRank::Leaf, done),
            #[cfg(foreshore_loom)]
            writing: AtomicU64::new(0),
        }
    }

    /// Every record with an LSN up to here survives.
    pub(super) fn durable(&self) -> Lsn {
        // ORDERING: Acquire, a reader that sees the stamp sees the group's completion; pairs with the raise in `complete`.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Every record with an LSN up to here is in a sealed group.
    pub(super) fn sealed(&self) -> Lsn {
        // ORDERING: Acquire, pairs with the store in `seal`.
        Lsn(self.sealed.load(Ordering::Acquire))
    }

    /// What is known of the flushes so far.
    pub(super) fn flushes(&self) -> Flushes {
        self.done.lock().flushes
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

    /// Takes `number`, the next group, as sealed with this cut. Under the lead, after the leader has read the buffer's tails.
    pub(super) fn seal(&self, number: GroupNo, cut: Lsn) {
        // ORDERING: Release, pairs with `sealed`.
        self.sealed.store(cut.0, Ordering::Release);
        // ORDERING: Relaxed, written under the lead alone.
        let next = self.next.load(Ordering::Relaxed);
        assert_eq!(number.0, next, "the group that is sealed, and the next one");
        #[cfg(foreshore_loom)]
        // ORDERING: Relaxed, of the mutant.
        self.writing.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Release, pairs with `next`.
        self.next.store(number.next().0, Ordering::Release);
    }

    /// Takes `number` as complete after its flush, and raises `durable` to the cut of the last group behind which nothing is
    /// missing. `expected` is for [`Flushes`].
    pub(super) fn complete(&self, number: GroupNo, cut: Lsn, [began, ended]: [Nanos; 2], expected: Option<u64>) {
        #[cfg(foreshore_loom)]
        // ORDERING: Relaxed, of the mutant.
        self.writing.fetch_sub(1, Ordering::Relaxed);
        let mut done = self.done.lock();
        done.flushes.note(began, ended, expected);
        let done = &mut done.cuts;
        let width = done.len() as u64;
        // ORDERING: Relaxed, written under the lock that is held.
        let first = self.head.load(Ordering::Relaxed);
        assert!((first..first + width).contains(&number.0), "group {number} ends, of {width} in flight from {first}");
        let before = done[(number.0 % width) as usize].replace(cut);
        assert_eq!(before, None, "two groups share a place in the window");
        if mutant("window: completes out of order") {
            // ORDERING: Release, as below.
            self.durable.fetch_max(cut.0, Ordering::Release);
        }
        // ORDERING: Relaxed, written under the lock alone.
        let mut head = self.head.load(Ordering::Relaxed);
        let mut last = Lsn::ZERO;
        while let Some(cut) = done[(head % width) as usize].take() {
            assert!(last <= cut, "group {head} is cut at {cut}, below {last} of the one before");
            last = cut;
            // ORDERING: Release, the group is durable before its stamp shows; pairs with `durable`. Raised only: a group in the
            // middle of a cut repeats the stamp of the cut before.
            self.durable.fetch_max(cut.0, Ordering::Release);
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
        let window = Window::new(3, GroupNo(7), Lsn(10));
        (7..10).for_each(|number| window.seal(GroupNo(number), Lsn(number)));
        assert!(window.is_full(3) && window.next() == GroupNo(10) && window.sealed() == Lsn(9));
        for (number, cut, upto, head) in [(9, 40, 10, 7), (7, 20, 20, 8), (8, 20, 40, 10)] {
            window.complete(GroupNo(number), Lsn(cut), [Nanos::ZERO; 2], None);
            assert_eq!((window.durable(), window.head()), (Lsn(upto), GroupNo(head)));
            assert_eq!(window.in_flight(), 10 - head);
        }
    }

    #[test]
    fn the_mean_latency_follows_the_device() {
        let mut flushes = Flushes::default();
        let flush = |flushes: &mut Flushes, micros: u64| flushes.note(Nanos(500), Nanos(500 + micros * 1000), None);
        (0..40).for_each(|_| flush(&mut flushes, 100));
        assert!((99..=100).contains(&flushes.latency.as_micros()), "{flushes:?}");
        flush(&mut flushes, 900);
        assert_eq!((flushes.latency.as_micros(), flushes.last.as_micros(), flushes.count), (199, 900, 41));
        (0..20).for_each(|_| flush(&mut flushes, 900));
        assert!(flushes.latency.as_micros() > 800, "{flushes:?}");
    }
}
