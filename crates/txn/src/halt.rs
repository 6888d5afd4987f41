//! The stop of all transactions. It happens when the log has stopped, a rollback has failed, or the database closes.
//!
//! 1. The flag is set. A transaction that is granted a lock checks it before it continues.
//! 2. All waits for locks end with the cause.
//! 3. The waits for undo space and for a session are notified. Each waiter checks for the cause and ends.

use foreshore_base::{Error, Result};
use foreshore_lock::LockManager;
use foreshore_sync::EventCount;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_wal::Log;
use std::io;
use std::sync::Arc;

/// Ends all waits of transactions, once.
pub(crate) struct Halt {
    log: Log,
    locks: Arc<LockManager>,
    /// Whether transactions have stopped. Rows of a failed rollback stay locked, so no transaction may wait for them.
    is_halted: AtomicBool,
    /// The events on which transactions wait for undo space and for a session.
    waits: [Arc<EventCount>; 2],
}

impl Halt {
    /// Returns a stop that is also triggered when `log` stops.
    pub(crate) fn new(log: Log, locks: Arc<LockManager>, waits: [Arc<EventCount>; 2]) -> Arc<Self> {
        let halt = Arc::new(Self { log, locks, is_halted: AtomicBool::new(false), waits });
        let weak = Arc::downgrade(&halt);
        halt.log.on_stop(move || {
            if let Some(halt) = weak.upgrade() {
                halt.stop(&halt.log.poisoned().unwrap_or(Error::Closed));
            }
        });
        halt
    }

    /// Stops the log because of `cause`, and with it all waits.
    pub(crate) fn halt(&self, cause: &Error) {
        self.log.poison(cause);
        self.stop(&Error::poisoned(cause));
    }

    /// Ends all waits with `cause`. The caller holds no lock above
    /// [`LockRank::Database`](foreshore_sync::LockRank::Database).
    pub(crate) fn stop(&self, cause: &Error) {
        // ORDERING: Release, pairs with `is_set`; waiters are woken after it.
        self.is_halted.store(true, Ordering::Release);
        self.locks.stop(cause);
        self.waits.iter().for_each(|event| event.notify_all());
    }

    /// Returns whether transactions have stopped.
    pub(crate) fn is_set(&self) -> bool {
        // ORDERING: Acquire, pairs with `stop`.
        self.is_halted.load(Ordering::Acquire)
    }

    /// Fails if transactions have stopped.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.locks.waits().stopped().cloned().or_else(|| self.log.poisoned()).map_or(Ok(()), Err)
    }
}

/// A guard that stops all transactions if a rollback panics. The rows of that rollback stay as they are, and no
/// transaction may wait for them.
pub(crate) struct HaltOnPanic<'a>(&'a Halt);

impl<'a> HaltOnPanic<'a> {
    pub(crate) const fn new(halt: &'a Halt) -> Self {
        Self(halt)
    }

    /// Ends the guard after the rollback has returned without a panic.
    pub(crate) const fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for HaltOnPanic<'_> {
    fn drop(&mut self) {
        self.0.halt(&Error::io("undo", "a transaction", io::Error::other("it panicked")));
    }
}
