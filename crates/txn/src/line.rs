//! The line of threads that want to begin a transaction while all sessions are in use.
//!
//! 1. A thread that finds no session enters the line, then waits for its turn.
//! 2. The first in line searches all shards. If it finds nothing it sleeps until a session comes back, and searches again.
//! 3. A thread that begins while others stand in line goes behind them, even if a session is idle.
//!
//! **No session is missed.** The first in line registers with `returned`, fences and searches. A thread that gives a session back puts
//! it into its shard, fences and looks whether others stand in line. One of the two sees the other.

use crate::manager::{Lease, TxnManager};
use crate::txn::TxnOptions;
use foreshore_base::{Error, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{Clock, Turns, pause};
use std::time::Duration;

/// Threads that wait for a session.
#[derive(Debug, Default)]
pub(crate) struct Line {
    standing: AtomicUsize,
    turns: Turns,
}

/// A place in the line.
struct Place<'a>(&'a Line);

impl Line {
    fn enter(&self) -> Place<'_> {
        // ORDERING: store, fence, look: the fence is that of `EventCount::prepare`; pairs with `is_any` in `give_back`.
        self.standing.fetch_add(1, Ordering::Relaxed);
        Place(self)
    }

    /// Whether a thread stands in it.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        // ORDERING: Relaxed. For a thread that begins it is a hint; one that gives a session back has fenced before.
        self.standing.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed, a count read too high only costs a notification.
        self.0.standing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TxnManager {
    /// A session for a transaction that has found none, after a wait in line.
    pub(crate) fn lease_in_line(&self, options: &TxnOptions) -> Result<Box<Lease>> {
        let most = options.time_for_a_session(self.locks.now());
        if most.is_zero() {
            return Err(self.no_session());
        }
        let until = self.time.now() + most;
        let _place = self.line.enter();
        // WAIT: park - for those in front, for no longer than the transaction waits.
        let Some(_turn) = self.line.turns.take(&self.time, most) else { return Err(self.no_session()) };
        loop {
            let key = self.returned.prepare();
            pause::point("txn: first in line");
            let found = self.stop_error().map_or_else(|| self.free_lease(false), Err);
            let left = until.since(self.time.now());
            if !matches!(found, Ok(None)) || left.is_zero() {
                self.returned.cancel(key);
                return found.and_then(|lease| lease.ok_or_else(|| self.no_session()));
            }
            // WAIT: park - for a transaction that ends and gives its session back.
            self.returned.wait(key, (most < Duration::MAX).then_some(left));
        }
    }

    /// Tells the first in line that a session has come back. Behind a full fence.
    #[inline]
    pub(crate) fn tell_line(&self) {
        if self.line.is_any() && !mutant("line: a session comes back without a word") {
            self.returned.notify_all();
        }
    }

    pub(crate) fn no_session(&self) -> Error {
        let oldest = self.locks.oldest().map_or("", |(label, _)| label);
        Error::TooManyTransactions { max: self.max_sessions, oldest }
    }
}
