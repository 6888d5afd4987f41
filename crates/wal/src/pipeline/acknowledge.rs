//! Acknowledgements by callbacks and wakers.

use super::Pipeline;
use super::acks::{Acks, Call, Key};
use super::leader::Leader;
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::task::Waker;

/// The calls that wait, by kind.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// Of tickets.
    tickets: Acks,
    /// Calls that only give back. They come first: a callback of a ticket may wait for what they give.
    releases: Acks,
    /// Calls that wait for the end of the log.
    stops: Acks,
}

impl Acknowledgements {
    /// Shards for `slots` sessions.
    pub(super) fn new(slots: usize) -> Self {
        Self { tickets: Acks::new(slots), releases: Acks::new(slots), stops: Acks::new(1) }
    }
}

impl<L: Leader> Pipeline<L> {
    /// What may be answered, and what is durable: all and not all if the log has stopped.
    pub(super) fn acknowledged(&self) -> (Lsn, Lsn) {
        // In the order of `answer`.
        let stopped = self.is_poisoned();
        let durable = self.durable();
        (if stopped { Lsn(u64::MAX) } else { durable }, durable)
    }

    /// Registers a future's waker, in place of the one under `old`; `None` if there is nothing to wait for.
    pub fn register_waker(&self, slot: usize, lsn: Lsn, old: Option<Key>, waker: &Waker) -> Option<Key> {
        let key = self.watch(slot, lsn, old, waker);
        if key.is_some() && !mutant("pipeline: future does not ring") {
            self.ask(lsn);
        }
        key
    }

    /// Registers as [`Self::register_waker`] does, for a future that only watches: asks for no group.
    pub fn watch(&self, slot: usize, lsn: Lsn, old: Option<Key>, waker: &Waker) -> Option<Key> {
        if let Some(old) = old {
            self.acks.tickets.remove(old);
        }
        let key = self.acks.tickets.add(slot, lsn, Call::Waker(waker.clone()));
        // ORDERING: first row of the table of `acks`.
        fence(Ordering::SeqCst);
        if self.acknowledged().0 >= lsn && !mutant("acks: no look after the registration") {
            self.acks.tickets.remove(key);
            return None;
        }
        Some(key)
    }

    /// Takes a future's waker out, if it is still there.
    pub fn deregister_waker(&self, key: Key) {
        self.acks.tickets.remove(key);
    }

    /// Calls `function` once when `lsn` is durable, or when the log has stopped: on the thread that learns it, this one
    /// perhaps. The flag says whether `lsn` is durable.
    pub fn call_when_durable(&self, slot: usize, lsn: Lsn, function: Box<dyn FnOnce(bool) + Send>) {
        self.acks.tickets.add(slot, lsn, Call::Function(function));
        self.ask(lsn);
        if !mutant("acks: no look after the registration") {
            self.acknowledge(slot);
        }
    }

    /// Calls `function` in the same way, before all else that waits for as much. It must not wait itself.
    pub fn release_when_durable(&self, slot: usize, lsn: Lsn, function: Box<dyn FnOnce(bool) + Send>) {
        let releases =
            if mutant("pipeline: releases among callbacks") { &self.acks.tickets } else { &self.acks.releases };
        releases.add(slot, lsn, Call::Function(function));
        self.ask(lsn);
        // ORDERING: both rows of the table of `acks`.
        fence(Ordering::SeqCst);
        releases.call(slot, || self.acknowledged());
    }

    /// Calls what is due in the shard of `slot`.
    pub fn acknowledge(&self, slot: usize) {
        // ORDERING: both rows of the table of `acks`.
        fence(Ordering::SeqCst);
        self.acks.tickets.call(slot, || self.acknowledged());
    }

    /// Calls what is due in all shards. Called by a thread that holds nothing that users' code might want.
    pub fn acknowledge_all(&self) {
        // ORDERING: both rows of the table of `acks`.
        fence(Ordering::SeqCst);
        self.acks.stops.call_all(|| self.acknowledged());
        self.acks.tickets.call_all(|| self.acknowledged());
    }

    /// Whether a callback or waker is due that no thread is about to call. Behind a `SeqCst` fence.
    pub(super) fn has_due_calls(&self) -> bool {
        self.acks.tickets.is_due(|| self.acknowledged()) || self.acks.stops.is_due(|| self.acknowledged())
    }

    /// Calls `function` once when the log has stopped, on a thread that holds nothing.
    pub fn call_when_stopped(&self, function: Box<dyn FnOnce() + Send>) {
        // Nothing becomes durable up to that stamp.
        self.acks.stops.add(0, Lsn(u64::MAX - 1), Call::Function(Box::new(|_| function())));
        // ORDERING: both rows of the table of `acks`.
        fence(Ordering::SeqCst);
        self.acks.stops.call(0, || self.acknowledged());
    }

    /// Calls the releases that are due. Behind a `SeqCst` fence.
    pub(super) fn call_releases(&self) {
        self.acks.releases.call_all(|| self.acknowledged());
    }

    /// Futures and callbacks that wait.
    pub fn watchers(&self) -> usize {
        self.acks.tickets.outstanding()
    }

    /// Callbacks and wakers that panicked.
    pub fn callback_panics(&self) -> u64 {
        self.acks.tickets.panics() + self.acks.releases.panics()
    }
}
