//! CD: groups, copies outside the lock, releases in turn (Aether, section 5.3).

use super::super::Ring;
use super::consolidation::{Consolidated, Shared};
use super::ordered::Ordered;
use super::{Holder, Region, Shape};

/// Acquires like `carray` and releases like `decoupled`, once for each group: its last member waits for the groups
/// before.
#[derive(Debug)]
pub struct Hybrid {
    shared: Shared,
    order: Ordered,
}

impl Hybrid {
    /// Makes an empty buffer over `ring`.
    pub fn new(ring: Ring, shape: &Shape) -> Self {
        let order = Ordered::new(ring.first());
        Self { shared: Shared::new(ring, shape), order }
    }
}

impl Consolidated for Hybrid {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn acquire(&self, _session: usize, holder: Holder, bytes: u64) -> Region {
        let region = self.shared.front.draw(holder, bytes);
        self.shared.front.unlock(holder);
        region
    }

    fn release(&self, _session: usize, region: Region) {
        // WAIT: park - the copies of those ahead.
        self.order.release(&self.shared.front.waits, region);
        self.shared.free(region);
    }

    fn released(&self) -> u64 {
        self.order.released()
    }
}
