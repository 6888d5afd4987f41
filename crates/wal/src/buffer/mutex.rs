//! The baseline buffer: one lock around position and copy (Aether, Algorithm 1).

use super::{Ring, RingBuffer, Sealed};
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};

/// Every record is published by the unlock that follows its copy, so the cut is the tail.
#[derive(Debug)]
pub struct Locked {
    ring: Ring,
    tail: CachePadded<Mutex<u64>>,
    /// Copy of the tail for those who only want a bound.
    current: CachePadded<AtomicU64>,
}

impl Locked {
    /// An empty buffer over `ring`.
    pub fn new(ring: Ring) -> Self {
        let first = ring.first();
        let tail = CachePadded::new(Mutex::new(LockRank::Leaf, first));
        Self { ring, tail, current: CachePadded::new(AtomicU64::new(first)) }
    }
}

impl RingBuffer for Locked {
    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn insert(&self, _slot: usize, record: &Sealed<'_>, dep: Lsn) -> Lsn {
        // WAIT: park - one copy of at most a record.
        let mut tail = self.tail.lock();
        // SAFETY: the lock makes the caller the only one at the tail.
        let lsn = unsafe { self.ring.fill(*tail, record) };
        assert!(lsn > dep, "record {lsn} does not follow {dep}");
        *tail = lsn.0;
        // ORDERING: Release, who reads the bound may lock and find the record; pairs with `tail`.
        self.current.store(lsn.0, Ordering::Release);
        lsn
    }

    fn tail(&self) -> u64 {
        // ORDERING: Acquire, pairs with `insert`.
        self.current.load(Ordering::Acquire)
    }

    fn published(&self) -> u64 {
        // WAIT: park - one copy of at most a record. The lock is not held during the leader's copy.
        *self.tail.lock()
    }
}
