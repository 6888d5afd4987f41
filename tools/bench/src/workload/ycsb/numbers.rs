//! The numbers of records: which is the next to insert, and up to which all are inserted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Numbers that the workers of a row share.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    next: AtomicU64,
    /// All records below are inserted, but for those that a stop of an earlier row has left out.
    limit: AtomicU64,
    /// From `limit` on.
    inserted: Mutex<BTreeSet<u64>>,
    /// Records when the row began.
    begun: AtomicU64,
}

impl Numbers {
    /// Begins with all records below `next`.
    pub(super) fn begin(&self, next: u64) {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.clear();
        for number in [&self.next, &self.limit, &self.begun] {
            // ORDERING: workers start later, by a spawn.
            number.store(next, Ordering::Relaxed);
        }
    }

    pub(super) fn begun(&self) -> u64 {
        // ORDERING: see `begin`.
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> u64 {
        // ORDERING: pairs with the release in `insert`, though the engine orders the commits that this speaks of.
        self.limit.load(Ordering::Acquire)
    }

    /// Takes the next number.
    pub(super) fn take(&self) -> u64 {
        // ORDERING: a counter; numbers differ, and nothing else rests on them.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the record with a number has committed.
    pub(super) fn insert(&self, number: u64) {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.insert(number);
        // ORDERING: only written under the lock.
        let mut limit = self.limit.load(Ordering::Relaxed);
        while inserted.remove(&limit) {
            limit += 1;
        }
        // ORDERING: pairs with the acquire in `limit`.
        self.limit.store(limit, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_waits_for_the_lowest_number() {
        let numbers = Numbers::default();
        numbers.begin(10);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [10, 11, 12]);
        numbers.insert(12);
        numbers.insert(11);
        assert_eq!((numbers.limit(), numbers.begun()), (10, 10));
        numbers.insert(10);
        assert_eq!((numbers.limit(), numbers.begun()), (13, 10));
    }
}
