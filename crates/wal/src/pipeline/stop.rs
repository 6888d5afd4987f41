//! The end of a log: the first cause stays, and all waits end with it.

use foreshore_base::Error;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{LockRank, Mutex};

/// Whether the log has stopped, and why.
#[derive(Debug)]
pub(super) struct Stop {
    poisoned: AtomicBool,
    cause: Mutex<Option<Error>>,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self { poisoned: AtomicBool::new(false), cause: Mutex::new(LockRank::LogWaiters, None) }
    }

    /// Whether the log has stopped.
    pub(super) fn is_set(&self) -> bool {
        // ORDERING: Acquire, the cause is set before; pairs with `set`.
        self.poisoned.load(Ordering::Acquire)
    }

    /// Stops the log. A full hand-off follows.
    pub(super) fn set(&self, cause: &Error) {
        self.cause.lock().get_or_insert_with(|| cause.clone());
        // ORDERING: Release, publishes the cause; the fence in `hand_off` orders it before the read of the waiters.
        self.poisoned.store(true, Ordering::Release);
    }

    /// The error that all callers get once the log has stopped.
    #[cold]
    pub(super) fn error(&self) -> Error {
        let cause = self.cause.lock().clone();
        Error::poisoned(&cause.expect("the cause is set before the flag"))
    }
}
