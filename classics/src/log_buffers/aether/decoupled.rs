//! D: copies outside the lock, releases in turn (Aether, Algorithm 3).

use super::super::{Ring, RingBuffer};
use super::ordered::Ordered;
use super::{Front, Holder, Shape};
use foreshore_base::Lsn;
use foreshore_wal::log_buffer::Checksummed;

/// The lock is held only for the draw. A copied record waits for all before it, so a session that is stopped in its
/// copy delays all others.
#[derive(Debug)]
pub struct Decoupled {
    ring: Ring,
    front: Front,
    order: Ordered,
}

impl Decoupled {
    /// Makes an empty buffer over `ring`.
    pub fn new(ring: Ring, shape: &Shape) -> Self {
        let first = ring.first();
        Self { ring, front: Front::new(first, &Shape { pool: 0, ..*shape }), order: Ordered::new(first) }
    }
}

impl RingBuffer for Decoupled {
    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn insert(&self, session: usize, record: &Checksummed<'_>) -> Lsn {
        let holder = Holder::Session(session);
        // WAIT: park - a draw.
        self.front.lock(holder);
        let region = self.front.draw(holder, record.size() as u64);
        self.front.unlock(holder);
        // SAFETY: the region was drawn for this record.
        let lsn = unsafe { self.ring.fill(region.start, record) };
        // WAIT: park - the copies of those ahead.
        self.order.release(&self.front.waits, region);
        lsn
    }

    fn tail(&self) -> u64 {
        self.front.tail()
    }

    fn published(&self) -> u64 {
        self.order.released()
    }
}
