//! Reads by secondary indexes of tables of encoded rows.

use crate::index_def::by_index;
use crate::open::Slot;
use crate::{Bounds, Cursor, Direction, IndexDef, Result, Table};
use foreshore::{ByIndex, RawKey};
use std::sync::Arc;

/// A row by an index: its encoded key and value.
pub type Row = (Vec<u8>, Vec<u8>);

/// An index of a table that is open in a transaction. Index keys are encoded: whole if it is unique, else as a part.
pub struct Index {
    slot: Arc<Slot>,
    def: IndexDef,
}

impl Index {
    pub(crate) fn new(slot: Arc<Slot>, def: IndexDef) -> Result<Self> {
        let index = Self { slot, def };
        index.with(|_| Ok(()))?;
        Ok(index)
    }

    fn with<T>(
        &self,
        read: impl FnOnce(ByIndex<'static, &'static [u8], &'static [u8], RawKey>) -> foreshore::Result<T>,
    ) -> Result<T> {
        self.slot.shared.with(|open| Ok(read(by_index(self.slot.of(open)?, self.def)?)?))
    }

    /// Returns the row with an index key, the first of several.
    ///
    /// # Errors
    /// `NoIndex`, `IndexTypes`, and those of the engine.
    pub fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        self.with(|index| index.get(key))
    }

    /// Returns whether a row has an index key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.with(|index| index.contains(key))
    }

    /// Compares the index with its table, and returns the number of entries.
    ///
    /// # Errors
    /// `IndexMismatch`, and those of [`get`](Self::get).
    pub fn check(&self) -> Result<u64> {
        self.with(|index| index.check())
    }

    /// Begins a scan of the rows whose index keys lie between the bounds, in the order of the index keys. It reads one
    /// row at a time.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn scan(&self, bounds: Bounds, direction: Direction) -> Result<Cursor> {
        self.slot.shared.with(|open| open.running().map(drop))?;
        Ok(Cursor::new(Arc::clone(&self.slot), bounds, direction, Some(self.def)))
    }
}

impl Table {
    /// Returns an index of the table.
    ///
    /// # Errors
    /// `NoIndex`, `IndexTypes`, and those of the engine.
    pub fn by_index(&self, def: IndexDef) -> Result<Index> {
        Index::new(Arc::clone(self.slot()), def)
    }
}
