//! Reads of a table by one of its indexes.

use super::codec::encode_key;
use super::index::Index;
use super::index_range::{IndexEntries, IndexRange};
use super::scan::{End, Memory, Scan, Span};
use super::{KeyPrefix, KeyRange, Table};
use crate::index_def::Entries;
use crate::{IndexDef, Result, Transaction};
use foreshore_base::key::{Key, Value};
use std::{borrow::Borrow, fmt, ops::Bound};

/// An index of a table that is open in a transaction. [`Table::by_index`] returns it.
///
/// Index keys are passed by value or by reference, as the keys of a table. Reads see the same rows as reads of the
/// table do, and lock what they return in the same way. A serializable transaction also locks the interval of index
/// keys that it has read, so no row gets a key in it.
///
/// At [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) an iterator reads the index and each row at
/// different times. It leaves out a row that no longer has the index key.
///
/// If the transaction changes the index key of a row during an iteration, the iteration may return the row again.
/// So collect the rows of [`range`](Self::range), [`prefix`](Self::prefix) or [`keys`](Self::keys)
/// first, and then change them.
///
/// Every method may return the errors of [`Table`], and `IndexMismatch` if the index has an entry without a row.
pub struct ByIndex<'tx, K: Key, V: Value, I: Key> {
    tx: &'tx Transaction,
    index: Index<'tx, K, V, I>,
}

impl<'tx, K: Key + 'static, V: Value + 'static> Table<'tx, K, V> {
    /// Returns an index of the table, to find rows by their index keys. The definition of the table need not declare
    /// it.
    ///
    /// # Errors
    /// Those of every method. `NoIndex` if the table has no such index, and `IndexTypes` if it was built by another
    /// definition. `Conflict` if it was created since the snapshot of the transaction.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const BY_EMAIL: IndexDef<u64, &str, &str> =
    ///     IndexDef::unique("by email", |_, email: &String, keys| keys.add(email.as_str()));
    /// const USERS: TableDef<u64, &str> = TableDef::new("users").with_indexes(&[&BY_EMAIL]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| {
    ///     let users = tx.open(USERS)?;
    ///     users.put(7, "ada@example.org")?;
    ///     assert_eq!(users.by_index(BY_EMAIL)?.get("ada@example.org")?, Some((7, "ada@example.org".to_owned())));
    ///     users.put(7, "countess@example.org")?;
    ///     assert_eq!(users.by_index(BY_EMAIL)?.get("ada@example.org")?, None);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn by_index<I: Key + 'static>(&self, index: IndexDef<K, V, I>) -> Result<ByIndex<'tx, K, V, I>> {
        let tree = self.tx.with(|engine, live| engine.catalogue.index_to_read(live, &self.tree, &index))?;
        Ok(ByIndex { tx: self.tx, index: Index::new(self.tree.clone(), tree, index) })
    }
}

impl<'tx, K: Key + 'static, V: Value + 'static, I: Key + 'static> ByIndex<'tx, K, V, I> {
    /// Returns the row with the index key `key`. If several have it, returns the one with the smallest primary key.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get<'i>(&self, key: impl Borrow<I::Ref<'i>>) -> Result<Option<(K::Owned, V::Owned)>> {
        let key = key.borrow();
        if !self.index.is_unique() {
            return self.range((Bound::Included(key), Bound::Included(key))).next().transpose();
        }
        self.tx.with(|_, live| {
            encode_key::<I>(key, &mut live.scratch.key);
            self.index.row_of_unique(live)
        })
    }

    /// Returns whether a row has the index key `key`. Reads no row.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// # let db = Db::in_memory()?;
    /// const BY_LENGTH: IndexDef<u64, &str, u64> =
    ///     IndexDef::new("by length", |_, name: &String, keys| keys.add(name.len() as u64));
    /// const NAMES: TableDef<u64, &str> = TableDef::new("names").with_indexes(&[&BY_LENGTH]);
    /// db.run(|tx| tx.open(NAMES)?.put(1, "Ada"))?;
    /// let reader = db.read();
    /// let by_length = reader.open(NAMES)?.by_index(BY_LENGTH)?;
    /// assert!(by_length.contains(3)? && !by_length.contains(4)?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn contains<'i>(&self, key: impl Borrow<I::Ref<'i>>) -> Result<bool> {
        let key = key.borrow();
        Ok(self.keys((Bound::Included(key), Bound::Included(key))).next().transpose()?.is_some())
    }

    /// Iterates over the rows with index keys in `range`, from either end or both. The order is that of the index keys,
    /// and of the primary keys among rows with one index key. A row with several index keys in the range comes once
    /// for each.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const BY_SCORE: IndexDef<&str, u32, u32> = IndexDef::new("by score", |_, score, keys| keys.add(score));
    /// const PLAYERS: TableDef<&str, u32> = TableDef::new("players").with_indexes(&[&BY_SCORE]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| {
    ///     let players = tx.open(PLAYERS)?;
    ///     players.put("ada", 90)?;
    ///     players.put("alan", 70)?;
    ///     players.put("grace", 90)
    /// })?;
    /// let reader = db.read();
    /// let best = reader.open(PLAYERS)?.by_index(BY_SCORE)?.range(80..).rev().map(|row| row.map(|(name, _)| name));
    /// assert_eq!(best.collect::<Result<Vec<_>, _>>()?, ["grace", "ada"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<'i>(&self, range: impl KeyRange<'i, I>) -> IndexRange<'tx, K, V, I> {
        IndexRange::new(self.scan(|memory| self.index.span(memory, &range)))
    }

    /// Iterates over the rows with index keys that begin with `prefix`, as [`Table::prefix`] does for keys.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const BY_PLACE: IndexDef<u64, (&str, &str), (&str, &str)> = IndexDef::new("by place", |_, place, keys| {
    ///     let (country, city): &(String, String) = place;
    ///     keys.add((country.as_str(), city.as_str()));
    /// });
    /// const SHOPS: TableDef<u64, (&str, &str)> = TableDef::new("shops").with_indexes(&[&BY_PLACE]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| {
    ///     tx.open(SHOPS)?.put(1, ("it", "Roma"))?;
    ///     tx.open(SHOPS)?.put(2, ("it", "Bari"))
    /// })?;
    /// let reader = db.read();
    /// let italian = reader.open(SHOPS)?.by_index(BY_PLACE)?.prefix(("it",)).map(|row| row.map(|(number, _)| number));
    /// assert_eq!(italian.collect::<Result<Vec<_>, _>>()?, [2, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prefix<'i>(&self, prefix: impl KeyPrefix<'i, I>) -> IndexRange<'tx, K, V, I> {
        IndexRange::new(self.scan(|memory| self.index.prefix(memory, &prefix)))
    }

    /// Iterates over the index keys in `range` with the primary keys of their rows, in order, from either end or both.
    /// Reads no row.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const BY_SCORE: IndexDef<&str, u32, u32> = IndexDef::new("by score", |_, score, keys| keys.add(score));
    /// const PLAYERS: TableDef<&str, u32> = TableDef::new("players").with_indexes(&[&BY_SCORE]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| tx.open(PLAYERS)?.put("ada", 90))?;
    /// let scores = db.run(|tx| tx.open(PLAYERS)?.by_index(BY_SCORE)?.keys(..).collect::<Result<Vec<_>, Error>>())?;
    /// assert_eq!(scores, [(90, "ada".to_owned())]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn keys<'i>(&self, range: impl KeyRange<'i, I>) -> IndexEntries<'tx, K, V, I> {
        self.scan(|memory| self.index.span(memory, &range))
    }

    /// Compares the index with its table, and returns the number of entries. Each row has an entry for each key that
    /// the function adds for it, and there are no others. It scans both, and locks as such scans do. At
    /// [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) it may report a row that changes meanwhile, so
    /// check by another level or in a [`ReadTransaction`](crate::ReadTransaction).
    ///
    /// # Errors
    /// Those of every method. `IndexMismatch` for the first entry that is missing, is of another row, or is left over.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const LENGTHS: IndexDef<u64, &str, u64> =
    ///     IndexDef::new("lengths", |_, name: &String, keys| keys.add(name.len() as u64));
    /// const HALVED: IndexDef<u64, &str, u64> =
    ///     IndexDef::new("lengths", |_, name: &String, keys| keys.add(name.len() as u64 / 2));
    /// const NAMES: TableDef<u64, &str> = TableDef::new("names").with_indexes(&[&LENGTHS]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| tx.open(NAMES)?.put(1, "Ada"))?;
    /// let reader = db.read();
    /// let names = reader.open(NAMES)?;
    /// assert_eq!(names.by_index(LENGTHS)?.check()?, 1);
    /// // Another function under the same version.
    /// assert!(matches!(names.by_index(HALVED)?.check(), Err(Error::IndexMismatch { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn check(&self) -> Result<u64> {
        let (mut expected, mut found, mut count) = (Entries::default(), Vec::new(), 0);
        let mut rows = Scan::new(self.tx, self.index.table(), |_| Span::all());
        while let Some(primary) = rows.next_with(End::Front, |key, value| {
            self.index.expect(key, value, &mut expected)?;
            Ok(key.to_vec())
        })? {
            for entry in expected.iter() {
                self.tx.with(|_, live| self.index.find_entry(&mut live.txn, entry, &primary, &mut found))?;
            }
        }
        let mut entries = Scan::new(self.tx, self.index.tree(), |_| Span::all());
        while let Some((entry, primary)) = entries.next_with(End::Front, |entry, value| {
            let (_, primary) = self.index.split(entry, value)?;
            Ok((entry.to_vec(), primary.to_vec()))
        })? {
            count += 1;
            self.tx.with(|_, live| self.index.find_row(&mut live.txn, &entry, &primary, &mut found))?;
        }
        Ok(count)
    }

    fn scan(&self, span: impl FnOnce(Memory) -> Span) -> IndexEntries<'tx, K, V, I> {
        IndexEntries::new(self.index.clone(), Scan::new(self.tx, self.index.tree(), span))
    }
}

impl<K: Key, V: Value, I: Key> fmt::Debug for ByIndex<'_, K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByIndex").field("index", &self.index).finish_non_exhaustive()
    }
}
