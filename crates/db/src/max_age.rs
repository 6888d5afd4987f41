//! Rollback of transactions that are older than [`Options::transaction_max_age`](crate::Options::transaction_max_age).
//!
//! With that option, the [`Seat`] of each user transaction shares the transaction's state with a background thread. The
//! thread wakes when the next transaction becomes too old. If that transaction has no operation in progress, the thread
//! takes it from its owner and rolls it back. An owner whose operation finds the transaction too old rolls it back
//! itself.

use crate::Error;
use crate::live::Live;
use crate::seat::{Aging, Seat, State};
use foreshore_sync::{Clock, LockRank, Mutex, Revoked, SystemClock, thread_index};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause before the next check of a transaction that is too old and has an operation in progress.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Number of lists. Several, so that threads that begin transactions rarely contend.
const SHARDS: usize = 16;
/// Least number of free entries after a full list was pruned.
const MIN_FREE: usize = 64;

/// The transactions that may become too old.
pub(crate) struct AgingTransactions {
    clock: SystemClock,
    max_age: Option<Duration>,
    /// Lists of transactions, by thread. A list keeps ended transactions until it is full, or the background thread
    /// prunes it.
    shards: Box<[Mutex<Vec<Weak<Aging>>>]>,
}

impl AgingTransactions {
    pub(crate) fn new(max_age: Option<Duration>) -> Self {
        let shards = if max_age.is_some() { SHARDS } else { 0 };
        let shards = (0..shards).map(|_| Mutex::new(LockRank::Leaf, Vec::new())).collect();
        Self { clock: SystemClock::new(), max_age, shards }
    }

    /// Returns the owner of `state` for a transaction that begins now. With a limit of age, lists the transaction.
    pub(crate) fn seat(&self, label: &'static str, state: State) -> Seat {
        if self.max_age.is_none() {
            return Seat::own(state);
        }
        let aging = Aging::new(label, self.clock.now(), state);
        let mut list = self.shards[thread_index() % SHARDS].lock();
        if list.len() == list.capacity() {
            list.retain(|aging| aging.strong_count() > 0);
            let more = list.len().max(MIN_FREE);
            list.reserve(more);
        }
        list.push(Arc::downgrade(&aging));
        Seat::Shared(aging)
    }

    /// Returns the error that ends a transaction, if it is too old.
    pub(crate) fn too_old(&self, aging: &Aging) -> Option<Error> {
        let age = self.clock.now().since(aging.began);
        (age >= self.max_age?).then_some(Error::TransactionTooOld { label: aging.label, age })
    }

    /// Passes idle transactions that are too old to `roll_back`. Returns the time until the next check, or `None` if no
    /// limit of age is set.
    pub(crate) fn end_old(&self, roll_back: impl Fn(Live)) -> Option<Duration> {
        // No transaction that begins after this call becomes too old within this time.
        let mut next = self.max_age?;
        for aging in self.pruned() {
            let Some(error) = self.too_old(&aging) else {
                let remaining = self.max_age?.saturating_sub(self.clock.now().since(aging.began));
                next = next.min(remaining);
                continue;
            };
            match aging.end(error) {
                Revoked::Idle(live) => roll_back(live),
                Revoked::Busy => next = next.min(BUSY_PAUSE),
                Revoked::Ended => {}
            }
        }
        Some(next)
    }

    /// Prunes the lists, and returns the transactions that are left in them.
    fn pruned(&self) -> Vec<Arc<Aging>> {
        let mut left = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|aging| {
                let found = aging.upgrade();
                left.extend(found.clone());
                found.is_some()
            });
        }
        left
    }
}
