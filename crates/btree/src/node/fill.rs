//! The fill level of a node.

use super::{Damage, Node, NodeView};
use crate::format::{SLOT, SLOTS};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::PageRead;

/// Bytes of a node that entries and fences can use.
pub(crate) const CAPACITY: usize = PAGE_SIZE - SLOTS;

impl<P: PageRead> NodeView<P> {
    /// Returns whether the node covers all keys.
    #[inline]
    pub(crate) fn is_root(&self) -> bool {
        !self.has_high() && self.low_range().is_ok_and(|low| low.is_empty())
    }

    /// Returns the level of the root of a tree, which covers all keys. A damaged row of the catalogue may name a node
    /// below the root. A scan does not check for a sibling there, so it would meet the high fence of that node
    /// repeatedly.
    #[inline]
    pub(crate) fn root_level(&self) -> Result<u8, Damage> {
        if self.is_root() { Ok(self.level()) } else { Err("the root of a tree does not cover all keys") }
    }
}

impl Node<'_> {
    /// Returns the bytes of entry `index`, slot included.
    pub(crate) fn entry_size(&self, index: usize) -> Result<usize, Damage> {
        Ok(SLOT + self.tuple(index)?.1.len())
    }

    /// Returns the bytes of all entries, slots included.
    pub(crate) fn entry_bytes(&self) -> Result<usize, Damage> {
        let fences = self.low()?.len() + self.high()?.map_or(0, <[u8]>::len);
        CAPACITY.checked_sub(self.free() + fences).ok_or("the heap of the node does not add up")
    }

    /// Returns whether less than three quarters of the node are in use. Such a node is merged with a neighbour. With
    /// random inserts and removes this limit keeps nodes 65 % full; a limit of one half would give 60 %.
    pub(crate) fn is_thin(&self) -> Result<bool, Damage> {
        Ok(4 * self.entry_bytes()? < 3 * CAPACITY)
    }

    /// Returns whether less than a third of the node is in use. No split leaves so little.
    pub(crate) fn is_sparse(&self) -> Result<bool, Damage> {
        Ok(3 * self.entry_bytes()? < CAPACITY)
    }
}
