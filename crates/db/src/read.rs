//! Transactions that only read, by one snapshot and without locks.

use crate::{
    ByIndex, CommitTicket, Cursor, Db, Error, IndexDef, KeyPrefix, KeyRange, Keys, ListedTable, Range, ReadOptions,
    Result, Salvage, Table, TableDef, TableStats, Transaction, ValueReader,
};
use foreshore_base::key::{Key, Value};
use std::borrow::Borrow;
use std::ops::RangeBounds;

impl Db {
    /// Begins a transaction that reads by a snapshot of what is durable now. It sees every commit that was acknowledged
    /// as durable before the call.
    ///
    /// It waits for no writer. Neither a writer nor a transaction that drops one of its tables waits for it.
    ///
    /// Never fails itself: the first operation returns the error, as after [`begin`](Self::begin).
    #[must_use]
    pub fn read(&self) -> ReadTransaction {
        self.read_with(ReadOptions::new())
    }

    /// Begins a transaction that only reads, with `options`.
    #[must_use]
    pub fn read_with(&self, options: ReadOptions) -> ReadTransaction {
        ReadTransaction { inner: self.begin_with(options.into_txn_options()) }
    }
}

/// A transaction that only reads, by one snapshot. In the serial order it comes after the writers whose commits it sees
/// and before all others. [`Db::read`] begins it.
///
/// The engine keeps old versions of rows for it, and the pages of tables that are dropped meanwhile. It is cancelled
/// when it becomes too old, or when these versions and pages take too much space. Its operations then return
/// [`SnapshotTooOld`](crate::Error::SnapshotTooOld).
///
/// ```
/// # use foreshore::{Db, Error, ReadOptions, TableDef};
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
/// let reader = db.read();
/// db.run(|tx| tx.drop_table("stock").map(drop))?;
/// assert_eq!(reader.open(STOCK)?.get(1)?, Some(10));
/// assert_eq!((reader.tables()?.len(), reader.open_raw("stock")?.len()?), (1, 1));
/// reader.finish()?.wait()?;
/// assert!(db.read_with(ReadOptions::new().latest()).tables()?.is_empty());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ReadTransaction {
    inner: Transaction,
}

impl ReadTransaction {
    /// Opens a table as it was when the snapshot was taken.
    ///
    /// A table that was dropped since is still there with its rows, even if another table has its name by now. A table
    /// that was created since, under a name that was free, is empty.
    ///
    /// # Errors
    /// `NoTable`, `TableName`, `TableTypes`, `SnapshotTooOld`, and those of any operation.
    pub fn open<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<ReadTable<'_, K, V>> {
        self.inner.open_known(def).map(|table| ReadTable { table })
    }

    /// Opens a table as [`open`](Self::open) does, whatever its types. Keys and values are passed and returned encoded:
    /// see [`Transaction::open_raw`].
    ///
    /// # Errors
    /// `NoTable`, `TableName`, `SnapshotTooOld`, and those of any operation.
    pub fn open_raw(&self, name: &str) -> Result<ReadTable<'_, &'static [u8], &'static [u8]>> {
        self.inner.open_known_raw(name).map(|table| ReadTable { table })
    }

    /// Begins another transaction that reads by the same snapshot. So several threads read the same rows at once: each
    /// has a fork, which may outlive this one. It counts as a transaction of its own.
    ///
    /// # Errors
    /// `SnapshotTooOld`, `TooManyTransactions`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (0..10_000).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let (reader, other) = (db.read(), db.read().fork()?);
    /// let half = reader.open(STOCK)?.split_points(2)?[0];
    /// let fork = reader.fork()?;
    /// let upper = std::thread::spawn(move || fork.open(STOCK)?.count(half..));
    /// let lower = reader.open(STOCK)?.count(..half)?;
    /// assert_eq!(lower + upper.join().unwrap()?, other.open(STOCK)?.len()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn fork(&self) -> Result<Self> {
        self.inner.fork().map(|inner| Self { inner })
    }

    /// Returns the tables as they were when the snapshot was taken, by name, as [`Transaction::tables`] does.
    ///
    /// # Errors
    /// Those of any operation.
    pub fn tables(&self) -> Result<Vec<ListedTable>> {
        self.inner.tables()
    }

    /// Returns the tables as [`tables`](Self::tables) does, except those that damaged pages of the catalogue hide, and
    /// the error of each of these pages. The transaction goes on.
    ///
    /// # Errors
    /// Those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Salvaged, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// let reader = db.read();
    /// let (tables, damage) = reader.readable_tables()?;
    /// assert!(damage.is_empty());
    /// for item in reader.open_raw(&tables[0].name)?.salvage() {
    ///     match item? {
    ///         Salvaged::Row { key, value } => println!("{key:?}: {value:?}"),
    ///         lost => panic!("{lost:?}"),
    ///     }
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn readable_tables(&self) -> Result<(Vec<ListedTable>, Vec<Error>)> {
        self.inner.readable_tables()
    }

    /// Ends the transaction. The ticket resolves when everything that was read is durable.
    ///
    /// That is at once, unless the transaction read by [`ReadOptions::latest`], or read a table whose creation is not
    /// durable.
    ///
    /// # Errors
    /// `RolledBack` if an earlier error ended the transaction.
    pub fn finish(self) -> Result<CommitTicket> {
        self.inner.commit_pipelined()
    }
}

/// A table open in a transaction that only reads. Its methods return the errors of [`Table`], and `SnapshotTooOld`.
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
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ReadTable<'tx, K, V> {
    table: Table<'tx, K, V>,
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

    /// Estimates the number of rows, as [`Table::len_estimate`] does. Rows count that the snapshot does not see.
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

    /// Iterates over the rows by key, encoded, and goes on behind damaged pages. What cannot be read is an item of its
    /// own, in the order of the keys: see [`ReadTransaction::readable_tables`] for an example.
    ///
    /// The rows below a damaged inner node are not reached, even those in sound pages.
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
