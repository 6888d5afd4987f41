//! Releases in the order of positions, each by its own thread (Aether, Algorithm 3, lines 8 to 14).

use super::{Region, Released, Waits};
use foreshore_sync::model::mutant;

/// The order of releases. Who finds its own start released may raise it to its end.
#[derive(Debug)]
pub(super) struct Ordered {
    released: Released,
}

impl Ordered {
    pub(super) fn new(first: u64) -> Self {
        Self { released: Released::new(first) }
    }

    /// Waits for the regions before `region` and releases it. Its copies are done.
    pub(super) fn release(&self, waits: &Waits, region: Region) {
        // WAIT: park - the copies of those ahead.
        if !mutant("ordered: release out of turn") {
            waits.mode.wait_until(&waits.table, region.start, || self.released.get() == region.start);
        }
        self.released.raise(region);
        waits.mode.wake(&waits.table, region.end);
    }

    pub(super) fn released(&self) -> u64 {
        self.released.get()
    }
}
