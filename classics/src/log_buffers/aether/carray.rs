//! C: groups, and a lock that is held until the last copy (Aether, Algorithms 2 and 5).

use super::super::Ring;
use super::consolidation::{Consolidated, Shared};
use super::{Holder, Region, Released, Shape};

/// Members of a group copy in parallel; groups follow each other. The lock passes from the leader to the last member,
/// which releases region and lock.
#[derive(Debug)]
pub struct CArray {
    shared: Shared,
    /// Raised by the holder of the lock.
    released: Released,
}

impl CArray {
    /// Makes an empty buffer over `ring`.
    pub fn new(ring: Ring, shape: &Shape) -> Self {
        let released = Released::new(ring.first());
        Self { shared: Shared::new(ring, shape), released }
    }
}

impl Consolidated for CArray {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn acquire(&self, _session: usize, holder: Holder, bytes: u64) -> Region {
        self.shared.front.draw(holder, bytes)
    }

    fn release(&self, _session: usize, region: Region) {
        self.released.raise(region.start, region.end);
        self.shared.front.unlock(region.holder);
        self.shared.free(region);
    }

    fn released(&self) -> u64 {
        self.released.get()
    }
}
