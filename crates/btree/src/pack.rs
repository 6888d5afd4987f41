//! Packing: a leaf takes rows of the leaves on its right until it is full.
//!
//! The purge merges a leaf only if it is thin, and leaves space for the next row ([`crate::merge`]). Packing leaves
//! none: a following leaf is merged if all of it fits, otherwise its first rows are shifted ([`crate::redistribute`]).
//! A pass from left to right moves each row about once. Leaves with rows of live writers stay as they are.

use crate::merge::{MOST, Merging, has_open_split};
use crate::neighbours::{Pair, pairs_of};
use crate::node::{CAPACITY, Damage, Goal, Node};
use crate::redistribute::first_rows;
use crate::tree::{Structure, Tree};
use foreshore_base::Result;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::AccessPattern;
use foreshore_txn::Txn;

/// Merges of one call. The next call continues at the same leaf.
const MERGES: u64 = 8;
/// Rows are shifted only if they have that many bytes: two or three log records must be worth it.
const LEAST: usize = CAPACITY / 64;

/// The result of [`Tree::pack_leaf`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedLeaf {
    /// Pages that were freed.
    pub pages: u64,
    /// The key of the leaf to continue with; `None` at the end of the table.
    pub next: Option<Vec<u8>>,
}

impl Tree {
    /// Removes the removable ghosts from the leaf of `key` and from the leaf on its right, and fills the first with
    /// rows of the second. The caller prevents a drop of the table, a concurrent check of the tree, and concurrent
    /// merges.
    ///
    /// # Errors
    /// Those of [`merge_leaf`](Self::merge_leaf). Freed pages stay free.
    pub fn pack_leaf(&self, txn: &mut Txn, key: &[u8]) -> Result<PackedLeaf> {
        txn.freeing(|txn| {
            let mut next = self.purge_leaf(txn, key, true)?.next;
            let mut pages = 0;
            while let Some(high) = next.take() {
                self.purge_leaf(txn, &high, true)?;
                next = Some(high);
                let Some(pair) = self.pair_of(&mut Structure::of_freeing(txn), key)? else { break };
                let merging = &mut Merging::new(txn, CAPACITY);
                if !self.merge(merging, &pair, 0)? {
                    if self.fill(merging, &pair)? {
                        next = self.end_of_leaf(&mut merging.structure(), key)?;
                    }
                    break;
                }
                pages += 1;
                next = self.end_of_leaf(&mut merging.structure(), key)?;
                if pages == MERGES {
                    next = next.map(|_| key.to_vec());
                    break;
                }
            }
            if pages > 0 {
                let merging = &mut Merging::new(txn, MOST);
                pages += self.merge_path(merging, key, 1)?.pages as u64;
                // Unless the nodes above the leaves were merged, the root may have got an only child here.
                pages += self.collapse(&mut merging.structure())? as u64;
            }
            assert!(next.as_deref().is_none_or(|next| next >= key), "packing goes from left to right");
            Ok(PackedLeaf { pages, next })
        })
    }

    /// Returns the leaf of `key` and the one on its right, if both have one parent.
    fn pair_of(&self, structure: &mut Structure<'_>, key: &[u8]) -> Result<Option<Pair>> {
        let mut page = [0; PAGE_SIZE];
        let leaf = self.copy_node::<true>(structure, Goal::At(key), 0, &mut page)?;
        let above = self.copy_node::<false>(structure, Goal::At(key), 1, &mut page)?;
        let parent = self.parse(above, &page)?;
        if parent.level() != 1 {
            return Ok(None);
        }
        let pairs = pairs_of(&parent, key, leaf).map_err(|why| self.corrupted(above, why))?;
        Ok(pairs.into_iter().find(|pair| pair.left == leaf))
    }

    /// Returns the key at which the leaf of `key` ends.
    fn end_of_leaf(&self, structure: &mut Structure<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut page = [0; PAGE_SIZE];
        let pid = self.copy_node::<true>(structure, Goal::At(key), 0, &mut page)?;
        let high = self.parse(pid, &page)?.high().map_err(|why| self.corrupted(pid, why))?;
        Ok(high.map(<[u8]>::to_vec))
    }

    /// Shifts the first rows of the right leaf of a pair to the left one, as far as they fit. Returns false if they are
    /// too few, or if a rollback may need the free space.
    fn fill(&self, merging: &mut Merging<'_>, pair: &Pair) -> Result<bool> {
        let [left, right] = [pair.left, pair.right].map(|pid| self.named(self.pool().pin_as(pid, AccessPattern::Scan)));
        let (left, right) = (left?, right?);
        let most = {
            let mut copy = [0; PAGE_SIZE];
            copy.copy_from_slice(&left.shared());
            let page = right.shared();
            let (Ok(first), Ok(second)) = (Node::parse(&copy), Node::parse(&page)) else { return Ok(false) };
            let damage = |why| self.corrupted(right.pid(), why);
            let Some(most) = most_of(&first, &second).map_err(damage)? else { return Ok(false) };
            if merging.is_live(&first).map_err(damage)? || merging.is_live(&second).map_err(damage)? {
                return Ok(false);
            }
            most
        };
        self.shift(&mut merging.structure(), pair, &right, (most, CAPACITY))
    }
}

/// Returns how many bytes of rows the left of two leaves may have; `None` if that is too little more than it has.
fn most_of(left: &Node<'_>, right: &Node<'_>) -> Result<Option<usize>, Damage> {
    if !left.is_leaf() || !right.is_leaf() || right.len() == 0 || has_open_split(right) {
        return Ok(None);
    }
    let (before, most) = (left.entry_bytes()?, CAPACITY - left.low()?.len());
    let (more, _) = first_rows(right, most.saturating_sub(before + left.high()?.map_or(0, <[u8]>::len)))?;
    Ok((more >= LEAST).then_some(most))
}
