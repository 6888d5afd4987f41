//! The leaf of the last write, which the next one mostly needs too.

use crate::access::ReadGuard;
use crate::tree::Tree;
use foreshore_buffer::ExclusiveGuard;
use foreshore_sync::model::mutant;
use foreshore_txn::{RowPosition, Txn};
use std::cmp::Ordering;

impl Tree {
    /// Returns the leaf of the row that the session wrote or locked last in this table, if it is unchanged and covers
    /// `key`. If that row has the key, its entry is returned too. So the write of a row that was just locked needs no
    /// descent, nor do writes in the order of their keys.
    ///
    /// The high fence of an unchanged leaf holds: a split, a merge or a move changes the leaf, and a page that leaves
    /// the tree expires. The low fence is not read. It is not above the row, and mostly not in the processor's cache.
    #[inline]
    pub(crate) fn last_leaf_written<'p>(
        &'p self,
        txn: &Txn,
        key: &[u8],
    ) -> Option<(ExclusiveGuard<'p>, Option<usize>)> {
        let RowPosition { page, at } = txn.last_row(self.table())?;
        // Read without the latch, because mostly another leaf covers the key. Taking it validates what was read.
        let leaf = ReadGuard::<false>::at(self.pool(), page)?;
        let node = self.node(&leaf).ok()?;
        let known = match node.compare_key(at, key).ok()? {
            Ordering::Less => None,
            Ordering::Equal => Some(at),
            Ordering::Greater => return None,
        };
        let covers = known.is_some() || !node.ends_before(key).ok()?;
        if !covers && !mutant("sabotage: a write in the last leaf does not look at its fence") {
            return None;
        }
        let leaf = self.pool().exclusive_at(page)?;
        assert!(leaf.position().shares_frame(page), "another page is latched");
        Some((leaf, known))
    }
}
