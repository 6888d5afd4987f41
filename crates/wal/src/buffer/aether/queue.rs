//! The release queue: who has copied leaves the release to a predecessor that has not (Aether, Algorithm 4).
//!
//! The paper takes it from Scott's abortable queue lock. Here nodes join under the insert lock, so the queue's tail is plain
//! data of that lock, and the last node is never taken off: who releases it closes its link, and the next one to join finds
//! that and is the head. So neither a join nor a release waits for a link that is being made.

use super::{Region, Released, Waits};
use foreshore_sync::CachePadded;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use foreshore_sync::rmw;

// The link of a node: NONE, the number of the node behind it plus one, or CLOSED.
//
//   NONE      nobody behind it yet          joiner behind it: -> its link; releaser: -> CLOSED
//   CLOSED    released, nobody behind it    joiner behind it: finds it, is the head, and frees this node
//
// Both change it by a swap, so exactly one of two sees the other.
const NONE: u32 = 0;
const CLOSED: u32 = u32::MAX;

// The turn of a node.
//
//   WAITING     a node ahead is not released       owner: -> DELEGATED (CAS); releaser ahead: -> HEAD (swap)
//   DELEGATED   copied, left to those ahead        releaser ahead: -> HEAD (swap), and releases it too
//   HEAD        all ahead is released              -
//
// 1. The owner (who ended the last copy of the region) or the releaser ahead goes first, by one read-modify-write each. If
//    the owner, then the releaser releases this node as well; if the releaser, then the owner does.
// 2. `start` and `end` are written before the node is linked.
const WAITING: u32 = 0;
const DELEGATED: u32 = 1;
const HEAD: u32 = 2;

#[derive(Debug)]
struct Node {
    link: AtomicU32,
    turn: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
}

/// Nodes in the order of their regions.
#[derive(Debug)]
pub(super) struct ReleaseQueue {
    nodes: Box<[CachePadded<Node>]>,
    /// The link of the last node. Changed under the insert lock.
    last: CachePadded<AtomicU32>,
    /// Raised by the head.
    released: Released,
}

impl ReleaseQueue {
    pub(super) fn new(first: u64, nodes: usize) -> Self {
        let node = |_| {
            let (link, turn) = (AtomicU32::new(NONE), AtomicU32::new(WAITING));
            CachePadded::new(Node { link, turn, start: AtomicU64::new(0), end: AtomicU64::new(0) })
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            last: CachePadded::new(AtomicU32::new(NONE)),
            released: Released::new(first),
        }
    }

    /// Puts `node` behind the last one, under the insert lock. Returns a node that was kept for its link alone.
    pub(super) fn join(&self, node: usize, region: Region) -> Option<usize> {
        let link = node as u32 + 1;
        let own = &self.nodes[node];
        // ORDERING: Relaxed on all of it, the swap below publishes the node, or nobody is there who could look.
        own.link.store(NONE, Ordering::Relaxed);
        own.turn.store(WAITING, Ordering::Relaxed);
        own.start.store(region.start, Ordering::Relaxed);
        own.end.store(region.end, Ordering::Relaxed);
        // ORDERING: Relaxed, changed under the insert lock.
        let before = self.last.load(Ordering::Relaxed);
        self.last.store(link, Ordering::Relaxed);
        let mut alone = before == NONE;
        if !alone {
            rmw::contended(1);
            // ORDERING: AcqRel. Release, the node is whole; pairs with the swap in `release`. Acquire, what the releases so
            // far have released; pairs with the same.
            alone = self.node(before).link.swap(link, Ordering::AcqRel) == CLOSED;
        }
        if alone {
            // ORDERING: Relaxed, nobody is ahead to look at it; the owner synchronises with this thread.
            own.turn.store(HEAD, Ordering::Relaxed);
            return (before != NONE).then(|| before as usize - 1);
        }
        None
    }

    /// Releases `node`, or leaves that to those ahead of it; then all that was left to this thread. All copies of the node's
    /// region are done. `stay`: wait for the turn instead of leaving. `free` takes the nodes that are done.
    pub(super) fn release(&self, waits: &Waits, node: usize, stay: bool, free: impl Fn(usize)) {
        let own: &Node = &self.nodes[node];
        if (!stay || mutant("delegated: dice after the attempt")) && self.delegate(own) {
            if !(stay && mutant("delegated: dice after the attempt")) {
                return;
            }
        } else if stay {
            // ORDERING: Acquire, all ahead is released; pairs with the swap of the turn below.
            // WAIT: park - the copies of those ahead.
            waits.until(own, || own.turn.load(Ordering::Acquire) == HEAD);
        }
        let mut head = node;
        loop {
            let own: &Node = &self.nodes[head];
            // ORDERING: Relaxed, rule 2, the node was published by its link or is this thread's.
            let (start, end) = (own.start.load(Ordering::Relaxed), own.end.load(Ordering::Relaxed));
            self.released.raise(start, end);
            rmw::contended(1);
            // ORDERING: AcqRel. Acquire, the node behind is whole; Release, who joins later raises after this.
            let link = own.link.swap(CLOSED, Ordering::AcqRel);
            if link == NONE {
                return;
            }
            free(head);
            head = link as usize - 1;
            let next = self.node(link);
            rmw::contended(1);
            // ORDERING: AcqRel. Release, the owner raises after this; Acquire, all copies of a node that was left are
            // visible; pairs with `delegate` and the wait above.
            let order = if mutant("delegated: relaxed hand-over") { Ordering::Relaxed } else { Ordering::AcqRel };
            if next.turn.swap(HEAD, order) == WAITING {
                waits.wake(next);
                return;
            }
        }
    }

    /// Leaves the release to those ahead; false if there are none any more.
    fn delegate(&self, own: &Node) -> bool {
        // ORDERING: Acquire, all ahead is released; pairs with the swap of the turn.
        if own.turn.load(Ordering::Acquire) == HEAD {
            return false;
        }
        rmw::contended(1);
        // ORDERING: Release, the copies are visible to who releases; pairs with the swap of the turn. Acquire on failure, as
        // above.
        own.turn.compare_exchange(WAITING, DELEGATED, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// Releases a region without a node in its turn, as the paper does: for a model's mutant.
    #[cfg(foreshore_loom)]
    pub(super) fn release_in_turn(&self, waits: &Waits, region: Region) {
        // WAIT: window - in models alone.
        waits.until(&self.last, || self.released.get() == region.start);
        self.released.raise(region.start, region.end);
    }

    pub(super) fn released(&self) -> u64 {
        self.released.get()
    }

    fn node(&self, link: u32) -> &Node {
        &self.nodes[link as usize - 1]
    }
}
