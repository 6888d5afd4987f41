//! The copy of a leaf, for a scan that locks what it reads.

use super::span::End;
use crate::access::{Access, ReadGuard};
use crate::node::Node;
use crate::tree::Tree;
use foreshore_base::Result;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::{PagePosition, Pool};
use std::ops::Range;

/// The copy of a leaf, which the next step uses if the leaf has not changed.
#[derive(Debug, Default)]
pub(super) struct PageCopy {
    pub(super) bytes: Vec<u8>,
    /// If the next step may begin in this leaf: the position of the leaf, and the end from which the scan steps.
    pub(super) resume_at: Option<(PagePosition, End)>,
}

impl PageCopy {
    /// Returns a guard of the copied leaf for a step from the same end, if the leaf has not changed since.
    pub(super) fn enter<'p, const ONCE: bool>(&mut self, pool: &'p Pool, end: End) -> Option<ReadGuard<'p, ONCE>> {
        let (position, _) = self.resume_at.take().filter(|&(_, at)| at == end)?;
        assert_eq!(self.bytes.len(), PAGE_SIZE, "the copy of a leaf");
        ReadGuard::at(pool, position)
    }
}

/// A copied leaf in a step. `ONCE` is that of [`ReadGuard`].
pub(super) struct LeafCopy<'a, 'p, const ONCE: bool> {
    /// The guard of the leaf that was copied.
    pub(super) leaf: &'a ReadGuard<'p, ONCE>,
    /// The node in the copy.
    pub(super) node: &'a Node<'a>,
    /// The entries that lie in the range.
    pub(super) inside: Range<usize>,
}

impl<'a, const ONCE: bool> LeafCopy<'a, '_, ONCE> {
    /// Returns the index of the entry that comes after `met` others, counted from `end` of the range.
    pub(super) const fn entry_index(&self, met: usize, end: End) -> usize {
        match end {
            End::Front => self.inside.start + met,
            End::Back => self.inside.end - 1 - met,
        }
    }

    pub(super) fn key(&self, tree: &Tree, at: usize) -> Result<&'a [u8]> {
        self.node.key(at).map_err(|why| tree.corrupted(self.leaf.pid(), why))
    }
}
