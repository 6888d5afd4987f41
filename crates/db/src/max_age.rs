//! Rollback of transactions that are older than [`Options::transaction_max_age`](crate::Options::transaction_max_age).
//!
//! With that option each user transaction shares its state with a background thread (see [`Seat`]). The thread wakes
//! when the next transaction becomes too old. If that transaction has no operation in progress, the thread takes it
//! from its owner and rolls it back. An owner whose operation finds the transaction too old rolls it back itself.

use crate::Error;
use crate::admission::Admission;
use crate::seat::{Aging, Seat, State};
use foreshore_sync::{Clock, LockRank, Mutex, Revoked, SystemClock, thread_index};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause before the next check of a transaction that is too old and has an operation in progress.
const RETRY: Duration = Duration::from_millis(50);
/// Number of lists. Several, so that threads that begin transactions rarely contend.
const SHARDS: usize = 16;
/// Shortest list from which ended transactions are removed.
const MIN_CLEARED: usize = 64;

/// The transactions that may become too old.
pub(crate) struct AgingTransactions {
    clock: SystemClock,
    max_age: Option<Duration>,
    /// Ended transactions stay until their list has doubled, or the background thread visits it.
    shards: Box<[Mutex<Vec<Weak<Aging>>>]>,
}

impl AgingTransactions {
    pub(crate) fn new(max_age: Option<Duration>) -> Self {
        let shards = if max_age.is_some() { SHARDS } else { 0 };
        let shards = (0..shards).map(|_| Mutex::new(LockRank::Leaf, Vec::new())).collect();
        Self { clock: SystemClock::new(), max_age, shards }
    }

    /// Returns a seat for a transaction that begins now.
    pub(crate) fn seat(&self, label: &'static str, state: State) -> Seat {
        if self.max_age.is_none() {
            return Seat::own(state);
        }
        let aging = Aging::new(label, self.clock.now(), state);
        let mut list = self.shards[thread_index() % SHARDS].lock();
        if list.len() == list.capacity() {
            list.retain(|aging| aging.strong_count() > 0);
            let more = list.len().max(MIN_CLEARED);
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

    /// Rolls back idle transactions that are too old. Returns when to check again; `None` without a limit of age.
    pub(crate) fn end_old(&self, admission: &Admission) -> Option<Duration> {
        // A transaction that begins from now on becomes too old later.
        let mut next = self.max_age?;
        for aging in self.all() {
            let Some(error) = self.too_old(&aging) else {
                let left = self.max_age?.saturating_sub(self.clock.now().since(aging.began));
                next = next.min(left);
                continue;
            };
            match aging.end(error) {
                Revoked::Idle(live) => {
                    // A rollback that fails stops the log, which all callers learn.
                    let _ = live.into_txn().rollback();
                    admission.transaction_ended();
                }
                Revoked::Busy => next = next.min(RETRY),
                Revoked::Ended => {}
            }
        }
        Some(next)
    }

    fn all(&self) -> Vec<Arc<Aging>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|aging| {
                let found = aging.upgrade();
                all.extend(found.clone());
                found.is_some()
            });
        }
        all
    }
}
