//! Statistics of a table.

use super::Table;
use crate::Result;
use foreshore_base::key::{Key, Value};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_btree::Census;

/// Pages that one operation of the transaction reads.
const AT_ONCE: usize = 256;

/// The pages and rows of a table, as [`Table::stats`] counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Rows of committed and of running transactions.
    pub rows: u64,
    /// Deleted rows that are still in their pages, because a transaction or a snapshot needs them or the purge has not
    /// come to them.
    pub ghosts: u64,
    /// Bytes of the keys and values of the rows, encoded.
    pub row_bytes: u64,
    /// Values that lie in pages of their own, because they are larger than
    /// [`MAX_INLINE_VALUE`](crate::limits::MAX_INLINE_VALUE).
    pub large_values: u64,
    /// Pages of these values. Those of replaced and removed values do not count.
    pub large_pages: u64,
    /// Pages with rows.
    pub leaf_pages: u64,
    /// Pages above them.
    pub inner_pages: u64,
    /// Levels of pages.
    pub levels: u64,
    /// Bytes of all pages.
    pub bytes: u64,
    /// Share of the bytes of leaf pages that is in use, in thousandths.
    pub fill_permille: u64,
}

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Counts the pages and rows of the table. It reads each page once, as the page is at that time, but no pages of
    /// large values. It locks no row, so rows that other transactions write meanwhile may be counted or not.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (0..1000).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let stats = db.read().open(STOCK)?.stats()?;
    /// assert_eq!((stats.rows, stats.row_bytes), (1000, 16_000));
    /// assert!(stats.leaf_pages > 3 && stats.fill_permille > 400);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn stats(&self) -> Result<TableStats> {
        let mut census = Census::default();
        while self.tx.with(|_, live| Ok(self.tree.count_nodes(&mut live.txn, &mut census, AT_ONCE)?))? {}
        let Census {
            levels, leaves, inner_nodes, rows, ghosts, row_bytes, free_bytes, large_values, large_pages, ..
        } = census;
        let leaf_bytes = leaves * PAGE_SIZE as u64;
        Ok(TableStats {
            rows,
            ghosts,
            row_bytes,
            large_values,
            large_pages,
            leaf_pages: leaves,
            inner_pages: inner_nodes,
            levels,
            bytes: (leaves + inner_nodes + large_pages) * PAGE_SIZE as u64,
            fill_permille: (leaf_bytes - free_bytes) * 1000 / leaf_bytes,
        })
    }
}
