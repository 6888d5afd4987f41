//! Yields: who waits for a group that is in flight lets the others go first, and then need not sleep, as long as that pays.
//!
//! With more threads than processors there is always somebody who wants to run. A thread that parks for its commit leaves the
//! processor to one of them, but it also costs its waker and the scheduler a wake-up, which is more than half as much as a short
//! transaction. A thread that yields leaves it just as well, and by its next turn the commit is durable more often than not:
//! then nobody has to wake it. So a wait begins with one yield and parks after it.
//!
//! A yield is *in vain* where the commit is not durable after it, for nobody wanted to run. Each success makes up for half of the
//! yields in vain before it; as long as there are some, a part of the waits park at once, sixteen in seventeen in the end. A yield
//! is *late* where it took longer than [`LONG`] and [`WRITES`] writes, for the processor went to those who compute: then so many
//! waits park that late yields take a small part of the time, however late they are.
//!
//! On two processors, 128 threads with one commit each make 1.35 times as many so with a device of 100 us, and 1.6 times with a
//! virtual disk of about as much.

use super::{Leader, Pipeline, Start};
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{MODEL, thread};

/// A yield that takes longer than this, in nanoseconds, and than so many writes has come back too late.
const LONG: u64 = 1_000_000;
const WRITES: u64 = 16;
/// The count of yields in vain goes no higher. A quarter of it are left out after each.
const MOST_VAIN: u64 = 64;
/// Waits that park after a late yield, for each time that it was too long, and at most.
const AFTER_LATE: u64 = 128;
const MOST_SKIPPED: u64 = 1 << 20;

/// What has come of yields, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Yields {
    vain: AtomicU64,
    /// Waits before the next yield.
    skip: AtomicU64,
    count: AtomicU64,
}

// ORDERING: Relaxed for all of these, hints and a counter: who misreads them yields once too often or too seldom.
impl Yields {
    fn is_due(&self) -> bool {
        // ORDERING: Relaxed, see above.
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            // ORDERING: Relaxed, see above.
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip == 0
    }

    /// A yield took so many nanoseconds at so many for a write, and the commit is durable or not.
    fn learn(&self, is_durable: bool, took: u64, write: u64) {
        // ORDERING: Relaxed for all of this, see above.
        self.count.fetch_add(1, Ordering::Relaxed);
        let before = self.vain.load(Ordering::Relaxed);
        let late = took / LONG.max(WRITES * write);
        let (vain, skip) = if late > 0 {
            (before, late.saturating_mul(AFTER_LATE).min(MOST_SKIPPED))
        } else if is_durable {
            (before / 2, 0)
        } else {
            let vain = (before + 1).min(MOST_VAIN);
            (vain, vain / 4)
        };
        if vain != before {
            // ORDERING: Relaxed, see above.
            self.vain.store(vain, Ordering::Relaxed);
        }
        if skip > 0 {
            // ORDERING: Relaxed, see above.
            self.skip.store(skip, Ordering::Relaxed);
        }
    }
}

impl<L: Leader> Pipeline<L> {
    /// Lets others run once where the caller would have to park for `lsn` now, and that has been worth it of late.
    pub(super) fn yield_once(&self, lsn: Lsn) {
        // A model has no processor to give away, and policies other than greedy count who comes before its group is cut.
        let may_yield = !MODEL && (self.pace.is_greedy() || self.sealed() >= lsn);
        if !may_yield || self.durable() >= lsn || self.start_for(lsn) == Start::Now || !self.yields.is_due() {
            return;
        }
        let began = self.pace.now();
        // WAIT: window - one yield.
        thread::yield_now();
        let took = self.pace.now().0.saturating_sub(began.0);
        self.yields.learn(self.durable() >= lsn, took, self.pace.write());
    }

    /// Times that a thread has yielded instead of parking at once.
    pub fn yields(&self) -> u64 {
        // ORDERING: Relaxed, a counter.
        self.yields.count.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// How many of the next `waits` yield, if each of them ends like this.
    fn yielded(yields: &Yields, waits: u64, is_durable: bool, took: u64) -> u64 {
        (0..waits).filter(|_| yields.is_due()).map(|_| yields.learn(is_durable, took * US, 100 * US)).count() as u64
    }

    #[test]
    fn yields_in_vain_become_rare_and_come_back() {
        let yields = Yields::default();
        assert_eq!(yielded(&yields, 100, true, 700), 100);
        assert_eq!(yielded(&yields, 3, false, 1), 3, "three in a row say little");
        yielded(&yields, 1000, false, 1);
        assert_eq!(yielded(&yields, 170, false, 1), 10, "one wait in seventeen");
        yielded(&yields, 17 * 7, true, 700);
        assert_eq!(yielded(&yields, 100, true, 700), 100, "seven successes make good for all");
    }

    #[test]
    fn a_yield_that_pays_half_of_the_time_goes_on() {
        let yields = Yields::default();
        let yielded = (0..1000).filter(|_| yields.is_due()).enumerate();
        let yielded = yielded.map(|(i, _)| yields.learn(i % 2 == 0, 100 * US, 100 * US)).count();
        assert_eq!(yielded, 1000);
    }

    #[test]
    fn late_yields_take_a_small_part_of_the_time_however_late() {
        for late in [1, 2, 100, 1000] {
            let yields = Yields::default();
            let waits = 10 * (1 + AFTER_LATE * late);
            assert_eq!(yielded(&yields, waits, true, late * 1600), 10, "{late} times as long as sixteen writes");
        }
        let yields = Yields::default();
        assert_eq!(yielded(&yields, 10, true, 1599), 10, "not late");
        (0..10).for_each(|_| yields.learn(true, 999 * US, 10 * US));
        assert!(yields.is_due(), "nor is less than a millisecond late beside short writes");
        yields.learn(true, u64::MAX, 10 * US);
        assert!(!yields.is_due() && yields.skip.load(Ordering::Relaxed) < MOST_SKIPPED);
    }
}
