//! The numbers of records: which is the next to insert, and up to which all are inserted.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Numbers that the workers of a row share.
pub(crate) struct Numbers {
    next: AtomicU64,
    /// All records below are inserted.
    limit: AtomicU64,
    /// From `limit` on.
    inserted: Mutex<BTreeSet<u64>>,
}

impl Numbers {
    /// Begins with all records below `next`.
    pub(crate) const fn new(next: u64) -> Self {
        Self { next: AtomicU64::new(next), limit: AtomicU64::new(next), inserted: Mutex::new(BTreeSet::new()) }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// Takes the next number.
    pub(super) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the insert of a record is acknowledged.
    pub(crate) fn insert(&self, number: u64) {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.insert(number);
        let mut limit = self.limit.load(Ordering::Relaxed);
        while inserted.remove(&limit) {
            limit += 1;
        }
        self.limit.store(limit, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_waits_for_the_lowest_number() {
        let numbers = Numbers::new(10);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [10, 11, 12]);
        numbers.insert(12);
        numbers.insert(11);
        assert_eq!(numbers.limit(), 10);
        numbers.insert(10);
        assert_eq!(numbers.limit(), 13);
    }
}
