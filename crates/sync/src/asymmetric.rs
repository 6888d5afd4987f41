//! A fence of two unequal sides: nearly free where it is passed often, dear where it is passed seldom.
//!
//! The pattern "store, fence, look" needs a full fence on both sides, and on each of them it costs as much as the work of a
//! short operation. On Linux the seldom side can pay for both: `membarrier(2)` returns only after every thread of the process
//! that ran meanwhile has passed a full fence, between the beginning of the call and its end. A thread that did not run
//! passes one when it is given the processor.
//!
//! The call interrupts all processors that run the process, so it is worth its price only if many light sides are passed
//! between two heavy ones. The heavy side says whether they are.

use crate::primitive::atomic::{AtomicBool, Ordering, fence};
use std::io;

/// Has every other thread of the process pass a full fence.
type Call = fn() -> io::Result<()>;

/// Fences that pair with each other, one kind light, one heavy.
///
/// Two threads that each store, fence and look at the other's store: if one fence is heavy and the other light, or both are
/// heavy, at least one of the two sees the other. Two light ones order nothing. Heavy sides come one at a time, each ordered
/// behind the one before by a lock of the caller.
///
/// A heavy side leaves the light ones behind it *spared* or not. Spared ones make no fence, and each heavy side calls the
/// system until one has spared them no longer; that one is the last to call.
///
/// *Why.* A heavy side that calls makes the thread of the light side pass a full fence somewhere, at `P`. If the light side's
/// store lies before `P` in its program, it is visible when the call returns, and the heavy side's look sees it. Else its look
/// lies behind `P` as well, since the compiler keeps the two in order, and sees what was stored before the call.
///
/// A heavy side `h` that does not call comes behind one, `t`, that called and ended the sparing. The light side looks whether
/// it is spared between its store and its look. If it finds that it is not, both sides make a full fence. If it finds that it
/// is by a sparing that ended with `t` or before, it looked before its `P` of `t`, so its store is visible to `t`
/// and all behind it. If by one that began later, it acquires what `h` stored before.
///
/// Where the system refuses the call, and under a model checker, nobody is spared: both sides are `fence(SeqCst)`.
///
/// A call that is refused after it was granted, as by a filter that was set up meanwhile, cannot be made up for: light sides
/// that were spared have made no fence. So the heavy side that gets the error has learnt nothing, and says so.
///
/// The call costs about a microsecond, more on a machine of many processors. A virtual processor that its host has stopped
/// holds it up until it runs again.
#[derive(Debug)]
pub struct AsymmetricFence {
    /// Makes the fence of the light side, if the system can.
    others: Option<Call>,
    /// Whether the light side makes none. Written by heavy sides.
    spared: AtomicBool,
}

impl AsymmetricFence {
    /// Asks the system. The first call in a process of several threads takes the system some ten milliseconds.
    #[expect(clippy::new_without_default, reason = "it makes a system call")]
    pub fn new() -> Self {
        Self::by(register())
    }

    /// With `others` in place of the system's call, or none: for tests of what follows a refusal.
    pub fn by(others: Option<Call>) -> Self {
        Self { others, spared: AtomicBool::new(false) }
    }

    /// The side that is passed often.
    #[inline(always)]
    pub fn light(&self) {
        compiler_fence();
        // ORDERING: Acquire, pairs with the store in `heavy`: see the third case above.
        if self.spared.load(Ordering::Acquire) {
            compiler_fence();
        } else {
            // ORDERING: SeqCst, pairs with the fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// The side that is passed seldom. `spare` says whether so many light sides are about to be passed before the next heavy
    /// one that together they cost more than the system's call.
    ///
    /// # Errors
    /// If the system refuses what it has granted before: what this side sees from now on, and what later ones see, means
    /// nothing.
    pub fn heavy(&self, spare: bool) -> io::Result<()> {
        // ORDERING: Relaxed, heavy sides alone store it, one at a time.
        let spared = self.spared.load(Ordering::Relaxed);
        let spare = spare && self.others.is_some();
        if spare != spared {
            // ORDERING: Release, pairs with the load in `light`.
            self.spared.store(spare, Ordering::Release);
        }
        // ORDERING: SeqCst, pairs with the fence in `light` where that is one, and with other fences.
        fence(Ordering::SeqCst);
        match self.others {
            Some(others) if spare || spared => others(),
            _ => Ok(()),
        }
    }
}

/// Keeps the compiler from moving accesses across.
#[inline(always)]
fn compiler_fence() {
    // Never reached under a model checker, which knows no such thing.
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    // ORDERING: SeqCst, no access is moved across in either direction; the processor is the business of `heavy`.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The system's call, if this process may make it from now on.
#[cfg(all(target_os = "linux", not(any(foreshore_loom, foreshore_shuttle, foreshore_sim))))]
fn register() -> Option<Call> {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited).ok()?;
    Some(|| Ok(membarrier(MembarrierCommand::PrivateExpedited)?))
}

/// Where one thread runs at a time, each switch is a fence of both.
#[cfg(foreshore_sim)]
#[expect(clippy::unnecessary_wraps, reason = "a system may refuse")]
fn register() -> Option<Call> {
    Some(|| Ok(()))
}

#[cfg(not(any(foreshore_sim, all(target_os = "linux", not(any(foreshore_loom, foreshore_shuttle))))))]
fn register() -> Option<Call> {
    None
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::CachePadded;
    use crate::primitive::atomic::AtomicU64;
    use crate::primitive::thread;

    /// Looks that the light side takes at most: the test ends where the heavy side is slow.
    const LIMIT: usize = 8 << 20;
    const HEAVY: usize = 20_000;

    /// Each side stores its round and looks at the other's, as fast as it can. `spare` says in which rounds of the heavy side
    /// the light one is spared.
    fn no_pair_is_blind(fence: &AsymmetricFence, spare: fn(u64) -> bool) {
        let [often, seldom] = [0, 0].map(|zero| CachePadded::new(AtomicU64::new(zero)));
        // What each side has seen in each of its rounds.
        let (light, heavy) = thread::scope(|scope| {
            let light = scope.spawn(|| {
                let mut seen = Vec::new();
                while seen.len() < LIMIT && seen.last() != Some(&(HEAVY as u64)) {
                    // ORDERING: Relaxed on both, the fence under test orders them.
                    often.store(seen.len() as u64 + 1, Ordering::Relaxed);
                    fence.light();
                    // ORDERING: as above.
                    seen.push(seldom.load(Ordering::Relaxed));
                }
                seen
            });
            let look = |round| {
                // ORDERING: Relaxed on both, the fence under test orders them.
                seldom.store(round, Ordering::Relaxed);
                fence.heavy(spare(round)).expect("the system goes on");
                // ORDERING: as above.
                often.load(Ordering::Relaxed)
            };
            // A heavy side that does nothing would be through before the other begins.
            // ORDERING: as above.
            while often.load(Ordering::Relaxed) == 0 {
                // WAIT: window - the other thread begins.
                thread::yield_now();
            }
            let heavy: Vec<u64> = (1..=HEAVY as u64).map(look).collect();
            (light.join().expect("the light side ends"), heavy)
        });
        for (round, saw) in (1..).zip(heavy) {
            // The first round of the light side that this one has not seen.
            let next = light.get(saw as usize);
            assert!(next.is_none_or(|&next| next >= round), "{round} saw {saw}, and the next one saw {next:?}");
        }
    }

    #[test]
    fn one_of_two_sides_sees_the_other() {
        no_pair_is_blind(&AsymmetricFence::new(), |_| true);
    }

    #[test]
    fn one_of_two_sides_sees_the_other_while_sparing_comes_and_goes() {
        no_pair_is_blind(&AsymmetricFence::new(), |round| round & round >> 1 & 1 == 1);
    }

    #[test]
    fn one_of_two_sides_sees_the_other_where_the_system_refuses() {
        no_pair_is_blind(&AsymmetricFence::by(None), |_| true);
    }

    #[test]
    fn a_call_refused_later_is_an_error_as_long_as_somebody_may_be_spared() {
        let fence = AsymmetricFence::by(Some(|| Err(io::ErrorKind::PermissionDenied.into())));
        fence.heavy(false).expect("nobody is spared");
        for spare in [true, false] {
            assert_eq!(fence.heavy(spare).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
