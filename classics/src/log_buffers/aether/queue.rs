//! The release queue: a thread that has copied leaves the release to a predecessor that has not (Aether, Algorithm 4).
//!
//! The paper takes it from Scott's abortable queue lock. Here nodes join under the insert lock, so the queue's tail is
//! plain data of that lock, and the node that it names may be gone. A thread that releases a node closes its link, and
//! the next node to join finds that and is the head. So neither a join nor a release waits for a link that is being
//! made.

use super::consolidation::Array;
use super::node::{CLOSED, DELEGATED, HEAD, NONE, Node, WAITING};
use super::{Front, Region, Released, Waits};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::rmw;

/// Nodes of slots in the order of their regions.
#[derive(Debug)]
pub(super) struct ReleaseQueue {
    /// Raised by the head.
    released: Released,
}

impl ReleaseQueue {
    pub(super) fn new(first: u64) -> Self {
        Self { released: Released::new(first) }
    }

    /// Adds the node of `slot` at the end, under the insert lock.
    pub(super) fn join(&self, front: &Front, array: &Array, slot: usize, region: Region) {
        let link = slot as u32 + 1;
        let own = array.node(slot);
        // ORDERING: Relaxed on all of it, the swap below publishes the node, or no other thread can see it.
        own.link.store(NONE, Ordering::Relaxed);
        own.turn.store(WAITING, Ordering::Relaxed);
        own.start.store(region.start, Ordering::Relaxed);
        own.end.store(region.end, Ordering::Relaxed);
        // ORDERING: Relaxed, changed under the insert lock.
        let before = front.guarded.last.load(Ordering::Relaxed);
        front.guarded.last.store(link, Ordering::Relaxed);
        // A thread that takes a closed node from the pool sees what was released before it was closed.
        let mut alone = before == NONE || before == link && !mutant("delegated: behind itself");
        if !alone {
            rmw::contended(1);
            // ORDERING: AcqRel. Release, the node is whole; pairs with the swap in `release`. Acquire, what was
            // released so far; pairs with the same.
            alone = array.node(before as usize - 1).link.swap(link, Ordering::AcqRel) == CLOSED;
        }
        if alone {
            // ORDERING: Relaxed, no thread ahead reads it; the owner synchronises with this thread.
            own.turn.store(HEAD, Ordering::Relaxed);
        }
    }

    /// Releases the region of `slot` and frees it, then all that was delegated to this thread; or delegates it to
    /// those ahead. All copies of the region are done. `stay`: wait for the turn instead of delegating.
    pub(super) fn release(&self, waits: &Waits, array: &Array, slot: usize, stay: bool) {
        let own = array.node(slot);
        if (!stay || mutant("delegated: dice after the attempt")) && self.delegate(own) {
            if !(stay && mutant("delegated: dice after the attempt")) {
                return;
            }
        } else if stay {
            // ORDERING: Acquire, all ahead is released; pairs with the swap of the turn below.
            // WAIT: park - the copies of those ahead.
            waits.until(own, || own.turn.load(Ordering::Acquire) == HEAD);
        }
        let mut head = slot;
        loop {
            let own = array.node(head);
            // ORDERING: Relaxed, rule 2 of the turn, the node was published by its link or is this thread's.
            let (start, end) = (own.start.load(Ordering::Relaxed), own.end.load(Ordering::Relaxed));
            self.released.raise(start, end);
            rmw::contended(1);
            // ORDERING: AcqRel. Acquire, the node behind is whole; Release, a later joiner raises after this.
            let link = own.link.swap(CLOSED, Ordering::AcqRel);
            array.free(waits, head);
            if link == NONE {
                return;
            }
            head = link as usize - 1;
            let next = array.node(head);
            rmw::contended(1);
            // ORDERING: AcqRel. Release, the owner raises after this; Acquire, all copies of a delegated node are
            // visible; pairs with `delegate` and the wait above.
            let order = if mutant("delegated: relaxed hand-over") { Ordering::Relaxed } else { Ordering::AcqRel };
            if next.turn.swap(HEAD, order) == WAITING {
                waits.wake(next);
                return;
            }
        }
    }

    /// Delegates the release to those ahead; returns false if there are none any more.
    fn delegate(&self, own: &Node) -> bool {
        // ORDERING: Acquire, all ahead is released; pairs with the swap of the turn.
        if own.turn.load(Ordering::Acquire) == HEAD {
            return false;
        }
        rmw::contended(1);
        // ORDERING: Release, the releaser sees the copies; pairs with the swap of the turn. Acquire on failure, as
        // above.
        own.turn.compare_exchange(WAITING, DELEGATED, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// Releases a region without a node in its turn, as the paper does: for a model's mutant.
    #[cfg(foreshore_loom)]
    pub(super) fn release_in_turn(&self, waits: &Waits, region: Region) {
        // WAIT: window - in models alone.
        waits.until(&self.released, || self.released.get() == region.start);
        self.released.raise(region.start, region.end);
    }

    pub(super) fn released(&self) -> u64 {
        self.released.get()
    }
}
