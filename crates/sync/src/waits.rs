//! Counts of waits by class, kept by each thread for itself.
//!
//! Every wait in the engine helps, parks, or is a window of a few instructions, and a comment at its place says which.
//! These counts say how often each happens: a measurement takes the difference of [`counted`] around an operation.
//! They leave out the sleep inside a contended [`Mutex`](crate::Mutex), which is the standard library's.

use std::ops::Sub;

/// Waits by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Times the thread did the work that it would have waited for, or a part of it.
    pub helps: u64,
    /// Sleeps: a wait that wakes, checks and sleeps again counts once each time.
    pub parks: u64,
    /// Spins, whatever their length, and yields of [`WaitMode::Spin`](crate::WaitMode::Spin).
    pub windows: u64,
}

impl Sub for WaitCounts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            helps: self.helps.wrapping_sub(earlier.helps),
            parks: self.parks.wrapping_sub(earlier.parks),
            windows: self.windows.wrapping_sub(earlier.windows),
        }
    }
}

#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
std::thread_local! {
    static COUNTS: std::cell::Cell<WaitCounts> =
        const { std::cell::Cell::new(WaitCounts { helps: 0, parks: 0, windows: 0 }) };
}

/// Returns the calling thread's counts since the thread began. Always zero under a model checker.
pub fn counted() -> WaitCounts {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    return COUNTS.get();
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    WaitCounts::default()
}

/// Counts a wait that the caller shortened by helping. The other two classes are counted where they end, in this
/// crate.
#[inline]
pub fn helped() {
    count(|counts| counts.helps = counts.helps.wrapping_add(1));
}

#[inline]
pub(crate) fn parked() {
    count(|counts| counts.parks = counts.parks.wrapping_add(1));
}

#[inline]
pub(crate) fn windowed() {
    count(|counts| counts.windows = counts.windows.wrapping_add(1));
}

#[inline(always)]
fn count(change: impl FnOnce(&mut WaitCounts)) {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    {
        let mut counts = COUNTS.get();
        change(&mut counts);
        COUNTS.set(counts);
    }
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    let _ = change;
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::{EventCount, ParkTable, Parker, SpinWait, WaitMode, WakeQueue};
    use std::cell::Cell;
    use std::time::Duration;

    /// Returns what `wait` adds to the counts of this thread.
    fn during(wait: impl FnOnce()) -> WaitCounts {
        let before = counted();
        wait();
        counted() - before
    }

    #[test]
    fn sleeps_are_parks_wherever_they_end() {
        let patience = Duration::from_millis(1);
        let parker = Parker::new();
        // A spurious wake-up makes two of one.
        assert!(during(|| _ = parker.park_timeout(patience)).parks >= 1);
        parker.unparker().unpark();
        assert_eq!(during(|| parker.park()), WaitCounts::default(), "a token is no wait");
        let (table, events) = (ParkTable::new(), EventCount::new());
        assert!(during(|| _ = table.park(7, Some(patience), || true)).parks >= 1);
        assert!(during(|| _ = events.wait(events.prepare(), Some(patience))).parks >= 1);
    }

    #[test]
    fn a_budget_is_one_window_and_a_yield_another() {
        let spin = during(|| {
            let mut spin = SpinWait::new();
            while spin.spin() {}
        });
        assert!(spin.windows <= 1 && spin.parks == 0, "{spin:?}");
        let (table, looks) = (ParkTable::new(), Cell::new(0));
        let patient = |mode: WaitMode| {
            during(|| {
                mode.wait_until(&table, 7, || {
                    looks.set(looks.get() + 1);
                    looks.get() % 100 == 0
                });
            })
        };
        let spin = patient(WaitMode::Spin);
        assert!((85..100).contains(&spin.windows), "one for the pauses and one a yield: {spin:?}");
        assert_eq!(spin.parks + spin.helps, 0);
    }

    #[test]
    fn who_wakes_others_on_its_way_helps() {
        let parkers = [Parker::new(), Parker::new()];
        let queue = WakeQueue::new(1);
        assert_eq!(during(|| queue.help()), WaitCounts::default(), "nobody is left");
        queue.put(parkers.iter().map(Parker::unparker));
        assert_eq!(during(|| queue.start()), WaitCounts::default());
        assert_eq!(during(|| queue.help()).helps, 1);
    }
}
