//! Names and types of tables.

use crate::{Error, Result};
use foreshore_base::key::{Key, Value};
use foreshore_base::limits::MAX_TABLE_NAME;
use std::{fmt, marker::PhantomData};

/// Name and types with which a table is opened.
///
/// A constant if the name is known: `const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");`. The names of
/// the types are stored when the table is created and compared at each open. `TableDef<&[u8], &[u8]>` holds raw bytes.
pub struct TableDef<'n, K, V> {
    name: &'n str,
    types: PhantomData<fn(K) -> V>,
}

impl<'n, K: Key, V: Value> TableDef<'n, K, V> {
    /// Defines the table `name`, of 1 to 255 bytes. Another length is refused when the table is opened.
    #[must_use]
    pub const fn new(name: &'n str) -> Self {
        Self { name, types: PhantomData }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'n str {
        self.name
    }

    pub(crate) fn checked_name(&self) -> Result<&'n str> {
        match self.name.len() {
            1..=MAX_TABLE_NAME => Ok(self.name),
            _ => Err(Error::TableName { name: self.name.to_owned() }),
        }
    }
}

impl<K, V> Clone for TableDef<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableDef<'_, K, V> {}

impl<K, V> fmt::Debug for TableDef<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableDef").field(&self.name).finish()
    }
}
