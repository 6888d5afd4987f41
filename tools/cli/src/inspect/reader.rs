//! What verbs read from: a snapshot, or a transaction that also writes.

use foreshore::{ListedTable, Range, ReadTransaction, Result, Transaction};
use std::ops::Bound;

/// Encoded keys between which rows are read.
pub(crate) type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);
/// Encoded rows.
pub(crate) type Rows<'tx> = Range<'tx, &'static [u8], &'static [u8]>;

/// Reads encoded rows of tables by name. A table that does not exist is `NoTable`.
pub(crate) trait Reader {
    fn tables(&self) -> Result<Vec<ListedTable>>;
    fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn range(&self, table: &str, bounds: KeyBounds<'_>) -> Result<Rows<'_>>;
    fn count(&self, table: &str, bounds: KeyBounds<'_>) -> Result<u64>;
}

impl Reader for ReadTransaction {
    fn tables(&self) -> Result<Vec<ListedTable>> {
        self.tables()
    }

    fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.open_raw(table)?.get(key)
    }

    fn range(&self, table: &str, bounds: KeyBounds<'_>) -> Result<Rows<'_>> {
        Ok(self.open_raw(table)?.range(bounds))
    }

    fn count(&self, table: &str, bounds: KeyBounds<'_>) -> Result<u64> {
        self.open_raw(table)?.count(bounds)
    }
}

impl Reader for Transaction {
    fn tables(&self) -> Result<Vec<ListedTable>> {
        self.tables()
    }

    fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.open_raw(table)?.get(key)
    }

    fn range(&self, table: &str, bounds: KeyBounds<'_>) -> Result<Rows<'_>> {
        Ok(self.open_raw(table)?.range(bounds))
    }

    fn count(&self, table: &str, bounds: KeyBounds<'_>) -> Result<u64> {
        self.open_raw(table)?.count(bounds)
    }
}
