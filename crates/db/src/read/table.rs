//! Tables of transactions that only read.

use crate::{
    ByIndex, Cursor, IndexDef, KeyPrefix, KeyRange, Keys, Range, Result, Salvage, Table, TableStats, ValueReader,
};
use foreshore_base::key::{Key, Value};
use std::borrow::Borrow;
use std::ops::RangeBounds;

/// A table open in a transaction that only reads. It stays on the thread that has opened it. Its methods return the
/// errors of [`Table`], and `SnapshotTooOld`.
///
/// ```
/// # use foreshore::{Db, Error, IndexDef, TableDef};
/// # let db = Db::in_memory()?;
/// const BY_LENGTH: IndexDef<&str, &str, u64> =
///     IndexDef::new("by length", |_, name: &String, keys| keys.add(name.len() as u64));
/// const USERS: TableDef<&str, &str> = TableDef::new("users").with_indexes(&[&BY_LENGTH]);
/// db.run(|tx| {
///     let users = tx.open(USERS)?;
///     users.put("ada", "Ada Lovelace")?;
///     users.put("alan", "Alan Turing")
/// })?;
/// let reader = db.read();
/// let users = reader.open(USERS)?;
/// assert_eq!((users.len()?, users.count("b"..)?, users.is_empty()?), (2, 0, false));
/// assert_eq!(users.get("ada")?.as_deref(), Some("Ada Lovelace"));
/// assert_eq!(users.get_with("ada", |name| name.len())?, Some(12));
/// let mut name = Vec::new();
/// assert!(users.get_into("ada", &mut name)? && name.ends_with(b"Lovelace"));
/// assert_eq!(users.get_range("ada", 4..)?.as_deref(), Some(&b"Lovelace"[..]));
/// assert_eq!(users.get_reader("ada")?.map(|name| name.len()), Some(12));
/// assert_eq!(users.get_many(&["alan", "bob"])?, [Some("Alan Turing".to_owned()), None]);
/// users.get_many_with(&["ada"], |_, name| assert!(name.is_some()))?;
/// assert!(users.contains("alan")? && users.first()? != users.last()?);
/// assert_eq!(users.range("ak"..).count() + users.prefix("a").count() + users.iter().count(), 5);
/// assert_eq!(users.keys(..).next().transpose()?, users.cursor().next()?.map(|(key, _)| key));
/// assert_eq!(users.by_index(BY_LENGTH)?.get(12)?, users.first()?);
/// assert_eq!((users.stats()?.rows, users.len_estimate()?, users.split_points(1)?.len()), (2, 2, 0));
/// assert_eq!(users.salvage().count(), 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ReadTable<'tx, K, V> {
    pub(super) table: Table<'tx, K, V>,
}

impl<'tx, K: Key, V: Value> ReadTable<'tx, K, V> {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        self.table.get(key)
    }

    /// Copies the encoded value of `key` to `value`, as [`Table::get_into`] does.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_into<'k>(&self, key: impl Borrow<K::Ref<'k>>, value: &mut Vec<u8>) -> Result<bool> {
        self.table.get_into(key, value)
    }

    /// Calls `read` with the encoded value of `key`, as [`Table::get_with`] does.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_with<'k, T>(&self, key: impl Borrow<K::Ref<'k>>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.table.get_with(key, read)
    }

    /// Returns a reader of the encoded value of `key`, as [`Table::get_reader`] does.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_reader<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<ValueReader<'tx>>> {
        self.table.get_reader(key)
    }

    /// Returns the bytes of the encoded value of `key` that lie in `range`, as [`Table::get_range`] does.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_range<'k>(&self, key: impl Borrow<K::Ref<'k>>, range: impl RangeBounds<u64>) -> Result<Option<Vec<u8>>> {
        self.table.get_range(key, range)
    }

    /// Returns the values of `keys`, in their order, as [`Table::get_many`] does. All keys are read in one operation.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_many<'k>(&self, keys: &[impl Borrow<K::Ref<'k>>]) -> Result<Vec<Option<V::Owned>>> {
        self.table.get_many(keys)
    }

    /// Calls `read` with the index of each key in `keys` and the key's encoded value, as [`Table::get_many_with`] does.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`. If one is returned, `read` was not called.
    pub fn get_many_with<'k>(
        &self,
        keys: &[impl Borrow<K::Ref<'k>>],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.table.get_many_with(keys, read)
    }

    /// Iterates over the rows with keys in `range`, by key, from either end or both.
    pub fn range<'k>(&self, range: impl KeyRange<'k, K>) -> Range<'tx, K, V> {
        self.table.range(range)
    }

    /// Returns the row with the smallest key.
    ///
    /// # Errors
    /// Those of every method.
    pub fn first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.table.first()
    }

    /// Returns the row with the largest key.
    ///
    /// # Errors
    /// Those of every method.
    pub fn last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.table.last()
    }

    /// Returns whether there is a row of `key`.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn contains<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<bool> {
        self.table.contains(key)
    }

    /// Returns whether there is no row.
    ///
    /// # Errors
    /// Those of every method.
    pub fn is_empty(&self) -> Result<bool> {
        self.table.is_empty()
    }

    /// Scans the table and returns the number of rows that the snapshot sees.
    ///
    /// # Errors
    /// Those of every method.
    pub fn len(&self) -> Result<u64> {
        self.table.len()
    }

    /// Returns the number of rows with keys in `range`. It takes a scan of the range.
    ///
    /// # Errors
    /// Those of every method.
    pub fn count<'k>(&self, range: impl KeyRange<'k, K>) -> Result<u64> {
        self.table.count(range)
    }

    /// Iterates over the keys in `range`, in order, from either end or both.
    pub fn keys<'k>(&self, range: impl KeyRange<'k, K>) -> Keys<'tx, K> {
        self.table.keys(range)
    }

    /// Iterates over the rows with keys that begin with `prefix`, as [`Table::prefix`] does.
    pub fn prefix<'k>(&self, prefix: impl KeyPrefix<'k, K>) -> Range<'tx, K, V> {
        self.table.prefix(prefix)
    }

    /// Returns an index of the table, as it was when the snapshot was taken, as [`Table::by_index`] does.
    ///
    /// # Errors
    /// Those of every method, and `NoIndex`, `IndexTypes`. `Conflict` if the index was created since.
    pub fn by_index<I: Key + 'static>(&self, index: IndexDef<K, V, I>) -> Result<ByIndex<'tx, K, V, I>>
    where
        K: 'static,
        V: 'static,
    {
        self.table.by_index(index)
    }

    /// Estimates the number of rows, as [`Table::len_estimate`] does. Rows that the snapshot does not see are counted
    /// too.
    ///
    /// # Errors
    /// Those of every method.
    pub fn len_estimate(&self) -> Result<u64> {
        self.table.len_estimate()
    }

    /// Returns keys that split the table into parts, as [`Table::split_points`] does.
    ///
    /// # Errors
    /// Those of every method.
    pub fn split_points(&self, parts: usize) -> Result<Vec<K::Owned>> {
        self.table.split_points(parts)
    }

    /// Counts the pages and rows of the table, as [`Table::stats`] does.
    ///
    /// # Errors
    /// Those of every method.
    pub fn stats(&self) -> Result<TableStats> {
        self.table.stats()
    }

    /// Iterates over the encoded rows in key order, and skips damaged pages. What cannot be read is an item of its own,
    /// in key order: see [`ReadTransaction::readable_tables`](crate::ReadTransaction::readable_tables).
    ///
    /// The rows below a damaged inner node are found if the database is [only read](crate::Options::open_read_only),
    /// and the map of its pages is sound.
    pub fn salvage(&self) -> Salvage<'tx> {
        self.table.salvage()
    }

    /// Returns a cursor before the first row.
    pub const fn cursor<'t>(&'t self) -> Cursor<'t, 'tx, K, V> {
        self.table.cursor()
    }

    /// Iterates over all rows, by key.
    pub fn iter(&self) -> Range<'tx, K, V> {
        self.table.iter()
    }
}
