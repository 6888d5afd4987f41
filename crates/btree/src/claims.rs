//! Chains that are being freed: each by one thread.

use foreshore_base::PageId;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{LockRank, Mutex};
use std::collections::HashSet;

/// Chains that are being freed, and whether there may be others.
#[derive(Debug)]
pub(crate) struct Claims {
    heads: Mutex<HashSet<PageId>>,
    noted: AtomicBool,
}

impl Claims {
    pub(crate) fn new() -> Self {
        // The last run may have left some.
        Self { heads: Mutex::new(LockRank::Leaf, HashSet::new()), noted: AtomicBool::new(true) }
    }

    /// Notes that a chain may have to be freed.
    pub(crate) fn note(&self) {
        // ORDERING: publish, pairs with `take_note`. The signal that follows wakes the thread that reads it.
        self.noted.store(true, Ordering::Release);
    }

    /// Returns whether a chain was noted since the last call.
    pub(crate) fn take_note(&self) -> bool {
        // ORDERING: Acquire, pairs with `note`.
        self.noted.swap(false, Ordering::Acquire)
    }

    /// Claims a chain, unless another thread has.
    pub(crate) fn claim(&self, head: PageId) -> Option<Claim<'_>> {
        // Made only after the insert: a claim that is dropped ends that of the other thread.
        let is_new = self.heads.lock().insert(head);
        is_new.then(|| Claim { claims: self, head })
    }
}

/// The right to free a chain.
pub(crate) struct Claim<'c> {
    claims: &'c Claims,
    head: PageId,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let was_there = self.claims.heads.lock().remove(&self.head);
        assert!(was_there, "the claim of chain {} ends twice", self.head);
    }
}
