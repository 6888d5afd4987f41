//! A row that is read and then written, under one lock.

use super::Table;
use crate::Result;
use foreshore_base::key::{Key, Value};
use std::{borrow::Borrow, fmt};

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Locks the row of `key` for a write, as [`get_for_update`](Self::get_for_update) does. Returns it for a
    /// change that depends on its value.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<&str, i64> = TableDef::new("stock");
    /// db.run(|tx| {
    ///     let stock = tx.open(STOCK)?;
    ///     assert_eq!(stock.entry("ink")?.or_insert(10)?, 10);
    ///     assert_eq!(stock.entry("ink")?.and_modify(|pieces| *pieces -= 1)?.or_insert(10)?, 9);
    ///     assert_eq!(stock.entry("pens")?.get(), None);
    ///     stock.entry("ink")?.remove()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn entry<'t, 'k>(&'t self, key: impl Borrow<K::Ref<'k>>) -> Result<Entry<'t, 'tx, K, V>> {
        let mut bytes = Vec::new();
        K::encode_key(key.borrow(), &mut bytes);
        let value = self.lock_encoded(&bytes)?;
        Ok(Entry { table: self, key: bytes, value })
    }
}

/// A row of a table, existing or not, that [`Table::entry`] has locked for a write.
///
/// The entry has the state of the row at the time when the entry was made. A later write of the row through the
/// table is not seen by [`get`](Self::get), and [`and_modify`](Self::and_modify) writes over it.
///
/// The absence of a row is locked at [`Isolation::Serializable`](crate::Isolation::Serializable) only. At the other
/// levels another transaction may insert the row meanwhile: then [`or_insert`](Self::or_insert) returns its value, at
/// read committed, or a `Conflict`, at snapshot. At read committed `and_modify(change)?.or_insert(value)` may thus
/// return a value without the change. [`Table::update_with`] always applies its change.
#[must_use]
pub struct Entry<'t, 'tx, K, V: Value> {
    table: &'t Table<'tx, K, V>,
    key: Vec<u8>,
    value: Option<V::Owned>,
}

impl<K: Key, V: Value> Entry<'_, '_, K, V> {
    /// Returns the value, if there is a row.
    #[must_use]
    pub const fn get(&self) -> Option<&V::Owned> {
        self.value.as_ref()
    }

    /// Returns the value. If there is no row, inserts one with `value`.
    ///
    /// # Errors
    /// Those of every method of [`Table`], and `ValueTooLarge`.
    pub fn or_insert(self, value: V::Owned) -> Result<V::Owned> {
        self.or_insert_with(|| value)
    }

    /// Returns the value. If there is no row, inserts one with the value that `make` returns.
    ///
    /// # Errors
    /// Those of every method of [`Table`], and `ValueTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| {
    ///     let stock = tx.open(STOCK)?;
    ///     assert_eq!(stock.entry(1)?.or_insert_with(|| 10)?, 10);
    ///     assert_eq!(stock.entry(1)?.insert(20)?, Some(10));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn or_insert_with(self, make: impl FnOnce() -> V::Owned) -> Result<V::Owned> {
        if let Some(value) = self.value {
            return Ok(value);
        }
        let new = make();
        while !self.table.insert_encoded(&self.key, &V::to_ref(&new))? {
            // Another transaction has inserted the row since. If there is none to lock, it was removed again.
            if let Some(value) = self.table.lock_encoded(&self.key)? {
                return Ok(value);
            }
        }
        Ok(new)
    }

    /// Writes the value that `change` makes of the present one. If there is no row, does nothing.
    ///
    /// # Errors
    /// Those of every method of [`Table`], and `ValueTooLarge`.
    pub fn and_modify(mut self, change: impl FnOnce(&mut V::Owned)) -> Result<Self> {
        if let Some(value) = &mut self.value {
            change(value);
            self.table.put_encoded(&self.key, &V::to_ref(value))?;
        }
        Ok(self)
    }

    /// Sets the value, whether there is a row or not. Returns the previous value, also of a row that was inserted since
    /// the entry was made.
    ///
    /// # Errors
    /// Those of every method of [`Table`], and `ValueTooLarge`.
    pub fn insert<'v>(self, value: impl Borrow<V::Ref<'v>>) -> Result<Option<V::Owned>> {
        self.table.replace_encoded(&self.key, value.borrow())
    }

    /// Removes the row and returns its value. If there was no row when the entry was made, does nothing.
    ///
    /// # Errors
    /// Those of every method of [`Table`].
    pub fn remove(self) -> Result<Option<V::Owned>> {
        if self.value.is_some() { self.table.take_encoded(&self.key) } else { Ok(None) }
    }
}

impl<K, V: Value> fmt::Debug for Entry<'_, '_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("table", self.table).field("value", &self.value).finish_non_exhaustive()
    }
}
