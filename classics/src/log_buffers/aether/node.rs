//! A place in the release queue ([`super::queue`]), and the states of its two words.

use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64};

// The link of a node: NONE, the number of the node behind it plus one, or CLOSED.
//
//   NONE      no node behind it yet         joiner behind it: -> its link; releaser: -> CLOSED
//   CLOSED    released, no node behind it   joiner behind it: finds it, and is the head
//
// Both change it by a swap, so exactly one of two sees the other.
//
// A closed node returns to the pool, and the queue's tail may still name it. A node that joins behind it writes into a
// link that no thread reads. It cannot be a link in use: a node is in use from its join on, which makes it the tail,
// and joins follow each other. A joining node may find itself as the tail, closed.
pub(super) const NONE: u32 = 0;
pub(super) const CLOSED: u32 = u32::MAX;

// The turn of a node.
//
//   WAITING     a node ahead is not released       owner: -> DELEGATED (CAS); releaser ahead: -> HEAD (swap)
//   DELEGATED   copied, left to those ahead        releaser ahead: -> HEAD (swap), and releases it too
//   HEAD        all ahead is released              -
//
// 1. The owner (the thread that ended the last copy of the region) or the releaser ahead goes first, by one
//    read-modify-write each. If the owner, then the releaser releases this node as well; if the releaser, then the
//    owner does.
// 2. `start` and `end` are written before the node is linked.
pub(super) const WAITING: u32 = 0;
pub(super) const DELEGATED: u32 = 1;
pub(super) const HEAD: u32 = 2;

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) link: AtomicU32,
    pub(super) turn: AtomicU32,
    pub(super) start: AtomicU64,
    pub(super) end: AtomicU64,
}

impl Node {
    pub(super) fn new() -> Self {
        let (link, turn) = (AtomicU32::new(NONE), AtomicU32::new(WAITING));
        Self { link, turn, start: AtomicU64::new(0), end: AtomicU64::new(0) }
    }
}
