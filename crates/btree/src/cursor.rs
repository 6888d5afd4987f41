//! Scans in key order.

use crate::descend::{Access, ReadGuard, Restarts};
use crate::node::NO_WRITER;
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Lsn, PageId, Result};
use foreshore_buffer::Scan;
use foreshore_lock::TableMode;
use foreshore_txn::{RowHolder, Txn};
use std::ops::{Bound, Range};

/// A scan of part of a tree. Made by [`Tree::range`].
///
/// Leaves are copied whole, without a latch, and rows are handed out once the copy has been validated. The next leaf is found
/// from the root by the high fence, so splits in between do no harm. Rows that the same transaction writes ahead of the
/// cursor are seen.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    /// Where the next rows begin; `None` at the end.
    from: Option<Bound<Vec<u8>>>,
    upper: Bound<Vec<u8>>,
    /// Where the rows at hand begin.
    start: Bound<Vec<u8>>,
    /// Keys and values of the rows at hand.
    bytes: Vec<u8>,
    rows: Vec<(Range<usize>, Range<usize>)>,
    /// The row to hand out next.
    at: usize,
    /// The transaction's last change when the rows were copied.
    copied_at: Lsn,
    ahead: ReadAhead,
}

/// How far leaves are read ahead: not for the first one, as most scans are short, and twice as many each time after that.
#[derive(Debug, Default)]
struct ReadAhead {
    /// Its part in what all scans may read ahead, once it does so.
    scan: Option<Scan>,
    /// Leaves that were asked for last.
    window: usize,
    /// Those of them that have not been scanned.
    left: usize,
}

impl Tree {
    /// A scan of the rows between two bounds, in ascending order. The table is locked shared to the end of the transaction.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`.
    pub fn range(&self, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Cursor> {
        self.lock(txn, TableMode::Shared)?;
        Ok(Cursor {
            tree: self.clone(),
            from: Some(lower.map(<[u8]>::to_vec)),
            upper: upper.map(<[u8]>::to_vec),
            start: lower.map(<[u8]>::to_vec),
            bytes: Vec::new(),
            rows: Vec::new(),
            at: 0,
            copied_at: txn.last_lsn(),
            ahead: ReadAhead::default(),
        })
    }

    /// Copies the node on `level` that covers `key`.
    fn copy_node(
        &self,
        structure: &mut Structure<'_>,
        key: &[u8],
        level: u8,
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<PageId> {
        let mut restarts = Restarts::default();
        loop {
            let node: ReadGuard<'_> = self.find_again(structure, key, level, 0, &mut restarts)?;
            node.page().copy_to(0..PAGE_SIZE, page);
            if node.holds() {
                return Ok(node.pid());
            }
            self.restart(&mut restarts);
        }
    }

    /// Up to `most` leaves side by side, the first of which covers `key`, where another leaf ends; those below one node, and
    /// none but the first that lies beyond `upper`.
    fn leaves_from(
        &self,
        structure: &mut Structure<'_>,
        key: &[u8],
        upper: &Bound<Vec<u8>>,
        most: usize,
    ) -> Result<Vec<PageId>> {
        let mut page = [0; PAGE_SIZE];
        let pid = self.copy_node(structure, key, 1, &mut page)?;
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &page)?;
        let first = match node.search(key).map_err(damage)? {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        };
        let mut leaves = vec![node.child_for(key).map_err(damage)?];
        for index in first + 1..node.len().min(first + most) {
            let begins = node.key(index).map_err(damage)?;
            match upper {
                Bound::Included(upper) if begins > &upper[..] => break,
                Bound::Excluded(upper) if begins >= &upper[..] => break,
                _ => leaves.push(node.child(index).map_err(damage)?),
            }
        }
        Ok(leaves)
    }
}

impl Cursor {
    /// The next row, or `None` at the end. `txn` is the transaction that the cursor was made for.
    ///
    /// # Errors
    /// `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn next(&mut self, txn: &mut Txn) -> Result<Option<(&[u8], &[u8])>> {
        if txn.last_lsn() != self.copied_at {
            // The transaction has written: what is at hand may be stale, and rows may have come behind the last one.
            self.from = Some(match self.at.checked_sub(1) {
                Some(last) => Bound::Excluded(self.bytes[self.rows[last].0.clone()].to_vec()),
                None => self.start.clone(),
            });
            self.rows.clear();
            self.at = 0;
        }
        while self.at == self.rows.len() {
            let Some(from) = self.from.take() else { return Ok(None) };
            self.copy_leaf(txn, from)?;
        }
        let (key, value) = self.rows[self.at].clone();
        self.at += 1;
        Ok(Some((&self.bytes[key], &self.bytes[value])))
    }

    /// Copies the rows of one leaf that lie between `from` and the upper bound.
    fn copy_leaf(&mut self, txn: &mut Txn, from: Bound<Vec<u8>>) -> Result<()> {
        self.rows.clear();
        self.bytes.clear();
        self.at = 0;
        self.copied_at = txn.last_lsn();
        self.start = from;
        let tree = &self.tree;
        let start: &[u8] = match &self.start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let mut page = [0; PAGE_SIZE];
        let pid = tree.copy_node(&mut Structure::of(txn), start, 0, &mut page)?;
        let damage = |why| tree.corrupted(pid, why);
        let node = tree.parse(pid, &page)?;
        let first = match node.search(start).map_err(damage)? {
            Ok(at) => at + usize::from(matches!(self.start, Bound::Excluded(_))),
            Err(at) => at,
        };
        for at in first..node.len() {
            let row = node.row(at).map_err(damage)?;
            let beyond = match &self.upper {
                Bound::Included(upper) => row.key > &upper[..],
                Bound::Excluded(upper) => row.key >= &upper[..],
                Bound::Unbounded => false,
            };
            if beyond {
                return Ok(());
            }
            // Under the table's shared lock there is no writer, for a writer has its intent locked.
            match txn.row_holder(row.header.xid) {
                RowHolder::Nobody | RowHolder::Me => {}
                // A rollback that fails stops the log before it gives up its locks.
                RowHolder::Other(_) => {
                    let damage = damage("a row has a writer that the lock of the table excludes");
                    return Err(tree.pool().log().poisoned().unwrap_or(damage));
                }
                RowHolder::Unknown => return Err(damage(NO_WRITER)),
            }
            if row.header.is_ghost() {
                continue;
            }
            let key = self.bytes.len();
            self.bytes.extend_from_slice(row.key);
            let value = self.bytes.len();
            self.bytes.extend_from_slice(row.value);
            self.rows.push((key..value, value..self.bytes.len()));
        }
        self.from = node.high().map_err(damage)?.map(|high| Bound::Included(high.to_vec()));
        self.read_ahead(txn);
        Ok(())
    }

    /// Has the leaves from the next one on read in the background, when half of those asked for before have been scanned.
    fn read_ahead(&mut self, txn: &mut Txn) {
        let Some(Bound::Included(key)) = &self.from else { return };
        let ahead = &mut self.ahead;
        ahead.left = ahead.left.saturating_sub(1);
        if 2 * ahead.left > ahead.window {
            return;
        }
        if ahead.window == 0 {
            ahead.window = 1;
            return;
        }
        let pool = self.tree.pool();
        let most = ahead.scan.get_or_insert_with(|| pool.scan()).depth();
        if most == 0 {
            return;
        }
        ahead.window = (2 * ahead.window).min(most);
        // An error is for the scan, if it gets there.
        let leaves = self.tree.leaves_from(&mut Structure::of(txn), key, &self.upper, ahead.window).unwrap_or_default();
        // At the end of a node there are fewer.
        ahead.left = leaves.len();
        pool.prefetch(&leaves);
    }
}
