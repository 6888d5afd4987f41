//! Spinning only if it pays.
//!
//! Source: the idea is from RocksDB's write thread (`AwaitState`): a credit per place in the code, learnt from
//! samples.

use crate::SpinWait;
use crate::primitive::REPLAYS;
use crate::primitive::atomic::{AtomicI32, Ordering};

/// One wait in this many is a sample. A power of two.
const SAMPLE: u32 = 256;

/// What a lost sample takes from the credit; one that won adds three times that. A budget of pauses costs about a
/// quarter of a park and a wake-up, so the credit is zero if one spin in four wins.
const STEP: i32 = 1 << 16;

/// Each sample moves the credit by this part of itself towards zero. So it stays within 32 steps of losses and 96 of
/// wins, and forgets what was before the last fifty or so samples.
const FADE: i32 = 32;

/// The experience of one place where threads wait: whether a spin before the park usually ends the wait.
///
/// With a negative credit threads park at once, except for the samples, which continue to try. The credit is a hint
/// that threads overwrite for each other. Its cache line is read by every wait and written by one in 256.
///
/// ```
/// # use foreshore_sync::SpinSite;
/// # let (site, try_lock, park) = (SpinSite::new(), || true, || ());
/// let mut spin = site.begin();
/// while !try_lock() {
///     if !spin.spin() {
///         park();
///     }
/// }
/// spin.end();
/// ```
#[derive(Debug)]
pub struct SpinSite {
    credit: AtomicI32,
}

impl Default for SpinSite {
    fn default() -> Self {
        Self::new()
    }
}

impl SpinSite {
    /// A place without experience: it spins.
    pub fn new() -> Self {
        Self { credit: AtomicI32::new(0) }
    }

    /// Returns a budget for one wait, which is empty if spinning does not pay.
    #[inline]
    pub fn begin(&self) -> SiteSpin<'_> {
        if REPLAYS {
            // No thread spins there, and a model is smaller without the credit.
            return SiteSpin { spin: SpinWait::none(), sampled_at: None, tried: false };
        }
        self.begin_as(is_sample())
    }

    #[inline]
    fn begin_as(&self, sample: bool) -> SiteSpin<'_> {
        // ORDERING: hint, a stale credit costs a spin.
        let pays = sample || self.credit.load(Ordering::Relaxed) >= 0;
        let spin = if pays { SpinWait::new() } else { SpinWait::none() };
        SiteSpin { spin, sampled_at: sample.then_some(self), tried: false }
    }

    fn learn(&self, won: bool) {
        // ORDERING: hint, a sample that another one overwrites is lost, which does no harm.
        let credit = self.credit.load(Ordering::Relaxed);
        let credit = credit - credit / FADE + if won { 3 * STEP } else { -STEP };
        self.credit.store(credit, Ordering::Relaxed);
    }
}

/// The spin budget of one wait at a [`SpinSite`].
#[derive(Debug)]
pub struct SiteSpin<'a> {
    spin: SpinWait,
    /// Where to record the outcome, once.
    sampled_at: Option<&'a SpinSite>,
    tried: bool,
}

impl SiteSpin<'_> {
    /// As [`SpinWait::spin`]: spends a part of the budget; false when there is none left and the caller must park.
    #[inline]
    pub fn spin(&mut self) -> bool {
        // WAIT: window - as bounded as `SpinWait`.
        let spun = self.spin.spin();
        self.tried |= spun;
        if !spun || self.spin.yields_slowly() {
            self.lost();
        }
        spun
    }

    /// Says that the wait was successful. A wait that had to park before has lost already, and one that never spun
    /// says nothing.
    #[inline]
    pub fn end(mut self) {
        if self.tried
            && let Some(site) = self.sampled_at.take()
        {
            site.learn(true);
        }
    }

    fn lost(&mut self) {
        if let Some(site) = self.sampled_at.take() {
            site.learn(false);
        }
    }
}

/// Returns whether this wait is one of the calling thread's samples.
#[inline]
fn is_sample() -> bool {
    std::thread_local! {
        static STATE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    // A linear congruential generator of full period, of which the top bits are used: no rhythm of the caller matches
    // it.
    STATE.with(|state| {
        let next = state.get().wrapping_mul(0x915f_77f5).wrapping_add(0x3c6e_f35f);
        state.set(next);
        next < u32::MAX / SAMPLE
    })
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    /// Sampled waits that end after `rounds` rounds of spinning, or in a park.
    fn sampled(site: &SpinSite, count: usize, rounds: usize) {
        for _ in 0..count {
            let mut spin = site.begin_as(true);
            let mut left = rounds;
            while left > 0 && spin.spin() {
                left -= 1;
            }
            spin.end();
        }
    }

    fn spins(site: &SpinSite) -> bool {
        site.begin_as(false).spin()
    }

    #[test]
    fn a_place_where_spins_are_vain_stops_and_learns_again() {
        if !SpinWait::new().spin() {
            // With one processor there is nothing to learn: no thread spins.
            return;
        }
        let site = SpinSite::new();
        assert!(spins(&site), "it tries at first");
        sampled(&site, 1, usize::MAX);
        assert!(!spins(&site), "one vain spin is enough at first");
        sampled(&site, 1_000, usize::MAX);
        assert!(site.credit.load(Ordering::Relaxed) >= -FADE * STEP, "the credit is bounded");
        sampled(&site, 5, 1);
        assert!(!spins(&site), "some luck after many losses");
        sampled(&site, 30, 1);
        assert!(spins(&site), "the samples have found that it pays now");
        sampled(&site, 100_000, 1);
        assert!(site.credit.load(Ordering::Relaxed) <= 3 * FADE * STEP, "the credit is bounded");
    }

    #[test]
    fn one_win_in_three_pays_and_one_in_six_does_not() {
        for (wins_every, pays) in [(3, true), (6, false)] {
            let site = SpinSite::new();
            for round in 0..1_200 {
                site.learn(round % wins_every == 0);
            }
            assert_eq!(site.credit.load(Ordering::Relaxed) >= 0, pays, "one win in {wins_every}");
        }
    }

    #[test]
    fn a_wait_that_needed_no_spin_teaches_nothing() {
        let site = SpinSite::new();
        sampled(&site, 100, 0);
        assert_eq!(site.credit.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn about_one_wait_in_256_is_a_sample() {
        let samples = (0..256_000).filter(|_| is_sample()).count();
        assert!((700..1300).contains(&samples), "{samples} of 256000");
    }
}
