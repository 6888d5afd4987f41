//! How far the log is sealed and durable: the window of groups in flight, and whether the log has stopped.
//!
//! ```text
//! ... durable groups | head ... groups in flight ... | next
//! ```
//!
//! Groups complete in any order, and `durable` moves in the order of their numbers.
//!
//! **Invariant:** `next - head` is at most the width, so no two groups of the window share an entry in a table of that
//! size.
//!
//! **Invariant:** a record that was durable before the log stopped stays so.

use crate::group_commit::Flushes;
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, Nanos};

/// The state of completed groups, under one lock.
struct Done {
    /// The cuts of complete groups from the head on, by number modulo the width.
    cuts: Box<[Option<Lsn>]>,
    flushes: Flushes,
    /// The count of appended bytes at which as many bytes have arrived as the last group acknowledged.
    expected: u64,
}

/// The state of the groups of one log.
pub struct Progress {
    /// Number of the next group. Written by the holder of the lead.
    next: CachePadded<AtomicU64>,
    /// Number of the oldest group that is not complete. Written under the lock of `done`; never above `next`.
    head: CachePadded<AtomicU64>,
    /// The durable LSN: every record up to it survives. Raised under the lock of `done`.
    durable: CachePadded<AtomicU64>,
    /// The sealed LSN: every record up to it is in a sealed group. Written by the holder of the lead.
    sealed: CachePadded<AtomicU64>,
    width: usize,
    done: Mutex<Done>,
    stopped: AtomicBool,
    /// The first cause for which the log has stopped.
    cause: Mutex<Option<Error>>,
    /// The count of groups being written, for the mutant whose window counts only these.
    #[cfg(foreshore_loom)]
    writing: AtomicU64,
}

impl Progress {
    /// Creates a window of `width` groups, at least one, beginning with group `first`. Records up to `durable` are
    /// durable already.
    pub(super) fn new(width: usize, first: GroupNo, durable: Lsn) -> Self {
        assert!(width > 0, "a log has at least one group in flight");
        let done = Done { cuts: vec![None; width].into(), flushes: Flushes::default(), expected: 0 };
        Self {
            next: CachePadded::new(AtomicU64::new(first.0)),
            head: CachePadded::new(AtomicU64::new(first.0)),
            durable: CachePadded::new(AtomicU64::new(durable.0)),
            sealed: CachePadded::new(AtomicU64::new(durable.0)),
            width,
            done: Mutex::new(LockRank::Leaf, done),
            stopped: AtomicBool::new(false),
            cause: Mutex::new(LockRank::LogWaiters, None),
            #[cfg(foreshore_loom)]
            writing: AtomicU64::new(0),
        }
    }

    /// Returns the durable LSN: every record up to it survives.
    #[inline]
    pub fn durable(&self) -> Lsn {
        // ORDERING: Acquire, a reader that sees the stamp sees the group's completion; pairs with the raise in
        // `complete`.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns the sealed LSN: every record up to it is in a sealed group.
    #[inline]
    pub fn sealed(&self) -> Lsn {
        // ORDERING: Acquire, pairs with the store in `seal`.
        Lsn(self.sealed.load(Ordering::Acquire))
    }

    /// Returns the number of the next group to be sealed. A record appended after this call is in that group or a later
    /// one.
    pub fn next_group(&self) -> GroupNo {
        // ORDERING: Acquire, pairs with `seal`: a reader of the new number appends behind the records of the group
        // before.
        GroupNo(self.next.load(Ordering::Acquire))
    }

    /// Returns the newest group that is durable together with all before it.
    pub fn durable_group(&self) -> GroupNo {
        // ORDERING: Acquire, a reader of the number sees the completion of the groups before; pairs with `complete`.
        GroupNo(self.head.load(Ordering::Acquire) - 1)
    }

    /// Returns the number of groups that may be in flight.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether the log has stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        // ORDERING: Acquire, the cause is set before; pairs with `stop`.
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns the error that all callers get if the log has stopped.
    #[inline]
    pub fn stop_error(&self) -> Option<Error> {
        if self.is_stopped() { Some(self.error()) } else { None }
    }

    /// Returns the answer to a wait for `lsn`: it is durable, or the log has stopped before. `None` while neither
    /// holds.
    #[inline]
    pub fn answer(&self, lsn: Lsn) -> Option<Result<()>> {
        // `durable` is read second, so it includes all groups that completed before the stop.
        let stopped = self.is_stopped();
        let is_sealed = mutant("sabotage: a wait for a group ends when it is sealed") && self.sealed() >= lsn;
        if self.durable() >= lsn || is_sealed { Some(Ok(())) } else { stopped.then(|| Err(self.error())) }
    }

    /// Returns the LSN up to which waits have an answer, and the durable LSN. They differ if the log has stopped.
    pub(super) fn answered(&self) -> (Lsn, Lsn) {
        // In the order of `answer`.
        let stopped = self.is_stopped();
        let durable = self.durable();
        (if stopped { Lsn(u64::MAX) } else { durable }, durable)
    }

    /// Stops the log, with the first cause as its error. The caller hands off after, which wakes all waiters.
    pub(super) fn stop(&self, cause: &Error) {
        self.cause.lock().get_or_insert_with(|| cause.clone());
        // ORDERING: Release, publishes the cause; the fence in `hand_off` orders it before the read of the waiters.
        self.stopped.store(true, Ordering::Release);
    }

    #[cold]
    fn error(&self) -> Error {
        let cause = self.cause.lock().clone();
        Error::poisoned(&cause.expect("the cause is set before the flag"))
    }

    /// Returns the statistics of flushes, and the count of appended bytes at which as many have arrived as the last
    /// group acknowledged.
    pub(super) fn flushes(&self) -> (Flushes, u64) {
        let done = self.done.lock();
        (done.flushes, done.expected)
    }

    /// Returns the number of groups in flight. It is exact under the lead, except for concurrent completions; elsewhere
    /// a hint.
    pub(super) fn in_flight(&self) -> u64 {
        // ORDERING: Relaxed, the caller's fence or the lead orders it. The head is read second and may have passed the
        // `next` that was read first.
        let next = self.next.load(Ordering::Relaxed);
        next.saturating_sub(self.head.load(Ordering::Relaxed))
    }

    /// Whether no further group may be sealed now. Binding under the lead only.
    pub(super) fn is_full(&self) -> bool {
        #[cfg(foreshore_loom)]
        if mutant("window: counts running writes only") {
            // ORDERING: Relaxed, of the mutant.
            return self.writing.load(Ordering::Relaxed) >= self.width as u64;
        }
        self.in_flight() >= self.width as u64
    }

    /// Marks `number`, the next group, as sealed with this cut. Under the lead, after the leader has read the tails of
    /// the buffer.
    pub(super) fn seal(&self, number: GroupNo, cut: Lsn) {
        // ORDERING: Release, pairs with `sealed`.
        self.sealed.store(cut.0, Ordering::Release);
        // ORDERING: Relaxed, written under the lead alone.
        let next = self.next.load(Ordering::Relaxed);
        assert_eq!(number.0, next, "the group that is sealed, and the next one");
        #[cfg(foreshore_loom)]
        if mutant("window: counts running writes only") {
            // ORDERING: Relaxed, of the mutant.
            self.writing.fetch_add(1, Ordering::Relaxed);
        }
        // ORDERING: Release, pairs with `next`.
        self.next.store(number.next().0, Ordering::Release);
    }

    /// Marks `number` as complete after its flush, and raises `durable` to the cut of the last group without an
    /// incomplete one before it. `expected` is for [`Self::flushes`].
    pub(super) fn complete(&self, number: GroupNo, cut: Lsn, [began, ended]: [Nanos; 2], expected: Option<u64>) {
        #[cfg(foreshore_loom)]
        if mutant("window: counts running writes only") {
            // ORDERING: Relaxed, of the mutant.
            self.writing.fetch_sub(1, Ordering::Relaxed);
        }
        let mut done = self.done.lock();
        done.flushes.note(began, ended);
        done.expected = expected.unwrap_or(done.expected);
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
            // ORDERING: Release, the group is durable before its stamp is visible; pairs with `durable`. `fetch_max`,
            // because a group in the middle of a cut repeats the stamp of the cut before.
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
        let progress = Progress::new(3, GroupNo(7), Lsn(10));
        (7..10).for_each(|number| progress.seal(GroupNo(number), Lsn(number)));
        assert!(progress.is_full() && progress.next_group() == GroupNo(10) && progress.sealed() == Lsn(9));
        for (number, cut, upto, head) in [(9, 40, 10, 7), (7, 20, 20, 8), (8, 20, 40, 10)] {
            progress.complete(GroupNo(number), Lsn(cut), [Nanos::ZERO; 2], None);
            assert_eq!((progress.durable(), progress.durable_group().next()), (Lsn(upto), GroupNo(head)));
            assert_eq!(progress.in_flight(), 10 - head);
        }
    }
}
