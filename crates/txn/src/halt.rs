//! The stop of all transactions: because the log has stopped, a rollback has failed, or the database closes.
//!
//! 1. The flag is set. A transaction that is let on by a lock looks at it before it goes on.
//! 2. All waits for locks end with the cause.
//! 3. The waits for undo space and for a session are notified. Each looks for the cause and ends.

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
    /// Rows of a rollback that failed stay locked for ever, and no transaction may wait for them.
    is_halted: AtomicBool,
    /// Where transactions wait for something else than locks.
    waits: [Arc<EventCount>; 2],
}

impl Halt {
    /// A stop that also comes when `log` stops.
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

    /// Stops the log because of `cause`, and so all waits.
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

    /// Refuses to go on where transactions have stopped.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.locks.waits().stopped().cloned().or_else(|| self.log.poisoned()).map_or(Ok(()), Err)
    }
}

/// Stops all transactions if a rollback unwinds: its rows stay as they are, and no transaction may wait for them.
pub(crate) struct HaltOnPanic<'a>(&'a Halt);

impl<'a> HaltOnPanic<'a> {
    pub(crate) const fn new(halt: &'a Halt) -> Self {
        Self(halt)
    }

    /// Ends the guard: nothing has unwound.
    pub(crate) const fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for HaltOnPanic<'_> {
    fn drop(&mut self) {
        self.0.halt(&Error::io("undo", "a transaction", io::Error::other("it panicked")));
    }
}
