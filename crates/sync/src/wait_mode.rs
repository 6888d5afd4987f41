//! How a wait that could also spin ends: the choice that the published log buffers offer.

use crate::primitive::thread;
use crate::{ParkTable, SiteSpin, SpinSite, waits};

/// What a thread does after its few pauses.
///
/// The published log buffers spin, which is right if every thread has a processor. Parking is right if threads
/// outnumber processors. The engine's own waits park; this type is for code that is measured both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// Check again for as long as it takes, and yield the processor before each check, so that a preempted peer can
    /// run.
    Spin,
    /// Sleep until woken.
    #[default]
    Park,
}

impl WaitMode {
    /// Returns the pauses before the yield or the park. A caller that has chosen to spin does not learn whether it
    /// pays.
    pub(crate) fn budget(self, site: &SpinSite) -> SiteSpin<'_> {
        match self {
            Self::Spin => SiteSpin::always(),
            Self::Park => site.begin(),
        }
    }

    /// Waits until `ready` returns true. The thread that makes it true then calls [`WaitMode::wake`] with the same
    /// table and key.
    ///
    /// `ready` reads atomics with `Acquire` and does nothing else: it also runs under a lock of the table.
    pub fn wait_until(self, table: &ParkTable, key: u64, ready: impl Fn() -> bool) {
        let mut spin = self.budget(table.states());
        while !ready() {
            if spin.spin() {
                continue;
            }
            match self {
                Self::Spin => yield_processor(),
                // WAIT: park - until `wake`.
                Self::Park => drop(table.park(key, None, || !ready())),
            }
        }
        spin.end();
    }

    /// Wakes all threads that wait at `key`. Free if waits spin; a fence and one load if no thread waits.
    pub fn wake(self, table: &ParkTable, key: u64) {
        if self == Self::Park {
            table.unpark_all(key, 0);
        }
    }
}

/// One look's worth of [`WaitMode::Spin`].
pub(crate) fn yield_processor() {
    waits::windowed();
    // WAIT: window - without a bound, as the caller has chosen; the yield lets the other side run.
    thread::yield_now();
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_turn_comes_in_either_mode() {
        for mode in [WaitMode::Spin, WaitMode::Park] {
            let (table, turn) = (ParkTable::new(), AtomicU64::new(0));
            thread::scope(|scope| {
                for own in 0..4 {
                    let (table, turn) = (&table, &turn);
                    scope.spawn(move || {
                        for round in 0..200 {
                            let mine = round * 4 + own;
                            mode.wait_until(table, mine, || turn.load(Ordering::Acquire) == mine);
                            turn.store(mine + 1, Ordering::Release);
                            mode.wake(table, mine + 1);
                        }
                    });
                }
            });
            assert_eq!(turn.load(Ordering::Relaxed), 800, "{mode:?}");
        }
    }
}
