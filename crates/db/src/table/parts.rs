//! Estimates from some nodes of a table: its number of rows, and keys that split it for parallel scans.

use super::Table;
use crate::Result;
use foreshore_base::key::{Key, Value};

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Estimates the number of rows. The time that it takes does not depend on that number.
    ///
    /// The estimate comes from 16 paths from the root to a leaf, spread over the table. It is exact if all rows lie in
    /// one page. Otherwise it is usually within 10 %. The error may be larger if parts of the table are much fuller
    /// than others, as after deletes. Rows of running transactions count. No row is locked.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (0..10_000).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let rows = db.read().open(STOCK)?.len_estimate()?;
    /// assert!((8_000..12_000).contains(&rows), "{rows}");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len_estimate(&self) -> Result<u64> {
        self.tx.with(|_, live| Ok(self.tree.estimate_rows(&mut live.txn)?))
    }

    /// Returns up to `parts - 1` keys, in order, that split the table into parts of about the same number of pages. So
    /// several threads can scan the ranges between them by one [read transaction](crate::ReadTransaction).
    ///
    /// There are at most 256 parts. A table of several pages has no more parts than pages with rows. The keys are those
    /// of rows, which may be deleted or not committed. No row is locked, and about a thousand pages are read at most.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # use std::ops::Bound;
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (0..10_000).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let reader = db.read();
    /// let stock = reader.open(STOCK)?;
    /// let points = stock.split_points(4)?;
    /// assert_eq!(points.len(), 3);
    /// let starts = [Bound::Unbounded].into_iter().chain(points.iter().copied().map(Bound::Included));
    /// let ends = points.iter().copied().map(Bound::Excluded).chain([Bound::Unbounded]);
    /// let rows = starts.zip(ends).map(|part| stock.count(part)).sum::<Result<u64, Error>>()?;
    /// assert_eq!(rows, 10_000);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn split_points(&self, parts: usize) -> Result<Vec<K::Owned>> {
        let keys = self.tx.with(|_, live| Ok(self.tree.split_keys(&mut live.txn, parts)?))?;
        // Leaves out keys that were written raw and do not decode.
        Ok(keys.iter().filter_map(|key| K::decode_key(key)).collect())
    }
}
