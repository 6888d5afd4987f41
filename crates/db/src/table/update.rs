//! Changes of one row that do not return its old value, or that depend on it.

use super::codec::{encode_key, encode_value};
use super::kept::{Write, Writer};
use super::{Table, existing};
use crate::live::Scratch;
use crate::{Error, MergeDef, Result};
use foreshore_base::key::{Key, Value};
use foreshore_lock::RowLock;
use std::borrow::Borrow;

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Sets the value of `key`. Unlike [`insert`](Self::insert) it does not read a large previous value, and decodes
    /// none, unless the table has indexes.
    ///
    /// # Errors
    /// Those of every method, `KeyTooLarge` and `ValueTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// assert_eq!(db.read().open(STOCK)?.get(1)?, Some(10));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put<'k, 'v>(&self, key: impl Borrow<K::Ref<'k>>, value: impl Borrow<V::Ref<'v>>) -> Result<()> {
        let (key, value) = (key.borrow(), value.borrow());
        self.tx.with(|engine, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { key, value, found, indexes, dropped, inserted, .. }) = live.parts();
            self.store(&mut Writer { engine, txn, indexes, dropped, inserted }, Write::put(key, value), found).map(drop)
        })
    }

    /// Changes the value of `key` as `change` says, under a lock of the row, and returns the new value. `change` gets
    /// the value, or `None` if there is no row. If it returns `None`, the row is removed.
    ///
    /// A row that exists is locked as by [`get_for_update`](Self::get_for_update), so no change is lost and none fails
    /// by a deadlock over this row. At [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) `change` is called
    /// again if another transaction has inserted the row meanwhile.
    ///
    /// # Errors
    /// Those of every method, `KeyTooLarge` and `ValueTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const VISITS: TableDef<&str, u64> = TableDef::new("visits");
    /// let visit = |page| db.run(|tx| tx.open(VISITS)?.update_with(page, |visits| Some(visits.unwrap_or(0) + 1)));
    /// assert_eq!(visit("/home")?, Some(1));
    /// assert_eq!(visit("/home")?, Some(2));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn update_with<'k>(
        &self,
        key: impl Borrow<K::Ref<'k>>,
        mut change: impl FnMut(Option<V::Owned>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        let mut bytes = Vec::new();
        K::encode_key(key.borrow(), &mut bytes);
        loop {
            let old = self.lock_encoded(&bytes)?;
            let was_there = old.is_some();
            let new = change(old);
            match &new {
                Some(value) if was_there => self.put_encoded(&bytes, &V::to_ref(value))?,
                Some(value) if !self.insert_encoded(&bytes, &V::to_ref(value))? => continue,
                None if was_there => drop(self.remove_encoded(&bytes)?),
                Some(_) | None => {}
            }
            return Ok(new);
        }
    }

    /// Applies the [merge operator](crate::MergeDef) of the table to the row of `key`, and returns the new value. If
    /// there is no row, the operator makes one.
    ///
    /// It is applied at once, under a lock of the row, as [`update_with`](Self::update_with) changes a row. So merges
    /// of one row by several transactions take turns.
    ///
    /// # Errors
    /// `InvalidOption` if the definition by which the table was opened declares no operator. Those of every method,
    /// `KeyTooLarge` and `ValueTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, MergeDef, TableDef};
    /// # let db = Db::in_memory()?;
    /// const MAX: MergeDef<i64> = MergeDef::new(|best: Option<i64>, score: &i64| best.unwrap_or(*score).max(*score));
    /// const BEST: TableDef<&str, i64> = TableDef::new("best scores").with_merge(&MAX);
    /// db.run(|tx| {
    ///     let best = tx.open(BEST)?;
    ///     best.merge("Ada", 10)?;
    ///     assert_eq!(best.merge("Ada", 7)?, 10);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn merge<'k>(&self, key: impl Borrow<K::Ref<'k>>, operand: impl Borrow<V::Owned>) -> Result<V::Owned>
    where
        V: 'static,
    {
        let Some(operator) = self.merge.and_then(|merge| merge.downcast_ref::<MergeDef<V>>()) else {
            let (value, expected) = (self.tree.name().to_owned(), "a table that declares a merge operator".to_owned());
            return Err(Error::InvalidOption { name: "table", value, expected });
        };
        let merged = self.update_with(key, |old| Some(operator.apply(old, operand.borrow())))?;
        Ok(merged.expect("the operator has returned a value"))
    }

    /// Locks the row of an encoded key for a write and returns its value.
    pub(super) fn lock_encoded(&self, key: &[u8]) -> Result<Option<V::Owned>> {
        self.tx.with(|_, live| {
            let (txn, Scratch { found, .. }) = live.parts();
            let locked = self.tree.get_locked(txn, key, RowLock::update(), found)?;
            existing(locked).map(|()| self.value(key, found)).transpose()
        })
    }

    /// Sets the value of an encoded key.
    pub(super) fn put_encoded(&self, key: &[u8], value: &V::Ref<'_>) -> Result<()> {
        self.tx.with(|engine, live| {
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { value, found, indexes, dropped, inserted, .. }) = live.parts();
            self.store(&mut Writer { engine, txn, indexes, dropped, inserted }, Write::put(key, value), found).map(drop)
        })
    }

    /// Sets the value of an encoded key and returns its previous value.
    pub(super) fn replace_encoded(&self, key: &[u8], value: &V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.tx.with(|engine, live| {
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { value, found, indexes, dropped, inserted, .. }) = live.parts();
            let was_there = self.store(
                &mut Writer { engine, txn, indexes, dropped, inserted },
                Write::put(key, value).returning_old(),
                found,
            )?;
            was_there.then(|| self.value(key, found)).transpose()
        })
    }

    /// Inserts a row with an encoded key, and returns false if there is one.
    pub(super) fn insert_encoded(&self, key: &[u8], value: &V::Ref<'_>) -> Result<bool> {
        let inserted = self.tx.with(|engine, live| {
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { value, found, indexes, dropped, inserted, .. }) = live.parts();
            self.store(&mut Writer { engine, txn, indexes, dropped, inserted }, Write::insert(key, value), found)
        });
        match inserted {
            Ok(_) => Ok(true),
            Err(Error::KeyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the row of an encoded key and returns whether there was one.
    pub(super) fn remove_encoded(&self, key: &[u8]) -> Result<bool> {
        self.tx.with(|engine, live| {
            let (txn, Scratch { found, indexes, dropped, inserted, .. }) = live.parts();
            self.store(&mut Writer { engine, txn, indexes, dropped, inserted }, Write::remove(key), found)
        })
    }

    /// Removes the row of an encoded key and returns its value.
    pub(super) fn take_encoded(&self, key: &[u8]) -> Result<Option<V::Owned>> {
        self.tx.with(|engine, live| {
            let (txn, Scratch { found, indexes, dropped, inserted, .. }) = live.parts();
            let was_there = self.store(
                &mut Writer { engine, txn, indexes, dropped, inserted },
                Write::remove(key).returning_old(),
                found,
            )?;
            was_there.then(|| self.value(key, found)).transpose()
        })
    }
}
