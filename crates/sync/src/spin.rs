//! Bounded spinning in front of a park.

use crate::primitive::MODEL;
use crate::waits;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The number of threads this process can run at once, at least 1; read once, since the answer costs system calls.
pub fn available_parallelism() -> usize {
    static PARALLELISM: OnceLock<usize> = OnceLock::new();
    *PARALLELISM.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// A spin budget for one wait: some pauses, at most two yields, then the caller must park.
///
/// The budget follows the machine, because a spinner only helps where the thread it waits for runs meanwhile: none with
/// one processor, 16 pauses with two, 64 up to eight, 200 (about a microsecond) above. Yields come only above two
/// processors. Under a model checker the budget is empty, which is the shorter path to every interleaving.
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
        if MODEL {
            return Self::none();
        }
        Self::for_parallelism(available_parallelism())
    }

    fn for_parallelism(parallelism: usize) -> Self {
        let pauses_left = match parallelism {
            0 | 1 => 0,
            2 => 16,
            3..=8 => 64,
            _ => 200,
        };
        Self { pauses_left, yields_left: if parallelism > 2 { 2 } else { 0 }, ..Self::none() }
    }

    /// An empty budget.
    pub(crate) fn none() -> Self {
        Self { pauses_left: 0, yields_left: 0, burst: 1, slow_yield: false }
    }

    /// Whether a yield has taken so long that spinning was the wrong choice; the rest of the budget is gone then.
    pub(crate) fn yields_slowly(&self) -> bool {
        self.slow_yield
    }

    /// Spends a part of the budget; false when there is none left and the caller must park.
    ///
    /// Pauses come in bursts of 1, 2, 4, 8 ..., so that a short wait is noticed soon and a long one reads the word seldom.
    #[inline]
    pub fn spin(&mut self) -> bool {
        if self.pauses_left > 0 {
            if self.burst == 1 {
                waits::windowed();
            }
            let burst = self.burst.min(self.pauses_left);
            // WAIT: window - bounded by the budget, a microsecond at most and then two yields.
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
    fn every_budget_ends() {
        for (parallelism, pauses, yields) in [(1, 0, 0), (2, 5, 0), (8, 7, 2), (64, 8, 2)] {
            let mut spin = SpinWait::for_parallelism(parallelism);
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
