//! Loads of many rows with ascending keys.
//!
//! Rows are taken from the iterator in batches, with nothing borrowed, so that it may use the transaction. A batch is
//! then packed into leaves ([`foreshore_btree::Loader`]). The entries of a row in the indexes of the table are inserted
//! once the row is in the table.
//!
//! A load that is refused is rolled back to where it began. A panic of the iterator leaves a part, so the transaction
//! can only be rolled back then.

use super::Table;
use super::codec::undecodable;
use super::kept::Writer;
use super::store::insert_entry;
use crate::index_def::Entries;
use crate::live::Scratch;
use crate::transaction::keeps_transaction;
use crate::{Error, Result, Transaction};
use foreshore_base::key::{Key, Value};
use foreshore_btree::Loader;
use foreshore_txn::Savepoint;
use std::borrow::Borrow;
use std::collections::VecDeque;

/// Limits of a batch: its rows, and its encoded bytes without the last row.
const MOST: usize = 512;
const MOST_BYTES: usize = 64 << 10;

/// The least part of a page that a load fills.
const LEAST_FILL: u8 = 10;

/// How [`Table::load_with`] loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    fill_percent: u8,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { fill_percent: 100 }
    }
}

impl LoadOptions {
    /// Returns the options of [`Table::load`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how much of each page is filled, in percent: 10 to 100, and 100 unless set. The free space is for later
    /// inserts between the loaded rows, and for values that grow. A full page is split by the first of these.
    #[must_use]
    pub const fn fill_percent(self, percent: u8) -> Self {
        Self { fill_percent: percent }
    }

    fn check(self) -> Result<u8> {
        match self.fill_percent {
            percent @ LEAST_FILL..=100 => Ok(percent),
            percent => Err(Error::InvalidOption {
                name: "fill_percent",
                value: percent.to_string(),
                expected: format!("{LEAST_FILL} to 100"),
            }),
        }
    }
}

/// Encoded rows.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    /// Where the key and the value of each row end.
    ends: Vec<(usize, usize)>,
}

impl Rows {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a row, and returns true.
    fn push<K: Key, V: Value>(&mut self, key: &K::Ref<'_>, value: &V::Ref<'_>) -> bool {
        K::encode_key(key, &mut self.bytes);
        let end = self.bytes.len();
        V::encode(value, &mut self.bytes);
        self.ends.push((end, self.bytes.len()));
        true
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= MOST || self.bytes.len() >= MOST_BYTES
    }

    /// Returns the rows, each with its key and its value.
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&(_, end)| end));
        starts.zip(&self.ends).map(|(start, &(key, value))| (&self.bytes[start..key], &self.bytes[key..value]))
    }
}

/// A row that is taken and perhaps not in the table yet, with its entries in each index.
struct Pending {
    key: Vec<u8>,
    entries: Vec<Entries>,
}

/// A load that has not ended. A panic of the iterator leaves a part of it, which must not commit.
struct Part<'t> {
    tx: &'t Transaction,
    is_over: bool,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.tx.if_live(|live| live.txn.set_partial(true));
        }
    }
}

/// A running load.
struct Loading<'t> {
    loader: Loader<'t>,
    /// A savepoint after the last batch. It becomes invalid if the iterator rolls back loaded rows.
    mark: Option<Savepoint>,
    /// Rows whose index entries are still to be inserted. Empty if the table has no index.
    pending: VecDeque<Pending>,
    /// The number of rows whose index entries are inserted.
    indexed: u64,
}

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Inserts many rows with ascending keys at the end of the table, and returns how many. The first key must be above
    /// all keys of the table. That is much faster than single inserts: rows are packed into full pages, which are
    /// logged whole.
    ///
    /// The table is locked exclusively until the transaction ends. Readers by a snapshot continue, and do not see the
    /// rows before the commit. `rows` may use the transaction, which sees the loaded rows page by page.
    ///
    /// All rows are loaded or none. A transaction may load several times, and a savepoint before a load undoes it.
    /// Until the transaction ends, a load needs about 100 bytes of memory for each page of 8 KiB. Each index entry
    /// needs as much memory as any other write. None of it moves to the spill file while the load runs.
    ///
    /// The commit of a transaction that has loaded rows waits until it is durable, even if it is pipelined or relaxed.
    ///
    /// # Errors
    /// - `LoadOrder` for the first key that is not above those before it, and above all of the table. Nothing is
    ///   loaded, and the transaction continues.
    /// - `Conflict` if the snapshot of the transaction does not see the last row of the table.
    /// - `NoSavepoint` if `rows` has rolled back rows that were loaded already. The transaction ends if that went back
    ///   to before the load.
    /// - `KeyExists` if `rows` has inserted a row of the table that lies between those to load.
    /// - Those of every method, `KeyTooLarge` and `ValueTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const WORDS: TableDef<&str, u64> = TableDef::new("words");
    /// db.run(|tx| {
    ///     let words = tx.open(WORDS)?;
    ///     assert_eq!(words.load([("ant", 3), ("bee", 1), ("cat", 2)])?, 3);
    ///     let refused = words.load([("dog", 5), ("cow", 4)]);
    ///     assert!(matches!(refused, Err(Error::LoadOrder { row: 1, .. })));
    ///     assert_eq!(words.load([("dog", 5)])?, 1);
    ///     assert_eq!(words.len()?, 4);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn load<'k, 'v, Q: Borrow<K::Ref<'k>>, W: Borrow<V::Ref<'v>>>(
        &self,
        rows: impl IntoIterator<Item = (Q, W)>,
    ) -> Result<u64> {
        self.load_with(LoadOptions::new(), rows)
    }

    /// Inserts many rows as [`load`](Self::load) does, by other options.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and `InvalidOption`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, LoadOptions, TableDef};
    /// # let db = Db::in_memory()?;
    /// const SQUARES: TableDef<u64, u64> = TableDef::new("squares");
    /// let loaded = db.run(|tx| {
    ///     // A fifth of each page stays free for later rows.
    ///     tx.open(SQUARES)?.load_with(LoadOptions::new().fill_percent(80), (0..1000).map(|n| (n, n * n)))
    /// })?;
    /// assert_eq!(loaded, 1000);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn load_with<'k, 'v, Q: Borrow<K::Ref<'k>>, W: Borrow<V::Ref<'v>>>(
        &self,
        options: LoadOptions,
        rows: impl IntoIterator<Item = (Q, W)>,
    ) -> Result<u64> {
        let mut rows = rows.into_iter();
        self.load_by(options, |batch| {
            let row = rows.next();
            row.is_some_and(|(key, value)| batch.push::<K, V>(key.borrow(), value.borrow()))
        })
    }

    /// Inserts many rows as [`load_with`](Self::load_with) does, of an iterator that returns owned keys and values, as
    /// [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of [`load_with`](Self::load_with).
    ///
    /// ```
    /// # use foreshore::{Db, Error, LoadOptions, TableDef};
    /// # let db = Db::in_memory()?;
    /// const NAMES: TableDef<u64, &str> = TableDef::new("names");
    /// let names = (0..100).map(|n| (n, format!("name {n}")));
    /// assert_eq!(db.run(|tx| tx.open(NAMES)?.load_owned(LoadOptions::new(), names.clone()))?, 100);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn load_owned(
        &self,
        options: LoadOptions,
        rows: impl IntoIterator<Item = (K::Owned, V::Owned)>,
    ) -> Result<u64> {
        let mut rows = rows.into_iter();
        self.load_by(options, |batch| {
            let row = rows.next();
            row.is_some_and(|(key, value)| batch.push::<K, V>(&K::to_ref(&key), &V::to_ref(&value)))
        })
    }

    /// Loads the rows that `next` adds, one by each call, until it returns false.
    fn load_by(&self, options: LoadOptions, next: impl FnMut(&mut Rows) -> bool) -> Result<u64> {
        let percent = options.check()?;
        let savepoint = self.tx.savepoint()?;
        let mut part = Part { tx: self.tx, is_over: false };
        let loaded = self.load_rows(percent, next);
        part.is_over = true;
        if loaded.as_ref().is_err_and(keeps_transaction) {
            self.tx.rollback_to(&savepoint).map_err(|error| match error {
                // The iterator has gone back to before the load, which went on.
                error @ Error::NoSavepoint => self.tx.end_by(error),
                error => error,
            })?;
        }
        loaded
    }

    fn load_rows(&self, percent: u8, mut next: impl FnMut(&mut Rows) -> bool) -> Result<u64> {
        let loader = self.tx.with(|_, live| Ok(self.tree.begin_load(&mut live.txn, percent)?))?;
        let mut loading = Loading { loader, mark: None, pending: VecDeque::new(), indexed: 0 };
        let mut batch = Rows::default();
        loop {
            batch.clear();
            let goes_on = loop {
                if batch.is_full() {
                    break true;
                }
                if !next(&mut batch) {
                    break false;
                }
            };
            self.load_batch(&mut loading, &batch)?;
            if !goes_on {
                break;
            }
        }
        let Loading { loader, mark, pending, .. } = loading;
        self.tx.with(|_, live| {
            mark.map_or(Ok(()), |mark| live.txn.check_savepoint(&mark))?;
            let count = loader.finish(&mut live.txn)?;
            pending.iter().try_for_each(|row| self.insert_entries(&mut live.txn, row))?;
            Ok(count)
        })
    }

    fn load_batch(&self, loading: &mut Loading<'_>, batch: &Rows) -> Result<()> {
        self.tx.with(|engine, live| {
            let (txn, Scratch { indexes, dropped, inserted, .. }) = live.parts();
            loading.mark.as_ref().map_or(Ok(()), |mark| txn.check_savepoint(mark))?;
            let mut writer = Writer { engine, txn, indexes, dropped, inserted };
            // The table is locked, so its indexes change only if the iterator changes them.
            let has_indexes = self.has_indexes(&mut writer)?;
            for (key, value) in batch.iter() {
                loading.loader.add(writer.txn, key, value)?;
                if has_indexes {
                    loading.pending.push_back(self.pending(key, value)?);
                }
                while loading.indexed < loading.loader.entered()
                    && let Some(row) = loading.pending.pop_front()
                {
                    self.insert_entries(writer.txn, &row)?;
                    loading.indexed += 1;
                }
            }
            if !batch.ends.is_empty() {
                self.note_put(false, writer.inserted);
            }
            loading.mark = Some(writer.txn.savepoint());
            Ok(())
        })
    }

    /// Returns the entries of a row in the indexes.
    fn pending(&self, key: &[u8], value: &[u8]) -> Result<Pending> {
        let mut entries = Vec::with_capacity(self.kept.declared().len());
        for index in self.kept.declared() {
            let mut of_index = Entries::default();
            let flaw = index.def.entries(key, value, &mut of_index);
            flaw.map_err(|part| undecodable(self.tree.table(), key, part))?;
            entries.push(of_index);
        }
        Ok(Pending { key: key.to_vec(), entries })
    }

    fn insert_entries(&self, txn: &mut foreshore_txn::Txn, row: &Pending) -> Result<()> {
        for (index, entries) in self.kept.declared().iter().zip(&row.entries) {
            entries.iter().try_for_each(|entry| insert_entry(txn, index, entry, &row.key))?;
        }
        Ok(())
    }
}
