//! The parts of a commit's wait: the five waits of Laser, section 5, for any buffer.
//!
//! The times of the last groups are kept. A thread that has waited for an LSN finds the group that covered it. It
//! splits its own wait at the times of that group, so the parts add up to the whole.

use foreshore_base::{GroupNo, Lsn};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, SystemClock};
use std::collections::VecDeque;
use std::time::Duration;

/// Groups remembered. A thread that wakes later than this many groups after its own is not counted.
const GROUPS: usize = 4096;

/// The parts of waits for durability, as sums over `count` waits. They are counted if
/// [`LogOptions::measure_waits`](crate::LogOptions::measure_waits) is set.
///
/// A wait is counted if its record was not durable yet. The wait of a thread lasts from its call to its return. The
/// wait of a pipelined commit lasts from its request until the log knows that it is durable. If a thread waits for such
/// a commit, both waits count. The parts of each wait are `b` to `e`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The number of waits.
    pub count: u64,
    /// Time of sessions until the record was in the buffer: waits for buffer space, for log space, for earlier commits
    /// of the session, and for a position in the buffer. It includes the copy, which cannot be told from the last.
    pub a: Duration,
    /// Time until a group that covers the record was sealed.
    pub b: Duration,
    /// Time until the write of that group began.
    pub c: Duration,
    /// Time until that write ended.
    pub d: Duration,
    /// Time until the wait ended: earlier groups were still in flight, and a thread had to wake up.
    pub e: Duration,
}

impl Waits {
    /// Returns the five means over the number of waits; `None` if there were none.
    #[must_use]
    pub fn means(&self) -> Option<[Duration; 5]> {
        let mean = |sum: Duration| Duration::from_nanos(Nanos::from(sum).0 / self.count);
        (self.count > 0).then(|| [self.a, self.b, self.c, self.d, self.e].map(mean))
    }

    /// Returns the difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count - earlier.count,
            a: self.a.saturating_sub(earlier.a),
            b: self.b.saturating_sub(earlier.b),
            c: self.c.saturating_sub(earlier.c),
            d: self.d.saturating_sub(earlier.d),
            e: self.e.saturating_sub(earlier.e),
        }
    }
}

/// The times of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupTimes {
    pub(super) number: GroupNo,
    pub(super) cut: Lsn,
    pub(super) sealed: Nanos,
    pub(super) began: Nanos,
    pub(super) ended: Nanos,
}

/// The last groups by number, and the end of the forgotten ones.
#[derive(Default)]
struct History {
    groups: VecDeque<GroupTimes>,
    /// The greatest cut of a forgotten group.
    forgotten: Lsn,
}

/// The waits of one log, if they are measured.
pub struct WaitTimes {
    /// The clock of the groups' times.
    clock: SystemClock,
    history: Mutex<History>,
    count: AtomicU64,
    /// `b` to `e` in nanoseconds.
    sums: [AtomicU64; 4],
}

impl WaitTimes {
    /// Creates the counters. `clock` is the one that times groups.
    pub(super) fn new(clock: SystemClock) -> Self {
        let history = Mutex::new(LockRank::Leaf, History::default());
        Self { clock, history, count: AtomicU64::new(0), sums: [const { 0 }; 4].map(AtomicU64::new) }
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Notes a group that was written. Called before any thread can see that it is durable.
    pub(super) fn note(&self, group: GroupTimes) {
        let mut history = self.history.lock();
        // Groups in flight end in any order.
        let at = history.groups.partition_point(|other| other.number < group.number);
        let next = history.groups.get(at).map(|next| (next.number, next.cut));
        let is_before = next.is_none_or(|(number, cut)| group.number < number && group.cut <= cut);
        assert!(is_before, "{group:?} is noted before {next:?}");
        history.groups.insert(at, group);
        if history.groups.len() > GROUPS {
            let oldest = history.groups.pop_front().expect("more than none");
            history.forgotten = oldest.cut;
        }
    }

    /// Counts a wait for `lsn`, which is durable. The wait began at `asked` and ended at `end`, or, if that is `None`,
    /// when `lsn` became durable.
    pub fn count(&self, lsn: Lsn, asked: Nanos, end: Option<Nanos>) {
        let (group, durable) = {
            let history = self.history.lock();
            let at = history.groups.partition_point(|group| group.cut < lsn);
            let Some(&group) = history.groups.get(at).filter(|_| lsn > history.forgotten) else { return };
            // Groups become durable in their order. So this one became durable with the last to end among those up to
            // it that were in flight together.
            let before = history.groups.range(at.saturating_sub(crate::options::MAX_IN_FLIGHT)..=at);
            (group, before.map(|group| group.ended).max().expect("the group itself"))
        };
        let mut at = asked;
        let ends = [group.sealed, group.began, group.ended, end.unwrap_or(durable)];
        for (sum, end) in self.sums.iter().zip(ends) {
            let end = end.max(at);
            // ORDERING: Relaxed, counters.
            sum.fetch_add(end.0 - at.0, Ordering::Relaxed);
            at = end;
        }
        // ORDERING: Relaxed, a counter.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sums so far, with the sum `a` that sessions have counted.
    pub fn sums(&self, a: u64) -> Waits {
        // ORDERING: Relaxed, counters.
        let [b, c, d, e] = self.sums.each_ref().map(|sum| Duration::from_nanos(sum.load(Ordering::Relaxed)));
        // ORDERING: as above.
        Waits { count: self.count.load(Ordering::Relaxed), a: Duration::from_nanos(a), b, c, d, e }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    fn group(number: u64, cut: u64, times: [u64; 3]) -> GroupTimes {
        let [sealed, began, ended] = times.map(Nanos);
        GroupTimes { number: GroupNo(number), cut: Lsn(cut), sealed, began, ended }
    }

    fn parts(waits: &WaitTimes) -> (u64, [u64; 4]) {
        let Waits { count, b, c, d, e, .. } = waits.sums(0);
        (count, [b, c, d, e].map(|part| Nanos::from(part).0))
    }

    #[test]
    fn a_wait_is_split_at_the_times_of_its_group() {
        let waits = WaitTimes::new(SystemClock::new());
        waits.note(group(1, 10, [100, 120, 200]));
        waits.count(Lsn(7), Nanos(90), Some(Nanos(250)));
        assert_eq!(parts(&waits), (1, [10, 20, 80, 50]));
        // Asked for while it was written: the time before is not this one's.
        waits.count(Lsn(10), Nanos(150), Some(Nanos(210)));
        assert_eq!(parts(&waits), (2, [10, 20, 130, 60]));
        // Beyond what was written nothing is known.
        waits.count(Lsn(11), Nanos(150), Some(Nanos(210)));
        assert_eq!(parts(&waits).0, 2);
    }

    #[test]
    fn a_group_behind_a_slower_one_is_durable_with_it() {
        let waits = WaitTimes::new(SystemClock::new());
        waits.note(group(2, 20, [110, 110, 150]));
        waits.note(group(1, 10, [100, 100, 200]));
        waits.count(Lsn(15), Nanos(105), None);
        assert_eq!(parts(&waits), (1, [5, 0, 40, 50]));
        assert_eq!(waits.sums(8).means().unwrap().map(|mean| Nanos::from(mean).0), [8, 5, 0, 40, 50]);
    }

    #[test]
    fn what_is_forgotten_is_not_counted() {
        let waits = WaitTimes::new(SystemClock::new());
        for number in 1..=GROUPS as u64 + 1 {
            waits.note(group(number, number * 10, [number; 3]));
        }
        waits.count(Lsn(10), Nanos(0), None);
        assert_eq!(parts(&waits).0, 0);
        waits.count(Lsn(11), Nanos(0), None);
        assert_eq!(parts(&waits), (1, [2, 0, 0, 0]));
    }
}
