//! Admission to the ring: credits in bytes.
//!
//! A session holds a credit for each byte that it may still append, so an append never meets a full ring. The sum of
//! free credits, held credits and undrained bytes is the size of the ring.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, rmw};

/// Free bytes of the ring that no session holds.
#[derive(Debug)]
pub(super) struct Credits {
    free: CachePadded<AtomicU64>,
}

impl Credits {
    /// Makes the credits of a ring of `bytes`.
    pub(super) fn new(bytes: u64) -> Self {
        Self { free: CachePadded::new(AtomicU64::new(bytes)) }
    }

    /// Takes `bytes` if they are free.
    pub(super) fn take(&self, bytes: u64) -> bool {
        // ORDERING: Acquire, the leader's copy out of the ring comes before the session's writes into the same place;
        // pairs with `give`. Later operations on the word are all read-modify-writes, so they carry the release on.
        let left = |free: u64| {
            let left = free.checked_sub(bytes);
            rmw::contended(u64::from(left.is_some()));
            left
        };
        // ORDERING: as said.
        self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, left).is_ok()
    }

    /// Returns `bytes`: drained by the leader, or not used.
    pub(super) fn give(&self, bytes: u64) {
        // ORDERING: Release, pairs with `take`.
        let order = if mutant("credits: relaxed give") { Ordering::Relaxed } else { Ordering::Release };
        rmw::contended(1);
        self.free.fetch_add(bytes, order);
    }
}
