//! The goal of a descent: a key, or the position before a key, for backward scans.

use super::{Damage, NodeView};
use foreshore_base::PageId;
use foreshore_buffer::PageRead;

/// The position that the target node covers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal<'k> {
    /// The key.
    At(&'k [u8]),
    /// The position right before the key. This key is never the empty key, which is the smallest one.
    Before(&'k [u8]),
    /// The end of the table.
    End,
}

impl<'k> From<&'k [u8]> for Goal<'k> {
    fn from(key: &'k [u8]) -> Self {
        Self::At(key)
    }
}

impl<P: PageRead> NodeView<P> {
    /// Returns how many entries of an inner node begin at or before the goal. The last of them leads to the goal.
    #[inline]
    pub(crate) fn entries_to(&self, goal: Goal<'_>) -> Result<usize, Damage> {
        Ok(match goal {
            Goal::At(key) => self.search_covered(key)?.map_or_else(|at| at, |at| at + 1),
            Goal::Before(key) => self.search_covered(key)?.unwrap_or_else(|at| at),
            Goal::End => self.len(),
        })
    }

    /// Returns the child of an inner node that leads to the goal.
    #[inline]
    pub(crate) fn child_toward(&self, goal: Goal<'_>) -> Result<PageId, Damage> {
        match self.entries_to(goal)? {
            0 => self.leftmost(),
            entries => self.child(entries - 1),
        }
    }

    /// Returns the child of an inner node that leads to `key`. Compares the node's high fence, which a descent does
    /// not.
    pub(crate) fn child_for(&self, key: &[u8]) -> Result<PageId, Damage> {
        if self.ends_before(key)? {
            return Err("a node does not cover the keys that lead to it");
        }
        self.child_toward(Goal::At(key))
    }

    /// Returns whether the goal lies to the right of this node.
    #[inline]
    pub(crate) fn falls_short_of(&self, goal: Goal<'_>) -> Result<bool, Damage> {
        match goal {
            Goal::At(key) => self.ends_before(key),
            Goal::Before(key) => Ok(self.high_range()?.is_some_and(|high| self.page.compare(high, key).is_lt())),
            Goal::End => Ok(self.has_high()),
        }
    }
}
