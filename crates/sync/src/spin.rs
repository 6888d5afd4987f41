//! Bounded spinning before a park.

use crate::primitive::REPLAYS;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the number of threads this process can run at once, at least 1; read once, since it costs system calls.
pub fn available_parallelism() -> usize {
    #[cfg(foreshore_sim)]
    return crate::schedule::PARALLELISM;
    #[cfg(not(foreshore_sim))]
    counted_processors()
}

#[cfg(not(foreshore_sim))]
fn counted_processors() -> usize {
    static PARALLELISM: OnceLock<usize> = OnceLock::new();
    *PARALLELISM.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// Total time of all pauses of a wait.
const BUDGET: Duration = Duration::from_micros(3);

/// Pauses in one probe.
const PROBE: u32 = 64;

/// Returns the pauses in the budget. One takes 3 ns on one processor and 50 ns on another, so it is measured, once.
fn pauses_in_budget() -> u32 {
    static PAUSES: OnceLock<u32> = OnceLock::new();
    *PAUSES.get_or_init(|| {
        pauses_by(|| {
            let begin = Instant::now();
            // WAIT: window - that many pauses, to be timed.
            for _ in 0..PROBE {
                crate::primitive::hint::spin_loop();
            }
            begin.elapsed()
        })
    })
}

/// Returns the pauses in the budget if a probe takes that long. None if one alone takes longer, as when a hypervisor
/// traps it.
fn pauses_by(mut probe: impl FnMut() -> Duration) -> u32 {
    // The shortest: this thread may have been interrupted in the others.
    let took = (0..5).map(|_| probe()).min().unwrap_or_default().as_nanos().max(1);
    let pauses = BUDGET.as_nanos() * u128::from(PROBE) / took;
    u32::try_from(pauses).unwrap_or(MOST_PAUSES).min(MOST_PAUSES)
}

/// No pause is shorter than a nanosecond, whatever the clock says.
const MOST_PAUSES: u32 = 4_000;

/// A spin budget for one wait: some pauses, at most two yields, then the caller must park.
///
/// The budget follows the machine, because spinning helps only if the awaited thread runs meanwhile. With one
/// processor it is empty. Otherwise it is three microseconds of pauses, which is less than a park and a wake-up cost
/// both sides. It has yields only with more than two processors. Under a model checker it is empty, which is the
/// shorter path to every interleaving.
///
/// ```
/// # use foreshore_sync::SpinWait;
/// # let (try_lock, park) = (|| true, || ());
/// let mut spin = SpinWait::new();
/// while !try_lock() {
///     if !spin.spin() {
///         park();
///     }
/// }
/// ```
#[derive(Debug)]
pub struct SpinWait {
    pauses_left: u32,
    yields_left: u32,
    burst: u32,
    slow_yield: bool,
}

/// A yield that takes longer has let another thread run for a while: a park would have cost less.
const SLOW_YIELD: Duration = Duration::from_micros(3);

impl SpinWait {
    /// A full budget.
    #[expect(clippy::new_without_default, reason = "a wait starts on purpose")]
    pub fn new() -> Self {
        if REPLAYS {
            return Self::none();
        }
        Self::for_parallelism(available_parallelism(), pauses_in_budget())
    }

    fn for_parallelism(parallelism: usize, pauses: u32) -> Self {
        let pauses_left = if parallelism > 1 { pauses } else { 0 };
        Self { pauses_left, yields_left: if parallelism > 2 { 2 } else { 0 }, ..Self::none() }
    }

    /// An empty budget.
    pub(crate) fn none() -> Self {
        Self { pauses_left: 0, yields_left: 0, burst: 1, slow_yield: false }
    }

    /// Returns whether a yield has taken so long that spinning was the wrong choice; the remaining budget is then
    /// empty.
    pub(crate) fn yields_slowly(&self) -> bool {
        self.slow_yield
    }

    /// Spends a part of the budget; returns false if none is left and the caller must park.
    ///
    /// Pauses come in bursts of 1, 2, 4, 8 ..., so that a short wait is noticed soon and a long one rarely reads the
    /// word.
    #[inline]
    pub fn spin(&mut self) -> bool {
        if self.pauses_left > 0 {
            let burst = self.burst.min(self.pauses_left);
            // WAIT: window - bounded by the budget, three microseconds and then two yields.
            for _ in 0..burst {
                crate::primitive::hint::spin_loop();
            }
            self.pauses_left -= burst;
            self.burst *= 2;
            return true;
        }
        if self.yields_left > 0 {
            self.yields_left -= 1;
            let begin = Instant::now();
            crate::primitive::thread::yield_now();
            if begin.elapsed() > SLOW_YIELD {
                self.slow_yield = true;
                self.yields_left = 0;
            }
            return true;
        }
        false
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_take_the_time_of_the_budget() {
        // Nanoseconds of one pause, and the number of pauses.
        for (pause, expected) in [(0, MOST_PAUSES), (3, 1000), (50, 60), (190, 15), (3000, 1), (3001, 0), (50_000, 0)] {
            let took = Duration::from_nanos(pause * u64::from(PROBE));
            assert_eq!(pauses_by(|| took), expected, "{pause} ns");
            let mut interrupted = [40, 2, 1, 7, 3].map(|times| took * times).into_iter();
            assert_eq!(pauses_by(|| interrupted.next().expect("so many probes")), expected, "{pause} ns, mostly");
        }
        let pauses = pauses_in_budget();
        assert!(pauses <= MOST_PAUSES && pauses == pauses_in_budget(), "measured once");
    }

    #[test]
    fn every_budget_ends() {
        for (parallelism, pauses, yields) in [(1, 0, 0), (2, 7, 0), (8, 7, 2)] {
            let mut spin = SpinWait::for_parallelism(parallelism, 100);
            let mut rounds = 0;
            while spin.spin() {
                rounds += 1;
            }
            // A slow yield is the last one.
            let expected = pauses + yields.min(1)..=pauses + yields;
            assert!(expected.contains(&rounds), "{rounds} rounds with {parallelism} processors");
            assert!(!spin.spin(), "an empty budget stays empty");
        }
    }
}
