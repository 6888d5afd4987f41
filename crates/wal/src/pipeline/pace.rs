//! When a group may be begun, once the lead is free and the window open.

use crate::policy::GroupPolicy;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{Clock, Nanos, SystemClock};
use std::time::Duration;

/// Laser's threshold of a jump in the time of a write; a jump adds twice that to the timer.
const TAU: u64 = 100_000;

/// Whether a group may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It may.
    Now,
    /// Not before this time has passed. Somebody has to look again then.
    After(Duration),
    /// Not before a group completes or the lead is given up; who does that hands off.
    No,
}

/// What is measured to say so.
///
/// **Greedy.** With nothing in flight a group begins as soon as somebody waits: the device clocks the groups. Its leader may
/// let those append first who have just been answered, see `gather`. Beside a group
/// in flight another one begins if the last cut left records behind, or half the time of a write after the last one began:
/// sooner it would only split what one group could carry. Nobody sets a timer for this: those who come look, and so does
/// who completes the group in flight, at the latest.
///
/// **Timed.** The first who waits for what is not cut *opens* the group; when it is due follows from that time. A cut closes
/// it, and its hand-off makes somebody look who came meanwhile. All of these are hints but for one: where somebody waits,
/// somebody looks again when `After` is over. That is one of the threads that wait, and one of the flushers if others wait:
/// not who opened the group, for it may have come between the cut of its record and the look at the time.
#[derive(Debug)]
pub(super) struct Pace {
    policy: GroupPolicy,
    clock: SystemClock,
    /// When the last group was sealed.
    sealed_at: AtomicU64,
    /// The last cut did not take everything.
    more: AtomicBool,
    /// Mean time of a write, recent ones weighing most; and of the last one.
    write: AtomicU64,
    last_write: AtomicU64,
    /// When the first came who waits for the group to be cut; 0 if nobody did.
    opened: AtomicU64,
    /// Commits that came and bytes that were cut since the log was opened; how many of the former at the last cut.
    came: AtomicU64,
    came_before: AtomicU64,
    bytes: AtomicU64,
    /// The adaptive timer.
    timer: AtomicU64,
}

impl Pace {
    pub(super) fn new(policy: GroupPolicy) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            policy,
            clock: SystemClock::new(),
            sealed_at: zero(),
            more: AtomicBool::new(false),
            write: zero(),
            last_write: zero(),
            opened: zero(),
            came: zero(),
            came_before: zero(),
            bytes: zero(),
            timer: zero(),
        }
    }

    pub(super) fn is_greedy(&self) -> bool {
        self.policy == GroupPolicy::Greedy
    }

    /// Whether the last cut did not take everything.
    pub(super) fn left_some(&self) -> bool {
        // ORDERING: Relaxed, a hint; exact under the lead.
        self.more.load(Ordering::Relaxed)
    }

    /// When the last group was sealed.
    pub(super) fn sealed_at(&self) -> Nanos {
        // ORDERING: Relaxed, a measure.
        Nanos(self.sealed_at.load(Ordering::Relaxed))
    }

    /// Mean time of a write in nanoseconds.
    pub(super) fn write(&self) -> u64 {
        // ORDERING: Relaxed, a measure.
        self.write.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Counts somebody who waits for what is not cut.
    pub(super) fn arrive(&self) {
        if let GroupPolicy::Fixed { txns: Some(_), .. } = self.policy {
            // ORDERING: Relaxed, a count that decides when, not what.
            self.came.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many came so far. Read before a cut: who comes later may be in this group or the next.
    pub(super) fn came(&self) -> u64 {
        // ORDERING: Relaxed, a count that decides when, not what.
        self.came.load(Ordering::Relaxed)
    }

    /// A group of `bytes` of records was sealed at `now`, `came` commits having come before its cut. Under the lead; a hand-off
    /// follows.
    pub(super) fn sealed(&self, now: Nanos, came: u64, more: bool, bytes: usize) {
        // ORDERING: Relaxed, hints; who misreads them begins a group a little early or late.
        self.sealed_at.store(now.0, Ordering::Relaxed);
        self.more.store(more, Ordering::Relaxed);
        if self.policy != GroupPolicy::Greedy {
            // ORDERING: Relaxed, ordered before the look of the hand-off by its fence: who came before is found by it.
            self.opened.store(0, Ordering::Relaxed);
            self.came_before.store(came, Ordering::Relaxed);
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// A group was written that began at `began`.
    pub(super) fn written(&self, began: Nanos, now: Nanos) {
        let took = now.0.saturating_sub(began.0);
        // ORDERING: Relaxed for all of this, measures; of two at once one may be lost.
        let mean = self.write.load(Ordering::Relaxed);
        self.write.store(mean - mean / 8 + took / 8, Ordering::Relaxed);
        if self.policy == GroupPolicy::Adaptive {
            // ORDERING: Relaxed, as above.
            let before = self.last_write.swap(took, Ordering::Relaxed);
            let jump = if before > 0 && took > before + TAU { 2 * TAU } else { 0 };
            let timer = self.timer.load(Ordering::Relaxed) / 2 + took / 2 + jump;
            self.timer.store(timer, Ordering::Relaxed);
        }
    }

    /// Whether a group might begin beside `in_flight` others if somebody asked, now or when it is due.
    pub(super) fn allows(&self, in_flight: u64) -> bool {
        // Under a model any time may have passed.
        if in_flight == 0 || self.policy != GroupPolicy::Greedy || cfg!(foreshore_loom) {
            return true;
        }
        // ORDERING: Relaxed, hints.
        let since = self.now().0.saturating_sub(self.sealed_at.load(Ordering::Relaxed));
        self.left_some() || since >= self.write.load(Ordering::Relaxed) / 2
    }

    /// When the group is due that somebody waits for. `appended` is the sum of the bytes of all records.
    pub(super) fn due(&self, now: Nanos, appended: impl FnOnce() -> u64) -> Start {
        if self.policy == GroupPolicy::Greedy || self.left_some() {
            return Start::Now;
        }
        let came = now.0.max(1);
        // ORDERING: Relaxed for all of this, hints.
        let opened = self.opened.compare_exchange(0, came, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(came);
        let tick = |period: Duration| {
            // ORDERING: Relaxed, hints.
            let base = self.sealed_at.load(Ordering::Relaxed);
            let period = Nanos::from(period).0.max(1);
            base + opened.saturating_sub(base).div_ceil(period).max(1) * period
        };
        let due = match self.policy {
            GroupPolicy::Greedy => 0,
            GroupPolicy::Delay(time) => (Nanos(opened) + time).0,
            // ORDERING: Relaxed, a measure.
            GroupPolicy::Adaptive => tick(Duration::from_nanos(self.timer.load(Ordering::Relaxed))),
            GroupPolicy::Fixed { time, txns, bytes } => {
                // ORDERING: Relaxed, a counter.
                let came = || self.came().saturating_sub(self.came_before.load(Ordering::Relaxed));
                // ORDERING: Relaxed, a counter.
                let full =
                    bytes.is_some_and(|most| appended().saturating_sub(self.bytes.load(Ordering::Relaxed)) >= most);
                let enough = full || txns.is_some_and(|most| came() >= most);
                if enough { 0 } else { tick(GroupPolicy::period(time)) }
            }
        };
        match due.saturating_sub(now.0) {
            0 => Start::Now,
            left => Start::After(Duration::from_nanos(left)),
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    const US: u64 = 1000;

    fn due(pace: &Pace, at: u64, appended: u64) -> Option<u64> {
        match pace.due(Nanos(at * US), || appended) {
            Start::Now => None,
            Start::After(left) => Some(left.as_nanos() as u64 / US),
            Start::No => unreachable!("a group is due at some time"),
        }
    }

    fn pace(policy: &str) -> Pace {
        Pace::new(policy.parse().unwrap())
    }

    #[test]
    fn a_fixed_timer_ticks_from_the_last_group_on() {
        let pace = pace("fixed:100us");
        pace.sealed(Nanos(1000 * US), 0, false, 0);
        // Opened at 1250, after two ticks for nobody.
        assert_eq!(due(&pace, 1250, 0), Some(50));
        assert_eq!(due(&pace, 1299, 0), Some(1));
        assert_eq!(due(&pace, 1300, 0), None);
        // Late is late: the tick it was opened for has passed.
        assert_eq!(due(&pace, 1350, 0), None);
        pace.sealed(Nanos(1350 * US), 0, false, 0);
        assert_eq!(due(&pace, 1351, 0), Some(99));
    }

    #[test]
    fn commits_and_bytes_come_before_the_timer() {
        let pace = pace("fixed:3txn,1KiB");
        pace.sealed(Nanos(US), 0, false, 500);
        (0..2).for_each(|_| pace.arrive());
        assert_eq!(due(&pace, 1, 1523), Some(10_000), "without a time, 10 ms");
        assert_eq!(due(&pace, 1, 1524), None, "1024 bytes since the last cut");
        pace.arrive();
        assert_eq!(due(&pace, 1, 600), None, "three commits");
        let came = pace.came();
        pace.arrive();
        pace.sealed(Nanos(2 * US), came, false, 1024);
        assert_eq!(due(&pace, 3, 1600), Some(9_999), "one commit came after the cut");
    }

    #[test]
    fn a_delay_begins_with_the_first_commit() {
        let pace = pace("delay:50us");
        assert_eq!(pace.due(Nanos(1000 * US), || 0), Start::After(Duration::from_micros(50)));
        assert_eq!(pace.due(Nanos(1020 * US), || 0), Start::After(Duration::from_micros(30)));
        assert_eq!(due(&pace, 1050, 0), None);
        pace.sealed(Nanos(1060 * US), 0, true, 0);
        assert_eq!(due(&pace, 1061, 0), None, "the last cut left records behind");
    }

    #[test]
    fn the_adaptive_timer_follows_the_writes() {
        let pace = pace("adaptive");
        let write = |took: u64| {
            pace.written(Nanos(0), Nanos(took * US));
            pace.timer.load(Ordering::Relaxed) / US
        };
        assert_eq!([300, 300, 400, 501].map(write), [150, 225, 312, 606]);
        pace.sealed(Nanos(1000 * US), 0, false, 0);
        assert_eq!(due(&pace, 1000, 0), Some(606));
    }

    #[test]
    fn a_greedy_group_beside_another_waits_for_half_a_write() {
        let pace = pace("greedy");
        (0..100).for_each(|_| pace.written(Nanos(0), Nanos(1 << 40)));
        pace.sealed(pace.now(), 0, false, 0);
        assert!(pace.allows(0) && !pace.allows(1));
        pace.sealed(pace.now(), 0, true, 0);
        assert!(pace.allows(1), "the last cut left records behind");
    }
}
