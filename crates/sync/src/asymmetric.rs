//! An asymmetric fence: cheap on the side that runs often, expensive on the side that runs rarely.
//!
//! The pattern "store, fence, look" needs a full fence on both sides, each as expensive as the work of a short
//! operation. On Linux the rare side can pay for both. `membarrier(2)` returns only after every running thread of the
//! process has passed a full fence between the beginning and the end of the call. A thread that was not running passes
//! one when it is scheduled.
//!
//! The call interrupts all processors that run the process. So it pays only if many light sides run between two heavy
//! ones. The heavy side says whether they do.

use crate::primitive::atomic::{AtomicBool, Ordering, fence};
use std::io;

/// Makes every other thread of the process pass a full fence.
type Call = fn() -> io::Result<()>;

/// A pair of fences: a light one and a heavy one.
///
/// Two threads each store, fence and read the other's store. If one fence is heavy and the other light, or both are
/// heavy, at least one thread sees the other's store. Two light fences order nothing. Heavy sides run one at a time,
/// each ordered after the one before by a lock of the caller.
///
/// A heavy side leaves the later light ones *spared* or not. Spared ones make no fence. Then each heavy side calls the
/// system until one ends the sparing; that one is the last to call.
///
/// *Why.* A heavy side that calls makes the thread of the light side pass a full fence at some point `P`. If the light
/// side's store comes before `P` in its program, it is visible when the call returns, and the heavy side sees it.
/// Otherwise the light side's read comes after `P` too, since the compiler keeps their order, and sees what was stored
/// before the call.
///
/// A heavy side `h` that does not call comes after one, `t`, that called and ended the sparing. The light side checks
/// between its store and its read whether it is spared. If it is not, both sides make a full fence. If it is, by a
/// sparing that ended with `t` or before, it checked before its `P` of `t`, so its store is visible to `t` and all
/// after it. If it is, by a later sparing, it acquires what `h` stored before.
///
/// If the system refuses the call, and under a model checker, no side is spared: both are `fence(SeqCst)`.
///
/// A call may be refused after it was granted, for instance by a new system-call filter. Spared light sides have then
/// made no fence, which cannot be repaired. So the heavy side returns the error, and what it reads is unreliable.
///
/// The call costs about a microsecond, more on a machine of many processors. It also waits for a virtual processor
/// that its host has stopped.
#[derive(Debug)]
pub struct AsymmetricFence {
    /// The system's call; `None` if both sides fence.
    others: Option<Call>,
    /// Whether light sides make no fence. Written by heavy sides.
    spared: AtomicBool,
}

impl AsymmetricFence {
    /// Registers with the system. In a process of several threads, the first call takes about ten milliseconds.
    #[expect(clippy::new_without_default, reason = "it makes a system call")]
    pub fn new() -> Self {
        Self::by(register())
    }

    /// Uses `others` in place of the system's call, or none: for tests of refusals.
    pub fn by(others: Option<Call>) -> Self {
        Self { others, spared: AtomicBool::new(false) }
    }

    /// The fence of the side that runs often.
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

    /// The fence of the side that runs rarely. `spare` says whether the light sides before the next heavy one will
    /// cost more than the system's call.
    ///
    /// # Errors
    /// If the system refuses a call that it has granted before: what this side reads from now on, and later ones, is
    /// unreliable.
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

/// An [`AsymmetricFence`] whose light sides are always spared, if the system permits. Heavy sides may run at once, and
/// each one calls the system.
///
/// This is for pairs whose light side runs in most operations, and whose heavy side runs so rarely that the cost of the
/// call does not matter.
///
/// *Why one side sees the other.* The first paragraph of the reasons above: let `P` be the point where the call makes
/// the light side's thread pass a fence. If the light store comes before `P`, the heavy side sees it. If not, neither
/// does the light read, which then sees what was stored before the call. Heavy sides need no order among each other,
/// because none relies on the call of another one.
///
/// In a model both sides are `fence(SeqCst)`. So a model does not find a protocol that relies on two light sides.
#[derive(Debug)]
pub struct SparingFence {
    /// The system's call; `None` if both sides fence.
    others: Option<Call>,
}

impl SparingFence {
    /// Registers with the system, as [`AsymmetricFence::new`] does.
    #[expect(clippy::new_without_default, reason = "it makes a system call")]
    pub fn new() -> Self {
        Self::by(register())
    }

    /// Uses `others` in place of the system's call, or none: for tests of refusals.
    pub const fn by(others: Option<Call>) -> Self {
        Self { others }
    }

    /// The fence of the side that runs often.
    #[inline(always)]
    pub fn light(&self) {
        if self.others.is_some() {
            compiler_fence();
        } else {
            // ORDERING: SeqCst, pairs with the fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// The fence of the side that runs rarely.
    ///
    /// # Panics
    /// If the system refuses a call that it has granted before. Light sides have made no fence then, and no other way
    /// to order them is left.
    #[cold]
    pub fn heavy(&self) {
        // ORDERING: SeqCst, pairs with the fence in `light` where that is one, and with other fences.
        fence(Ordering::SeqCst);
        if let Some(Err(refusal)) = self.others.map(|others| others()) {
            panic!("the system has granted membarrier(2), and refuses it now: {refusal}");
        }
    }
}

/// Keeps the compiler from moving accesses across.
#[inline(always)]
fn compiler_fence() {
    // Never reached under a model checker, which does not know compiler fences.
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    // ORDERING: SeqCst, no access is moved across in either direction; `heavy` takes care of the processor.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Returns the system's call, if this process may make it from now on.
#[cfg(all(target_os = "linux", not(any(foreshore_loom, foreshore_shuttle, foreshore_sim))))]
fn register() -> Option<Call> {
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::sync::OnceLock;
    // The process is registered, and so are its children by fork(2).
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    let is_registered = IS_REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    is_registered.then_some(|| Ok(membarrier(MembarrierCommand::PrivateExpedited)?))
}

/// If only one thread runs at a time, each switch is a fence of both.
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

    /// Most reads of the light side: the test ends if the heavy side is slow.
    const LIMIT: usize = 8 << 20;
    const HEAVY: usize = 20_000;

    /// Each side stores its round and reads the other's, as fast as it can. `heavy` gets the round.
    fn no_pair_is_blind(light_fence: impl Fn() + Sync, heavy_fence: impl Fn(u64)) {
        let [often, seldom] = [0, 0].map(|zero| CachePadded::new(AtomicU64::new(zero)));
        // What each side has seen in each of its rounds.
        let (light, heavy) = thread::scope(|scope| {
            let light = scope.spawn(|| {
                let mut seen = Vec::new();
                while seen.len() < LIMIT && seen.last() != Some(&(HEAVY as u64)) {
                    // ORDERING: Relaxed on both, the fence under test orders them.
                    often.store(seen.len() as u64 + 1, Ordering::Relaxed);
                    light_fence();
                    // ORDERING: as above.
                    seen.push(seldom.load(Ordering::Relaxed));
                }
                seen
            });
            let look = |round| {
                // ORDERING: Relaxed on both, the fence under test orders them.
                seldom.store(round, Ordering::Relaxed);
                heavy_fence(round);
                // ORDERING: as above.
                often.load(Ordering::Relaxed)
            };
            // A heavy side that does nothing would finish before the other begins.
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
        let fence = AsymmetricFence::new();
        no_pair_is_blind(|| fence.light(), |_| fence.heavy(true).expect("the system goes on"));
    }

    #[test]
    fn one_of_two_sides_sees_the_other_while_sparing_comes_and_goes() {
        let fence = AsymmetricFence::new();
        let spares = |round: u64| round & round >> 1 & 1 == 1;
        no_pair_is_blind(|| fence.light(), |round| fence.heavy(spares(round)).expect("the system goes on"));
    }

    #[test]
    fn one_of_two_sides_sees_the_other_where_the_system_refuses() {
        let fence = AsymmetricFence::by(None);
        no_pair_is_blind(|| fence.light(), |_| fence.heavy(true).expect("no call is made"));
    }

    #[test]
    fn one_of_two_sides_sees_the_other_if_all_light_ones_are_spared() {
        for fence in [SparingFence::new(), SparingFence::by(None)] {
            no_pair_is_blind(|| fence.light(), |_| fence.heavy());
        }
    }

    #[test]
    #[should_panic(expected = "refuses it now: permission denied")]
    fn a_call_refused_later_is_a_panic_where_all_light_sides_are_spared() {
        SparingFence::by(Some(|| Err(io::ErrorKind::PermissionDenied.into()))).heavy();
    }

    #[test]
    fn a_call_refused_later_is_an_error_as_long_as_a_fence_may_be_spared() {
        let fence = AsymmetricFence::by(Some(|| Err(io::ErrorKind::PermissionDenied.into())));
        fence.heavy(false).expect("nobody is spared");
        for spare in [true, false] {
            assert_eq!(fence.heavy(spare).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
