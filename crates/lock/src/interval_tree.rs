//! The intervals of all owners in one table, by key.
//!
//! A writer searches here for owners that cover its key, under the latch of its leaf. The search takes logarithmic time
//! in the number of intervals of all owners. The tree is a treap ordered by low bound and owner. Each node names the
//! node of its subtree that ends last. The search skips a subtree that ends before the key or begins behind it. The
//! intervals of one owner are disjoint, so a search for others meets at most one of the searcher's own.
//!
//! Nodes lie in a vector and refer to each other by index. Priorities are the hashes of a counter, so the shape
//! depends on neither keys nor order.
//!
//! Source: the augmented search tree for intervals of Cormen et al., *Introduction to Algorithms*; treaps are by
//! Seidel and Aragon (1996).

use crate::interval::Interval;

/// The index of no node.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Node {
    interval: Interval,
    owner: u32,
    /// Priority in the heap; at least as high as those of the children.
    priority: u32,
    left: u32,
    right: u32,
    /// The node of its subtree whose interval ends last.
    last: u32,
}

/// The intervals of all owners in one table, as a treap ordered by low bound and owner.
#[derive(Debug)]
pub(crate) struct IntervalTree {
    nodes: Vec<Node>,
    /// Indices in `nodes` that are not in the tree.
    free: Vec<u32>,
    root: u32,
    drawn: u64,
}

impl Default for IntervalTree {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE, drawn: 0 }
    }
}

impl IntervalTree {
    /// Adds an interval of `owner` with a low bound that none of its others has.
    pub(crate) fn insert(&mut self, owner: u32, interval: Interval) {
        let low = interval.clone();
        let priority = self.draw();
        let node = Node { interval, owner, priority, left: NONE, right: NONE, last: NONE };
        let new = match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("lock memory is for fewer")
            }
        };
        self.renew(new);
        debug_assert!(!self.free.contains(&new), "node {new} is in the tree and free: {:?}", self.free);
        let (before, behind) = self.split(self.root, low.low(), owner);
        let before = self.merge(before, new);
        self.root = self.merge(before, behind);
    }

    /// Removes the interval of `owner` with this low bound, which exists.
    pub(crate) fn remove(&mut self, owner: u32, low: &[u8]) {
        self.root = self.remove_below(self.root, low, owner);
    }

    /// Replaces the interval of `owner` with the same low bound, which exists, by `interval`.
    pub(crate) fn replace(&mut self, owner: u32, interval: &Interval) {
        self.replace_below(self.root, owner, interval);
    }

    /// Calls `found` with each owner that covers the key, until it returns `false`.
    pub(crate) fn covering(&self, key: &[u8], mut found: impl FnMut(u32) -> bool) {
        self.visit(self.root, key, &mut found);
    }

    /// Visits a subtree. Returns false if `found` has returned false.
    fn visit(&self, at: u32, key: &[u8], found: &mut impl FnMut(u32) -> bool) -> bool {
        if at == NONE {
            return true;
        }
        #[cfg(test)]
        tests::VISITED.with(|visited| visited.set(visited.get() + 1));
        let node = self.node(at);
        if self.node(node.last).interval.ends_at_or_before(key) {
            return true;
        }
        if !self.visit(node.left, key, found) {
            return false;
        }
        if node.interval.low() > key {
            // This node and all nodes behind it begin after the key.
            return true;
        }
        (!node.interval.contains(key) || found(node.owner)) && self.visit(node.right, key, found)
    }

    /// Returns the number of nodes in memory.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// Removes all intervals. The memory of the nodes stays.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.free.clear();
        self.root = NONE;
    }

    /// Returns the number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// Returns whether a node comes before the one of `owner` with that low bound.
    fn is_before(&self, at: u32, low: &[u8], owner: u32) -> bool {
        let node = self.node(at);
        (node.interval.low(), node.owner) < (low, owner)
    }

    fn is(&self, at: u32, low: &[u8], owner: u32) -> bool {
        let node = self.node(at);
        node.owner == owner && node.interval.low() == low
    }

    /// Recomputes which node of a subtree ends last, from its root and those of its children.
    fn renew(&mut self, at: u32) {
        let Node { left, right, .. } = *self.node(at);
        let mut last = at;
        for child in [left, right].into_iter().filter(|&child| child != NONE) {
            let of_child = self.node(child).last;
            if self.node(of_child).interval.ends_behind(&self.node(last).interval) {
                last = of_child;
            }
        }
        self.node_mut(at).last = last;
    }

    /// Splits a subtree into the nodes before that of `owner` with the low bound, and the others.
    fn split(&mut self, at: u32, low: &[u8], owner: u32) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        let parts = if self.is_before(at, low, owner) {
            let (before, behind) = self.split(self.node(at).right, low, owner);
            self.node_mut(at).right = before;
            (at, behind)
        } else {
            let (before, behind) = self.split(self.node(at).left, low, owner);
            self.node_mut(at).left = behind;
            (before, at)
        };
        self.renew(at);
        parts
    }

    /// Joins two subtrees; all nodes of the first come before those of the second.
    fn merge(&mut self, before: u32, behind: u32) -> u32 {
        if before == NONE || behind == NONE {
            return if before == NONE { behind } else { before };
        }
        let root = if self.node(before).priority > self.node(behind).priority {
            let right = self.merge(self.node(before).right, behind);
            self.node_mut(before).right = right;
            before
        } else {
            let left = self.merge(before, self.node(behind).left);
            self.node_mut(behind).left = left;
            behind
        };
        self.renew(root);
        root
    }

    fn remove_below(&mut self, at: u32, low: &[u8], owner: u32) -> u32 {
        assert!(at != NONE, "an interval that goes was there");
        let Node { left, right, .. } = *self.node(at);
        if self.is(at, low, owner) {
            self.node_mut(at).interval = Interval::default();
            debug_assert!(!self.free.contains(&at), "node {at} is freed twice");
            self.free.push(at);
            return self.merge(left, right);
        }
        if self.is_before(at, low, owner) {
            self.node_mut(at).right = self.remove_below(right, low, owner);
        } else {
            self.node_mut(at).left = self.remove_below(left, low, owner);
        }
        self.renew(at);
        at
    }

    fn replace_below(&mut self, at: u32, owner: u32, interval: &Interval) {
        assert!(at != NONE, "an interval that is replaced was there");
        let Node { left, right, .. } = *self.node(at);
        if self.is(at, interval.low(), owner) {
            self.node_mut(at).interval = interval.clone();
        } else {
            let is_right = self.is_before(at, interval.low(), owner);
            self.replace_below(if is_right { right } else { left }, owner, interval);
        }
        self.renew(at);
    }

    /// Returns the next priority.
    fn draw(&mut self) -> u32 {
        self.drawn += 1;
        // The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
        let mut mixed = self.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32
    }
}

#[cfg(test)]
mod tests;
