//! Loading of rows in transactions of limited size.

use crate::exit::Failure;
use foreshore::Db;

/// Rows of a transaction at most.
const MAX_ROWS: usize = 1000;
/// Bytes of keys and values after which a transaction takes no further row.
const MAX_BYTES: usize = 1 << 20;

/// A table that is being loaded.
pub(crate) struct Batch<'d> {
    db: &'d Db,
    table: String,
    key_type: String,
    value_type: String,
    /// Rows that the next transaction writes.
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Their bytes.
    bytes: usize,
    /// Rows that are committed.
    loaded: u64,
}

impl<'d> Batch<'d> {
    /// Creates the table, unless it exists with these types.
    pub(crate) fn begin(db: &'d Db, table: String, key_type: String, value_type: String) -> Result<Self, Failure> {
        let mut batch = Self { db, table, key_type, value_type, rows: Vec::new(), bytes: 0, loaded: 0 };
        batch.commit()?;
        Ok(batch)
    }

    /// Adds a row. It replaces that of the same key.
    pub(crate) fn add(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Failure> {
        let len = key.len() + value.len();
        if self.rows.len() == MAX_ROWS || (self.bytes + len > MAX_BYTES && !self.rows.is_empty()) {
            self.commit()?;
        }
        self.bytes += len;
        self.rows.push((key, value));
        Ok(())
    }

    /// Commits the rows that are left. Returns the number of all rows.
    pub(crate) fn end(mut self) -> Result<u64, Failure> {
        if !self.rows.is_empty() {
            self.commit()?;
        }
        Ok(self.loaded)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.db.run(|tx| {
            let table = tx.create_raw(&self.table, &self.key_type, &self.value_type)?;
            self.rows.iter().try_for_each(|(key, value)| table.put(&**key, &**value))
        })?;
        self.loaded += self.rows.len() as u64;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }
}
