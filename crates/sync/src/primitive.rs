//! The shim: std, loom under `--cfg foreshore_loom`, shuttle under `--cfg foreshore_shuttle`, and std with a seeded
//! scheduler under `--cfg foreshore_sim`.
//!
//! Code that uses only these names runs unchanged inside `model::check` and `model::shuttle`. Some differences remain
//! visible. loom's constructors are not `const`, and its `SeqCst` accesses order no more than `AcqRel` ones, so a
//! protocol that needs the single total order states it with [`atomic::fence`]. shuttle treats every access as
//! `SeqCst`: it finds unexpected interleavings, and no missing fence. Neither has time: a timed wait may end at once.

#[cfg(foreshore_loom)]
use loom as platform;
#[cfg(foreshore_shuttle)]
use shuttle as platform;
#[cfg(not(any(foreshore_loom, foreshore_shuttle, foreshore_sim)))]
use std as platform;

#[cfg(foreshore_sim)]
use crate::schedule::platform;

#[cfg(foreshore_loom)]
pub use loom::{cell::UnsafeCell, sync::Arc};
#[cfg(not(foreshore_loom))]
pub use std::sync::Arc;

/// Whether this build runs under a model checker: capacities shrink, and pauses are left out.
pub const MODEL: bool = cfg!(any(foreshore_loom, foreshore_shuttle));

/// Whether a thread's behaviour depends only on its input and the interleaving: no measured pauses, no addresses as
/// hashes. True under a model checker and under the scheduler of a simulation.
pub const REPLAYS: bool = MODEL || cfg!(foreshore_sim);

/// Atomic integers, their orderings and fences.
pub mod atomic {
    pub use super::platform::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads. Engine code starts them only through [`crate::spawn`]; tests use these directly.
pub mod thread {
    #[cfg(not(foreshore_loom))]
    pub use super::platform::thread::scope;
    pub use super::platform::thread::{JoinHandle, Thread, current, park, spawn, yield_now};
}

/// Hints to the processor.
pub mod hint {
    pub use super::platform::hint::spin_loop;

    /// Prefetches the first cache line of `bytes`, if the processor has a prefetch.
    #[inline]
    pub fn prefetch(bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: nothing is read that the program sees, and the address need not be valid.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = bytes;
    }
}

/// The locks below [`crate::Mutex`], [`crate::Condvar`] and [`crate::RwLock`].
pub(crate) mod raw {
    pub(crate) use super::platform::sync::{Condvar, Mutex, MutexGuard, RwLock};
}

/// Returns whether a timed wait ends here by timeout: always under loom, which tries all interleavings anyway.
#[cfg(foreshore_loom)]
pub(crate) fn time_is_over() -> bool {
    true
}

/// Returns whether a timed wait ends here by timeout: at random, in the same way in a replay.
#[cfg(foreshore_shuttle)]
pub(crate) fn time_is_over() -> bool {
    shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5)
}

/// A cell whose accesses loom can see: a closure gets the pointer instead of the caller.
#[cfg(not(foreshore_loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

#[cfg(not(foreshore_loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cfg(not(foreshore_loom))]
impl<T: ?Sized> UnsafeCell<T> {
    /// Passes a pointer for reading to `f`. To dereference it, no writer may run during the closure.
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Passes a pointer for writing to `f`. To dereference it, the closure needs exclusive access.
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
