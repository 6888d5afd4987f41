//! What a few nodes tell about a tree: about how many rows it has, and keys that split it into parts of like size.
//!
//! **Rows.** A sample is a path from the root to a leaf. The product of the numbers of children on the path, times the
//! rows of the leaf, is an estimate of all rows. If each child is drawn with the same probability, its mean is the
//! number of rows (Knuth, "Estimating the Efficiency of Backtrack Programs", 1975). The children of the root are not
//! drawn: the samples take them at even distances.

use crate::node::Node;
use crate::tree::Tree;
use foreshore_base::Result;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_sync::primitive::MODEL;
use foreshore_txn::Txn;

/// Paths of an estimate.
const SAMPLES: u64 = if MODEL { 2 } else { 16 };
/// Boundaries between nodes that are collected for each part of a tree.
const PER_PART: usize = 4;
/// Parts at most, so that about a thousand nodes are read.
const MAX_PARTS: usize = 256;

impl Tree {
    /// Estimates the number of rows, whatever the size of the tree, and exactly if it is one leaf. Rows of running
    /// transactions count. It locks the table against a drop, or reads by the transaction's snapshot.
    ///
    /// # Errors
    /// Those of [`Tree::count_nodes`].
    pub fn estimate_rows(&self, txn: &mut Txn) -> Result<u64> {
        self.while_in_use(txn, |txn| {
            let mut draw = Draw(u64::from(self.table().0));
            let (mut sum, mut count) = (0_u128, 0);
            while count < SAMPLES {
                let (rows, is_exact) = self.sample(txn, count, &mut draw)?;
                if is_exact {
                    return Ok(u64::try_from(rows).unwrap_or(u64::MAX));
                }
                (sum, count) = (sum + rows, count + 1);
            }
            Ok(u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX))
        })
    }

    /// Returns the estimate of sample `number`, and whether it is the count of the only leaf.
    fn sample(&self, txn: &mut Txn, number: u64, draw: &mut Draw) -> Result<(u128, bool)> {
        let mut page = [0; PAGE_SIZE];
        let (mut key, mut children, mut wanted) = (Vec::new(), 1_u128, u8::MAX);
        loop {
            let pid = self.read_node(txn, &key, wanted, &mut page)?;
            let node = self.parse(pid, &page)?;
            let damage = |why| self.corrupted(pid, why);
            if node.is_leaf() {
                return Ok((children * rows(&node).map_err(damage)?, wanted == u8::MAX));
            }
            let count = node.len() as u64 + 1;
            let child = match wanted {
                u8::MAX => (number * count + count / 2) / SAMPLES,
                _ => draw.below(count),
            };
            children = children.saturating_mul(u128::from(count));
            // The leftmost child begins where the node does.
            if let Some(entry) = usize::try_from(child).ok().and_then(|child| child.checked_sub(1)) {
                key = node.key(entry).map_err(damage)?.to_vec();
            } else if wanted != u8::MAX {
                key = node.low().map_err(damage)?.to_vec();
            }
            wanted = node.level() - 1;
        }
    }

    /// Returns up to `parts - 1` keys of rows, in order, that split the tree into parts with about as many leaves each:
    /// at most 256 parts. The rows may be deleted or not committed. It locks and reads as [`Tree::estimate_rows`] does.
    ///
    /// # Errors
    /// Those of [`Tree::count_nodes`].
    pub fn split_keys(&self, txn: &mut Txn, parts: usize) -> Result<Vec<Vec<u8>>> {
        if parts < 2 {
            return Ok(Vec::new());
        }
        self.while_in_use(txn, |txn| {
            let mut page = [0; PAGE_SIZE];
            let parts = parts.min(MAX_PARTS);
            let root = self.read_node(txn, &[], u8::MAX, &mut page)?;
            let mut level = self.parse(root, &page)?.level();
            let mut bounds = self.bounds(txn, level, &mut page)?;
            // Not down to the rows, unless the root is their leaf.
            while level > 1 && bounds.len() / PER_PART < parts {
                level -= 1;
                bounds = self.bounds(txn, level, &mut page)?;
            }
            let parts = parts.min(bounds.len() + 1);
            let mut keys = Vec::<Vec<u8>>::new();
            for part in 1..parts {
                let bound = &bounds[part * (bounds.len() + 1) / parts - 1];
                let key = if level == 0 { Some(bound.clone()) } else { self.row_key(txn, bound, &mut page)? };
                keys.extend(key.filter(|key| keys.last().is_none_or(|last| last < key)));
            }
            assert!(keys.len() < parts.max(1), "{} keys split a tree into {parts} parts", keys.len());
            Ok(keys)
        })
    }

    /// Returns the keys of all entries on a level.
    fn bounds(&self, txn: &mut Txn, level: u8, page: &mut [u8; PAGE_SIZE]) -> Result<Vec<Vec<u8>>> {
        let (mut from, mut bounds) = (Vec::new(), Vec::<Vec<u8>>::new());
        loop {
            let pid = self.read_node(txn, &from, level, page)?;
            let node = self.parse(pid, page)?;
            let damage = |why| self.corrupted(pid, why);
            // The root has taken the content of its only child meanwhile.
            if node.level() != level {
                return Ok(bounds);
            }
            for at in 0..node.len() {
                bounds.push(node.key(at).map_err(damage)?.to_vec());
            }
            match node.high().map_err(damage)? {
                Some(high) if high > &from[..] => from = high.to_vec(),
                Some(_) => return Err(damage("the fences are out of order")),
                None => return Ok(bounds),
            }
            if level > 0 {
                bounds.push(from.clone());
            }
        }
    }

    /// Returns the first key at or above `bound` in its leaf.
    fn row_key(&self, txn: &mut Txn, bound: &[u8], page: &mut [u8; PAGE_SIZE]) -> Result<Option<Vec<u8>>> {
        let pid = self.read_node(txn, bound, 0, page)?;
        let node = self.parse(pid, page)?;
        for at in 0..node.len() {
            let key = node.key(at).map_err(|why| self.corrupted(pid, why))?;
            if key >= bound {
                return Ok(Some(key.to_vec()));
            }
        }
        Ok(None)
    }
}

/// Returns the rows of a leaf that are not deleted.
fn rows(leaf: &Node<'_>) -> Result<u128, crate::node::Damage> {
    let mut rows = 0;
    for at in 0..leaf.len() {
        rows += u128::from(!leaf.row(at)?.header.is_ghost());
    }
    Ok(rows)
}

/// A sequence of numbers that is the same each time.
struct Draw(u64);

impl Draw {
    /// Draws a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
