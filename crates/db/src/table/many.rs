//! Lookups of many keys by one call.

use super::Table;
use crate::Result;
use crate::live::Scratch;
use foreshore_base::key::{Key, Value};
use foreshore_btree::Batch;
use std::{borrow::Borrow, mem};

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Returns the values of `keys`, in their order, and `None` for a key without a row. Reads as [`get`](Self::get)
    /// does. A read by snapshot uses one snapshot for all keys, and overlaps their cache misses.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.insert(1, 10))?;
    /// let reader = db.read();
    /// assert_eq!(reader.open(STOCK)?.get_many(&[1, 2])?, [Some(10), None]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_many<'k>(&self, keys: &[impl Borrow<K::Ref<'k>>]) -> Result<Vec<Option<V::Owned>>> {
        self.tx.with(|_, live| {
            let (txn, Scratch { batch, .. }) = live.parts();
            encode_keys::<K>(keys, batch);
            self.tree.get_many(txn, batch)?;
            let value = |index| batch.value(index).map(|bytes| self.value(batch.key(index), bytes)).transpose();
            (0..batch.len()).map(value).collect()
        })
    }

    /// Calls `read` with the index of each key in `keys` and its encoded value, or `None` for a key without a row.
    /// Reads as [`get_many`](Self::get_many) does, but makes no owned values.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`. `read` has not been called then.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const NAMES: TableDef<u64, &str> = TableDef::new("names");
    /// db.run(|tx| tx.open(NAMES)?.put(1, "Ada"))?;
    /// let mut bytes = 0;
    /// db.read().open(NAMES)?.get_many_with(&[1, 2], |_, name| bytes += name.map_or(0, <[u8]>::len))?;
    /// assert_eq!(bytes, 3);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_many_with<'k>(
        &self,
        keys: &[impl Borrow<K::Ref<'k>>],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let batch = self.tx.with(|_, live| {
            let (txn, Scratch { batch, .. }) = live.parts();
            encode_keys::<K>(keys, batch);
            self.tree.get_many(txn, batch)?;
            Ok(mem::take(batch))
        })?;
        // The caller's closure runs with nothing borrowed, so that it may use the transaction.
        (0..batch.len()).for_each(|index| read(index, batch.value(index)));
        self.tx.if_live(|live| live.scratch.batch = batch);
        Ok(())
    }
}

/// Encodes the keys of a batch.
fn encode_keys<'k, K: Key>(keys: &[impl Borrow<K::Ref<'k>>], batch: &mut Batch) {
    batch.clear(keys.len());
    keys.iter().for_each(|key| batch.push(|out| K::encode_key(key.borrow(), out)));
}
