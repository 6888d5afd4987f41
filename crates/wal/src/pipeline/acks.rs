//! Acknowledgements without a waiting thread.
//!
//! | kind | called by |
//! |---|---|
//! | callbacks and wakers of tickets | a thread that holds no lock of the engine, see below |
//! | releases, which only release resources and never wait | the thread that completes the group, at once |
//! | callbacks for the end of the log | a thread that holds no lock of the engine |
//!
//! The thread without locks is the first of these:
//!
//! - a flusher, after its group, or signalled by a thread that completes a group inside the engine;
//! - a thread that has waited for a ticket, before it returns to its caller;
//! - the session with that shard, after its next commit, when the commit has released its locks.

use super::progress::Progress;
use super::shards::{Call, Key, Shards};
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::sync::Arc;
use std::task::Waker;

/// A callback. The flag says whether the LSN that it waits for is durable; if not, the log has stopped.
pub type Callback = Box<dyn FnOnce(bool) + Send>;

/// The waiting calls, by kind.
pub struct Acks {
    progress: Arc<Progress>,
    tickets: Shards,
    /// Called before those of tickets, whose callbacks may wait for the released resources.
    releases: Shards,
    /// Called when the log stops.
    stops: Shards,
}

impl Acks {
    /// Creates the shards for `slots` sessions.
    pub(super) fn new(slots: usize, progress: Arc<Progress>) -> Self {
        Self { progress, tickets: Shards::new(slots), releases: Shards::new(slots), stops: Shards::new(1) }
    }

    /// Registers the waker of a future in place of the one under `old`, without a request for a group. Returns `None`
    /// if there is nothing to wait for.
    pub fn watch(&self, slot: usize, lsn: Lsn, old: Option<Key>, waker: &Waker) -> Option<Key> {
        old.into_iter().for_each(|old| self.unwatch(old));
        let key = self.tickets.add(slot, lsn, Call::Waker(waker.clone()));
        // ORDERING: first row of the table of `shards`.
        fence(Ordering::SeqCst);
        if self.progress.answered().0 >= lsn && !mutant("acks: no check after the registration") {
            self.unwatch(key);
            return None;
        }
        Some(key)
    }

    /// Removes the waker of a future, if it is still registered.
    pub fn unwatch(&self, key: Key) {
        self.tickets.remove(key);
    }

    /// Registers a callback of a ticket. The caller requests its group, then calls [`Self::acknowledge`].
    pub(super) fn add_callback(&self, slot: usize, lsn: Lsn, function: Callback) {
        self.tickets.add(slot, lsn, Call::Function(function));
    }

    /// Registers a release. The caller requests its group, then calls [`Self::release`].
    pub(super) fn add_release(&self, slot: usize, lsn: Lsn, function: Callback) {
        let is_late = mutant("pipeline: releases among callbacks");
        let releases = if is_late { &self.tickets } else { &self.releases };
        releases.add(slot, lsn, Call::Function(function));
    }

    /// Calls `function` once when the log has stopped, on a thread that holds no lock.
    pub fn call_when_stopped(&self, function: Box<dyn FnOnce() + Send>) {
        // Nothing becomes durable up to that stamp.
        self.stops.add(0, Lsn(u64::MAX - 1), Call::Function(Box::new(|_| function())));
        // ORDERING: both rows of the table of `shards`.
        fence(Ordering::SeqCst);
        self.stops.call(0, || self.progress.answered());
    }

    /// Makes the due calls of the shard of `slot`. The thread holds no lock.
    #[inline]
    pub fn acknowledge(&self, slot: usize) {
        // A call that this misses is made by the thread that registers it, or by one that completes its group.
        if self.tickets.has_any(slot) {
            self.acknowledge_shard(slot);
        }
    }

    #[cold]
    fn acknowledge_shard(&self, slot: usize) {
        // ORDERING: both rows of the table of `shards`.
        fence(Ordering::SeqCst);
        self.tickets.call(slot, || self.progress.answered());
    }

    /// Makes the due calls of all shards. The thread holds no lock.
    pub fn acknowledge_all(&self) {
        // ORDERING: both rows of the table of `shards`.
        fence(Ordering::SeqCst);
        self.stops.call_all(|| self.progress.answered());
        self.tickets.call_all(|| self.progress.answered());
    }

    /// Whether a callback or waker is due that no thread is about to call. Behind a `SeqCst` fence.
    pub(super) fn has_due(&self) -> bool {
        let answered = || self.progress.answered();
        self.tickets.is_due(answered) || self.stops.is_due(answered)
    }

    /// Makes the due releases. Behind a `SeqCst` fence.
    pub(super) fn release(&self) {
        self.releases.call_all(|| self.progress.answered());
    }

    /// Returns the number of futures and callbacks that wait.
    pub fn outstanding(&self) -> usize {
        self.tickets.outstanding()
    }

    /// Returns the number of callbacks and wakers that panicked.
    pub fn panics(&self) -> u64 {
        self.tickets.panics() + self.releases.panics()
    }
}
