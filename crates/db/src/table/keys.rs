//! Iteration over keys alone, and questions that need no value.

use super::codec::{encode_key, undecodable};
use super::scan::{End, Memory, Scan, Span};
use super::{KeyPrefix, KeyRange, Range, Table};
use crate::Result;
use crate::live::Scratch;
use foreshore_base::TableId;
use foreshore_base::key::{Key, Value};
use std::{borrow::Borrow, fmt, iter::FusedIterator, marker::PhantomData};

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Returns whether there is a row of `key`. Reads and locks as [`get`](Self::get) does.
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
    /// let stock = reader.open(STOCK)?;
    /// assert!(stock.contains(1)? && !stock.contains(2)?);
    /// assert!(!stock.is_empty()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn contains<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<bool> {
        let key = key.borrow();
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, found, .. }) = live.parts();
            Ok(self.tree.contains(txn, key, found)?)
        })
    }

    /// Returns whether there is no row. Locks as [`first`](Self::first) does.
    ///
    /// # Errors
    /// Those of every method.
    pub fn is_empty(&self) -> Result<bool> {
        let first = Scan::new(self.tx, &self.tree, |_| Span::all()).next_key_with(End::Front, |_| Ok(()))?;
        Ok(first.is_none())
    }

    /// Scans the table and returns the exact number of rows. Locks as [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of every method.
    pub fn len(&self) -> Result<u64> {
        self.count(..)
    }

    /// Counts the rows with keys in `range`, exactly, by a scan. Locks as [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (1..=5).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let reader = db.read();
    /// let stock = reader.open(STOCK)?;
    /// assert_eq!((stock.count(2..=3)?, stock.count(4..)?, stock.len()?), (2, 2, 5));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn count<'k>(&self, range: impl KeyRange<'k, K>) -> Result<u64> {
        Scan::new(self.tx, &self.tree, |memory| Span::within::<K>(memory, &range)).count()
    }

    /// Iterates over the keys in `range`, in order, from either end or both. Locks as [`range`](Self::range) does.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const USERS: TableDef<&str, &str> = TableDef::new("users");
    /// db.run(|tx| {
    ///     let users = tx.open(USERS)?;
    ///     users.put("ada", "Ada Lovelace")?;
    ///     users.put("alan", "Alan Turing")
    /// })?;
    /// let reader = db.read();
    /// let names = reader.open(USERS)?.keys(..).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(names, ["ada", "alan"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn keys<'k>(&self, range: impl KeyRange<'k, K>) -> Keys<'tx, K> {
        Keys {
            table: self.tree.table(),
            scan: Scan::new(self.tx, &self.tree, |memory| Span::within::<K>(memory, &range)),
            key: Vec::new(),
            types: PhantomData,
        }
    }

    /// Iterates over the rows with keys that begin with `prefix`: a string, a byte string, or the first parts of a
    /// tuple. Locks as [`range`](Self::range) does.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const ORDERS: TableDef<(u64, u32), &str> = TableDef::new("orders by customer");
    /// const PATHS: TableDef<&str, u64> = TableDef::new("paths");
    /// db.run(|tx| {
    ///     let orders = tx.open(ORDERS)?;
    ///     orders.put((7, 1), "ink")?;
    ///     orders.put((7, 2), "paper")?;
    ///     orders.put((8, 1), "pens")?;
    ///     assert_eq!(orders.prefix((7,)).count(), 2);
    ///     let paths = tx.open(PATHS)?;
    ///     paths.put("/etc/fstab", 80)?;
    ///     paths.put("/usr/bin", 4096)?;
    ///     assert_eq!(paths.prefix("/etc/").count(), 1);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prefix<'k>(&self, prefix: impl KeyPrefix<'k, K>) -> Range<'tx, K, V> {
        let span = |[mut lower, upper]: Memory| {
            prefix.encode(&mut lower);
            Span::prefix(lower, upper)
        };
        Range::by(self.tx, &self.tree, span, None)
    }
}

/// Iterator over keys of a table, from either end or both. It ends after an error.
#[must_use = "iterators read nothing unless they are advanced"]
pub struct Keys<'tx, K> {
    table: TableId,
    scan: Scan<'tx>,
    /// The encoded key of [`next_encoded_with`](Self::next_encoded_with).
    key: Vec<u8>,
    types: PhantomData<fn() -> K>,
}

impl<K: Key> Keys<'_, K> {
    /// Takes the next key and returns what `read` makes of its bytes, without an owned key. Returns `None` at the end.
    ///
    /// # Errors
    /// Those of the iteration. The iteration ends after an error.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const USERS: TableDef<&str, &str> = TableDef::new("users");
    /// db.run(|tx| tx.open(USERS)?.put("ada", "Ada Lovelace"))?;
    /// let reader = db.read();
    /// let mut keys = reader.open(USERS)?.keys(..);
    /// assert_eq!(keys.next_encoded_with(|key| key == b"ada")?, Some(true));
    /// assert_eq!(keys.next_encoded_with(|_| ())?, None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn next_encoded_with<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let Self { scan, key, .. } = self;
        let found = scan.next_key_with(End::Front, |bytes| {
            key.clear();
            key.extend_from_slice(bytes);
            Ok(())
        })?;
        // Nothing is borrowed while the caller's closure runs, so that it may use the transaction.
        Ok(found.map(|()| read(key)))
    }

    fn step(&mut self, end: End) -> Option<Result<K::Owned>> {
        let table = self.table;
        let key = self.scan.next_key_with(end, |key| K::decode_key(key).ok_or_else(|| undecodable(table, key, "key")));
        key.transpose()
    }
}

impl<K: Key> Iterator for Keys<'_, K> {
    type Item = Result<K::Owned>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl<K: Key> DoubleEndedIterator for Keys<'_, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl<K: Key> FusedIterator for Keys<'_, K> {}

impl<K> fmt::Debug for Keys<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("table", &self.table).finish_non_exhaustive()
    }
}
