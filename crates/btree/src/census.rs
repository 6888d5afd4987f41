//! The count of a tree's pages and rows while other threads read and change it.
//!
//! Each level is walked from left to right. A node is found from the root by the high fence of the previous one, so
//! splits and merges in between do no harm. Each node is counted in the state in which it was copied.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::{OVERFLOW, Stub};
use crate::node::Goal;
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, Result};
use foreshore_lock::TableMode;
use foreshore_txn::Txn;

/// The pages and rows of a tree. [`Tree::count_nodes`] counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Levels, one for a tree that is a single leaf.
    pub levels: u64,
    /// Nodes without children.
    pub leaves: u64,
    /// Nodes with children.
    pub inner_nodes: u64,
    /// Rows that neither a committed nor a running transaction has deleted.
    pub rows: u64,
    /// Deleted rows that are still in their leaves.
    pub ghosts: u64,
    /// Bytes of the keys and values of the rows, large ones included.
    pub row_bytes: u64,
    /// Rows with a large value.
    pub large_values: u64,
    /// Pages of the large values. They are not read.
    pub large_pages: u64,
    /// Free bytes of the leaves.
    pub free_bytes: u64,
    /// The place where the count continues: a level, and the key at which its next node begins.
    next: (u8, Vec<u8>),
}

impl Tree {
    /// Counts up to `most` further nodes of the tree, and returns whether there are more. It locks the table against a
    /// drop, or reads by the transaction's snapshot.
    ///
    /// # Errors
    /// Those of [`Tree::range`], and `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn count_nodes(&self, txn: &mut Txn, census: &mut Census, most: usize) -> Result<bool> {
        self.while_in_use(txn, |txn| self.count_some(txn, census, most))
    }

    /// Runs `work`, which reads nodes in any version. Meanwhile the table is locked against a drop, or is kept for the
    /// transaction's snapshot.
    pub(crate) fn while_in_use<T>(&self, txn: &mut Txn, work: impl FnOnce(&mut Txn) -> Result<T>) -> Result<T> {
        let Some(snapshot) = txn.reads_at()? else {
            self.lock(txn, TableMode::IntentShared)?;
            return work(txn);
        };
        let _operation = self.begin_read(txn, &snapshot)?;
        work(txn).map_err(|error| self.judge(txn, &snapshot, error))
    }

    /// Copies the node on `level` that covers `key`, or the root if the tree has no such level. Returns its page.
    pub(crate) fn read_node(&self, txn: &mut Txn, key: &[u8], level: u8, page: &mut [u8; PAGE_SIZE]) -> Result<PageId> {
        let mut restarts = Restarts::default();
        loop {
            let structure = &mut Structure::of_reader(txn);
            let found: ReadGuard<'_, true> = self.find_again(structure, Goal::At(key), level, 0, &mut restarts)?;
            found.page().copy_to(0..PAGE_SIZE, page);
            if found.holds() {
                return Ok(found.pid());
            }
            self.restart(&mut restarts);
        }
    }

    fn count_some(&self, txn: &mut Txn, census: &mut Census, most: usize) -> Result<bool> {
        for _ in 0..most {
            if !self.count_node(txn, census)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the next node. Returns false if there is none.
    fn count_node(&self, txn: &mut Txn, census: &mut Census) -> Result<bool> {
        let (level, from) = &census.next;
        let mut page = [0; PAGE_SIZE];
        let pid = self.read_node(txn, from, *level, &mut page)?;
        let node = self.parse(pid, &page)?;
        if node.level() != *level {
            // The count has passed the level of the root.
            return Ok(false);
        }
        let damage = |why| self.corrupted(pid, why);
        assert!(census.levels <= u64::from(*level) + 1, "levels are counted from the leaves up");
        census.levels = u64::from(*level) + 1;
        if node.is_leaf() {
            census.leaves += 1;
            census.free_bytes += node.free() as u64;
            for at in 0..node.len() {
                let row = node.row(at).map_err(damage)?;
                if row.header.is_ghost() {
                    census.ghosts += 1;
                    continue;
                }
                let value_len = if row.header.flags & OVERFLOW == 0 {
                    row.value.len() as u64
                } else {
                    let stub = Stub::decode(row.value).map_err(damage)?;
                    census.large_values += 1;
                    census.large_pages += stub.pages();
                    stub.len
                };
                census.rows += 1;
                census.row_bytes += row.key.len() as u64 + value_len;
            }
        } else {
            census.inner_nodes += 1;
        }
        census.next = match node.high().map_err(damage)? {
            Some(high) if high > &from[..] => (*level, high.to_vec()),
            Some(_) => return Err(damage("the fences are out of order")),
            None => (*level + 1, Vec::new()),
        };
        Ok(true)
    }
}
