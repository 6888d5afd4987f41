//! CDME: groups, copies outside the lock, releases by the head of a queue (Aether, Algorithm 4, appendix A.3).
//!
//! Corrections of the paper, and what it leaves open:
//!
//! - *A record that finds the lock free joins the queue too.* The paper has it follow Algorithm 2, line 2, "as
//!   before": it would release in its turn without a node. A later group that finds the queue empty would then release
//!   over a running copy.
//! - *The random decision comes before the attempt to delegate.* A thread that has delegated cannot change its mind:
//!   the thread that releases for it returns the node to the pool.

use super::super::Ring;
use super::consolidation::{Consolidated, Shared};
use super::queue::ReleaseQueue;
use super::{Holder, Region, Shape};
use foreshore_sync::model::mutant;

/// One in so many releases is not delegated, so that no thread releases for others without end.
const DECLINE: u32 = 32;

/// Acquires like `hybrid`, and has a queue in place of the turns. A session that is stopped in its copy delays the
/// release of later records, but only one in 32 of the later sessions.
#[derive(Debug)]
pub struct Delegated {
    shared: Shared,
    queue: ReleaseQueue,
}

impl Delegated {
    /// Makes an empty buffer over `ring`.
    pub fn new(ring: Ring, shape: &Shape) -> Self {
        let queue = ReleaseQueue::new(ring.first());
        Self { shared: Shared::new(ring, shape), queue }
    }
}

impl Consolidated for Delegated {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn acquire(&self, session: usize, holder: Holder, bytes: u64) -> Region {
        let Shared { front, array, own, .. } = &self.shared;
        let region = front.draw(holder, bytes);
        let node = match holder {
            Holder::Slot(slot) => slot,
            Holder::Session(_) if mutant("delegated: direct path without a node") => {
                front.unlock(holder);
                return region;
            }
            // A session may return while its last node is still queued, so it borrows one of the pool.
            Holder::Session(_) => array.take(&front.waits, &own[session]),
        };
        self.queue.join(front, array, node, region);
        front.unlock(holder);
        Region { holder: Holder::Slot(node), ..region }
    }

    fn release(&self, session: usize, region: Region) {
        let Shared { front, array, own, .. } = &self.shared;
        let node = match region.holder {
            Holder::Slot(node) => node,
            #[cfg(foreshore_loom)]
            Holder::Session(_) => return self.queue.release_in_turn(&front.waits, region),
            #[cfg(not(foreshore_loom))]
            Holder::Session(_) => unreachable!("`acquire` gives every region a node"),
        };
        let stay = own[session].random(session, DECLINE) == 0;
        self.queue.release(&front.waits, array, node, stay);
    }

    fn released(&self) -> u64 {
        self.queue.released()
    }
}
