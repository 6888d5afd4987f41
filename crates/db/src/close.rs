//! Closing a database.

use crate::engine::{CLOSED, CLOSING, Engine};
use foreshore_base::{Error, Result};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering, fence};
use foreshore_sync::{Clock, EventCount, Nanos, SystemClock, pause};
use std::{sync::Arc, time::Duration};

/// The wait of a close for running transactions, until the earliest end that any call of `close` asks for.
///
/// **Invariant:** the end never moves to a later time. So a call waits no longer than it asks for, even if another call
/// closes.
pub(crate) struct Idle {
    /// Notified when a transaction has ended.
    pub(crate) event: EventCount,
    clock: SystemClock,
    until: AtomicU64,
}

impl Idle {
    pub(crate) fn new() -> Self {
        Self { event: EventCount::new(), clock: SystemClock::new(), until: AtomicU64::new(Nanos::MAX.0) }
    }

    /// Asks for an end `wait` from now.
    fn lower(&self, wait: Duration) {
        // ORDERING: Relaxed, the notification orders it before the check of the thread that waits.
        self.until.fetch_min((self.clock.now() + wait).0, Ordering::Relaxed);
        self.event.notify_all();
    }

    /// The time that is left.
    fn left(&self) -> Duration {
        // ORDERING: Relaxed, as in `lower`: read between `prepare` and `wait`.
        Nanos(self.until.load(Ordering::Relaxed)).since(self.clock.now())
    }
}

impl Engine {
    /// Closes the database once. Later calls wait for the first and find nothing to do. A later call with a shorter
    /// wait shortens the wait of the first.
    ///
    /// Callbacks of users run on the threads of the log, and may close the database themselves. So those threads are
    /// ended, and the callbacks that are left are called, when the lock is free.
    pub(crate) fn close(&self, wait: Duration) -> Result<()> {
        self.idle.lower(wait);
        let closed = self.close_under_lock();
        self.log.end_threads();
        closed
    }

    fn close_under_lock(&self) -> Result<()> {
        let mut closing = self.closing.lock();
        // ORDERING: hint. The mutex orders the writers, and this is one.
        if self.state.load(Ordering::Relaxed) == CLOSED {
            return Ok(());
        }
        // ORDERING: store, fence, look, pairs with `Engine::begin`: a transaction that is not counted below finds the
        // new state and does not begin.
        self.state.store(CLOSING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_quiet = self.wait_for_transactions();
        // ORDERING: hint, see `Engine::check_open`.
        self.state.store(CLOSED, Ordering::Relaxed);
        self.end_waits();
        self.checkpointer.retire();
        closing.daemons.clear();
        let finished = self.finish(is_quiet);
        pause::point("close: the last checkpoint is taken");
        self.pool.close();
        let stopped = self.log.force(self.log.current());
        // From here nothing reaches the disk. A thread that still waits for the log gets this error, and the gate
        // refuses operations in progress in other layers.
        self.log.poison(&Error::Closed);
        self.gate.shut();
        closing.lock = None;
        finished.and(stopped)
    }

    /// Ends all waits for other threads, with `Closed` or with the error that stopped the log.
    fn end_waits(&self) {
        self.txns.stop(&self.log.poisoned().unwrap_or(Error::Closed));
        self.queues.close();
    }

    /// Takes the final checkpoint. With transactions left it is an ordinary one, and the next open undoes them.
    fn finish(&self, is_quiet: bool) -> Result<()> {
        if let Some(cause) = self.log.poisoned() {
            return Err(Error::poisoned(&cause));
        }
        if !is_quiet {
            return self.checkpointer.checkpoint();
        }
        // Records for which no thread has waited, such as relaxed commits and freed pages, come before the checkpoint,
        // too.
        self.log.force(self.log.current())?;
        self.checkpointer.close()
    }

    /// Waits for all transactions until the deadline, and returns whether they have ended.
    fn wait_for_transactions(&self) -> bool {
        loop {
            let key = self.idle.event.prepare();
            if self.is_idle() {
                self.idle.event.cancel(key);
                return true;
            }
            let left = self.idle.left();
            if left.is_zero() {
                self.idle.event.cancel(key);
                return false;
            }
            // WAIT: park - for transactions to end or the deadline to be lowered, each of which notifies, or until that
            // time.
            self.idle.event.wait(key, Some(left));
        }
    }

    /// Opens the directory again, with the same options and file system.
    pub(crate) fn open_again(&self) -> crate::Result<Arc<Self>> {
        Self::lock_and_start(self.files.clone(), Arc::clone(&self.fs), &self.options)
    }
}
