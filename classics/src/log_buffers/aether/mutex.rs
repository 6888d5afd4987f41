//! The baseline: one lock around position, copy and release (Aether, Algorithm 1).

use super::super::{Ring, RingBuffer};
use super::{Front, Holder, Released, Shape};
use foreshore_base::Lsn;
use foreshore_wal::log_buffer::Checksummed;

/// One lock. A record is released before the lock is, so only its holder sees a difference between drawn and released.
#[derive(Debug)]
pub struct Locked {
    ring: Ring,
    front: Front,
    /// Raised by the holder of the lock.
    released: Released,
}

impl Locked {
    /// Makes an empty buffer over `ring`.
    pub fn new(ring: Ring, shape: &Shape) -> Self {
        let first = ring.first();
        Self { ring, front: Front::new(first, &Shape { pool: 0, ..*shape }), released: Released::new(first) }
    }
}

impl RingBuffer for Locked {
    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn insert(&self, session: usize, record: &Checksummed<'_>) -> Lsn {
        let holder = Holder::Session(session);
        // WAIT: park - the copies of those ahead.
        self.front.lock(holder);
        let region = self.front.draw(holder, record.size() as u64);
        // SAFETY: the region was drawn for this record.
        let lsn = unsafe { self.ring.fill(region.start, record) };
        self.released.raise(region.start, region.end);
        self.front.unlock(holder);
        lsn
    }

    fn tail(&self) -> u64 {
        self.front.tail()
    }

    fn published(&self) -> u64 {
        self.released.get()
    }
}
