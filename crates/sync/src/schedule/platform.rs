//! What a run sees of the platform, by std's names.

pub(crate) mod sync {
    pub(crate) use crate::schedule::lock::{Condvar, Mutex, MutexGuard, RwLock};

    pub(crate) mod atomic {
        pub use crate::schedule::atomic::{
            AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
        };
        pub use std::sync::atomic::Ordering;
    }
}

pub(crate) mod thread {
    pub use crate::schedule::yield_now;
    pub use std::thread::{JoinHandle, Thread, current, park, scope, spawn};
}

pub(crate) mod hint {
    /// Lets another thread run: the one that is spun for cannot otherwise.
    pub use crate::schedule::yield_now as spin_loop;
}
