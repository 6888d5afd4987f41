//! Tables of a transaction.

mod bounds;
mod by_index;
mod codec;
mod ends;
mod entry;
mod index;
mod index_range;
mod kept;
mod keys;
mod load;
mod many;
mod open;
mod parts;
mod range;
mod raw;
mod remove;
mod salvage;
mod scan;
mod sequence;
mod stats;
mod store;
mod stream;
mod update;
mod walk;

pub use bounds::{KeyPrefix, KeyRange};
pub use by_index::ByIndex;
pub use entry::Entry;
pub use index_range::{IndexEntries, IndexRange};
pub use keys::Keys;
pub use load::LoadOptions;
pub use range::Range;
pub use remove::ExtractIf;
pub use salvage::{Salvage, Salvaged};
pub use stats::TableStats;
pub use stream::{ByteValue, ValueReader};
pub use walk::Cursor;

use self::codec::{encode_key, encode_value, undecodable};
use self::kept::{Kept, Write, Writer};
use crate::catalogue::TreeRef;
use crate::live::Scratch;
use crate::{Error, Result, Transaction};
use foreshore_base::key::{Key, Value};
use foreshore_lock::{Locked, RowLock};
use std::{any::Any, borrow::Borrow, fmt, marker::PhantomData, mem};

/// A table open in a transaction.
///
/// Keys and values are passed by value or by reference, and returned owned: `insert(&7, &100)`, `get("name")`.
/// Text and bytes are passed as `&str` and `&[u8]`, also as parts of tuples: `put(7, (&*name, 3))`.
///
/// Every method may return these errors, among others:
///
/// - `RolledBack` once an error has ended the transaction
/// - `Deadlock` or `LockTimeout`, because of other transactions
/// - `Undecodable` if a row does not decode to the types of the table
/// - `Poisoned`, `Closed`, `DiskFull`, `Io` or `Corrupted`, of the engine.
///
/// **Indexes** that the [`TableDef`](crate::TableDef::with_indexes) declares are maintained by every method that
/// writes. If a method that removes several rows fails, the removals before the error stay. A method that writes may
/// also return these errors, which leave the row unchanged:
///
/// - `IndexKeyExists` if a unique index has the key for another row, which is then locked until the transaction ends
/// - `KeyTooLarge` for a key of an index
/// - `IndexUndeclared` if the table has an index that the definition does not declare
/// - `IndexMismatch` if an index was built by another key function.
///
/// ```
/// # use foreshore::{Db, Error, TableDef};
/// # let db = Db::in_memory()?;
/// const USERS: TableDef<u64, &str> = TableDef::new("users");
/// db.run(|tx| {
///     let users = tx.open(USERS)?;
///     // Taken before any other lock. Reads then need no row locks.
///     users.lock_against_writes()?;
///     assert_eq!(users.insert(7, "Ada")?, None);
///     users.insert_new(9, "Alan")?;
///     assert_eq!(users.get(7)?.as_deref(), Some("Ada"));
///     assert_eq!(users.get_with(7, |name| name.len())?, Some(3));
///     assert_eq!(users.get_for_share(9)?.as_deref(), Some("Alan"));
///     assert_eq!((users.range(8..).count(), users.iter().count()), (1, 2));
///     assert_eq!(users.first()?, Some((7, "Ada".to_owned())));
///     users.remove(7).map(drop)
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct Table<'tx, K, V> {
    tx: &'tx Transaction,
    tree: TreeRef<'tx>,
    /// The secondary indexes that writes maintain.
    kept: Kept<'tx>,
    /// The `MergeDef<V>` of its definition.
    merge: Option<&'static (dyn Any + Send + Sync)>,
    types: PhantomData<fn(K) -> V>,
}

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        match self.get_with(key, V::decode)? {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => self.tx.with(|_, live| Err(self.undecodable(&live.scratch.key, "value"))),
        }
    }

    /// Calls `read` with the encoded value of `key` and returns its result, or `None` if there is no row. No owned
    /// value is made. `&[u8]` and `&str` are encoded as their bytes.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_with<'k, T>(&self, key: impl Borrow<K::Ref<'k>>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let key = key.borrow();
        let mut found = None;
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, found: buffer, .. }) = live.parts();
            found = self.tree.get(txn, key, buffer)?.then(|| mem::take(buffer));
            Ok(())
        })?;
        // Nothing is borrowed while the caller's closure runs, so that it may use the transaction.
        let Some(bytes) = found else { return Ok(None) };
        let value = read(&bytes);
        self.tx.if_live(|live| live.scratch.found = bytes);
        Ok(Some(value))
    }

    /// Copies the encoded value of `key` to `value`, reusing its memory, and returns whether there is a row. If there
    /// is none, `value` is empty. `&[u8]` and `&str` are encoded as their bytes.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const PAGES: TableDef<&str, &[u8]> = TableDef::new("pages");
    /// db.run(|tx| tx.open(PAGES)?.put("/", &b"Welcome"[..]))?;
    /// let mut page = Vec::new();
    /// db.run(|tx| {
    ///     let pages = tx.open(PAGES)?;
    ///     assert!(pages.get_into("/", &mut page)?);
    ///     assert_eq!(page, b"Welcome");
    ///     assert!(!pages.get_into("/about", &mut page)?);
    ///     assert!(page.is_empty());
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_into<'k>(&self, key: impl Borrow<K::Ref<'k>>, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.borrow();
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, .. }) = live.parts();
            Ok(self.tree.get(txn, key, value)?)
        })
    }

    /// Returns the value of `key`, and locks the row for a write in this transaction. That avoids the deadlock of two
    /// transactions that both read a row and then both write it.
    ///
    /// At [`Isolation::Serializable`](crate::Isolation::Serializable) the absence of a row is locked too: other
    /// transactions may read that it is absent, but not insert it. At the other levels they may insert it.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_for_update<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        self.get_locked(key, RowLock::update()).map(existing)
    }

    /// Returns the newest value of `key`, and locks the key shared: until this transaction ends, no other one changes,
    /// removes or inserts the row. At serializable every read does the same.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn get_for_share<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        self.get_locked(key, RowLock::share()).map(existing)
    }

    /// Returns the newest value of `key`, and locks the row as `lock` says. `lock` also says what happens if another
    /// transaction has the row locked.
    ///
    /// # Errors
    /// `RowLocked` if `lock` does not wait and the row, or the table, is locked. Those of every method, and
    /// `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Locked, RowLock, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.insert(1, 10))?;
    /// let first = db.begin();
    /// assert_eq!(first.open(STOCK)?.get_for_update(1)?, Some(10));
    /// let second = db.begin();
    /// let stock = second.open(STOCK)?;
    /// assert!(matches!(stock.get_locked(1, RowLock::update().no_wait()), Err(Error::RowLocked { .. })));
    /// assert_eq!(stock.get_locked(1, RowLock::update().skip_locked())?, Locked::Skipped);
    /// assert_eq!(stock.get_locked(2, RowLock::update().skip_locked())?, Locked::Absent);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_locked<'k>(&self, key: impl Borrow<K::Ref<'k>>, lock: RowLock) -> Result<Locked<V::Owned>> {
        let key = key.borrow();
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, found, .. }) = live.parts();
            Ok(match self.tree.get_locked(txn, key, lock, found)? {
                Locked::Row(()) => Locked::Row(self.value(key, found)?),
                Locked::Absent => Locked::Absent,
                Locked::Skipped => Locked::Skipped,
            })
        })
    }

    /// Locks the whole table against writes of other transactions until this one ends. Its own reads then need no row
    /// locks.
    ///
    /// Call this before any other lock is taken. Otherwise other transactions may wait for those locks while this one
    /// waits for the table: a deadlock.
    ///
    /// # Errors
    /// Those of every method.
    pub fn lock_against_writes(&self) -> Result<()> {
        self.tx.with(|_, live| Ok(self.tree.lock_against_writes(&mut live.txn)?))
    }

    /// Sets the value of `key` and returns its previous value.
    ///
    /// # Errors
    /// Those of every method, `KeyTooLarge` and `ValueTooLarge`.
    pub fn insert<'k, 'v>(
        &self,
        key: impl Borrow<K::Ref<'k>>,
        value: impl Borrow<V::Ref<'v>>,
    ) -> Result<Option<V::Owned>> {
        let (key, value) = (key.borrow(), value.borrow());
        self.tx.with(|engine, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { key, value, found, indexes, dropped, inserted, .. }) = live.parts();
            let was_there = self.store(
                &mut Writer { engine, txn, indexes, dropped, inserted },
                Write::put(key, value).returning_old(),
                found,
            )?;
            was_there.then(|| self.value(key, found)).transpose()
        })
    }

    /// Inserts a row with a new key.
    ///
    /// # Errors
    /// `KeyExists` if the key exists; the row is then locked until the transaction ends, so that the answer stays true.
    /// Those of every method, `KeyTooLarge` and `ValueTooLarge`.
    pub fn insert_new<'k, 'v>(&self, key: impl Borrow<K::Ref<'k>>, value: impl Borrow<V::Ref<'v>>) -> Result<()> {
        let (key, value) = (key.borrow(), value.borrow());
        self.tx.with(|engine, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { key, value, found, indexes, dropped, inserted, .. }) = live.parts();
            self.store(&mut Writer { engine, txn, indexes, dropped, inserted }, Write::insert(key, value), found)
                .map(drop)
        })
    }

    /// Removes the row of `key` and returns its value.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn remove<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        let key = key.borrow();
        self.tx.with(|engine, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, found, indexes, dropped, inserted, .. }) = live.parts();
            let was_there = self.store(
                &mut Writer { engine, txn, indexes, dropped, inserted },
                Write::remove(key).returning_old(),
                found,
            )?;
            was_there.then(|| self.value(key, found)).transpose()
        })
    }

    /// Iterates over the rows with keys in `range`, in key order, from either end or both.
    ///
    /// At serializable, the interval of keys that was iterated over is locked against writes of other transactions
    /// until this one ends. At the other levels nothing is locked. Rows that this transaction writes meanwhile are seen
    /// if they lie ahead.
    pub fn range<'k>(&self, range: impl KeyRange<'k, K>) -> Range<'tx, K, V> {
        self.range_by(&range, None)
    }

    /// Iterates over the newest rows with keys in `range`, in key order, and locks each as `lock` says when the
    /// iterator reaches it.
    ///
    /// A serializable transaction locks the keys between the rows too, so that none is inserted. With
    /// [`RowLock::skip_locked`] it does not, because such a scan may miss rows anyway.
    ///
    /// At [`Isolation::Snapshot`](crate::Isolation::Snapshot) a row that was changed or removed since the snapshot ends
    /// the scan with `Conflict`. With both [`RowLock::update`] and [`RowLock::skip_locked`] a removed row is no
    /// conflict: the scan skips it, and also rows that another transaction is removing.
    ///
    /// Workers that share a queue take the first row that no other worker has:
    ///
    /// ```
    /// # use foreshore::{Db, Error, RowLock, TableDef};
    /// # let db = Db::in_memory()?;
    /// const JOBS: TableDef<u64, &str> = TableDef::new("jobs");
    /// db.run(|tx| tx.open(JOBS)?.insert(1, "sweep"))?;
    /// db.run(|tx| {
    ///     let jobs = tx.open(JOBS)?;
    ///     let mut free = jobs.range_locked(.., RowLock::update().skip_locked());
    ///     if let Some((number, _job)) = free.next().transpose()? {
    ///         // Done in this transaction: if it fails, another worker finds the job.
    ///         jobs.remove(number)?;
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range_locked<'k>(&self, range: impl KeyRange<'k, K>, lock: RowLock) -> Range<'tx, K, V> {
        self.range_by(&range, Some(lock))
    }

    fn range_by<'k>(&self, range: &impl KeyRange<'k, K>, lock: Option<RowLock>) -> Range<'tx, K, V> {
        Range::new(self.tx, &self.tree, range, lock)
    }

    /// Returns the row with the smallest key. At serializable, locks it and the keys before it, as
    /// [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of every method.
    pub fn first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next().transpose()
    }

    /// Returns the row with the largest key. At serializable, locks it and the keys after it, as [`range`](Self::range)
    /// does.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const LOG: TableDef<u64, &str> = TableDef::new("log");
    /// db.run(|tx| {
    ///     let log = tx.open(LOG)?;
    ///     let next = log.last()?.map_or(0, |(number, _)| number + 1);
    ///     log.insert_new(next, "entry")
    /// })?;
    /// assert_eq!(db.read().open(LOG)?.last()?, Some((0, "entry".to_owned())));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next_back().transpose()
    }

    /// Iterates over all rows, in key order. Locks as [`range`](Self::range) does.
    pub fn iter(&self) -> Range<'tx, K, V> {
        Range::all(self.tx, &self.tree)
    }

    fn value(&self, key: &[u8], bytes: &[u8]) -> Result<V::Owned> {
        V::decode(bytes).ok_or_else(|| self.undecodable(key, "value"))
    }

    fn undecodable(&self, key: &[u8], part: &'static str) -> Error {
        undecodable(self.tree.table(), key, part)
    }
}

/// Returns the value found by a request that skips no row.
fn existing<T>(found: Locked<T>) -> Option<T> {
    match found {
        Locked::Row(value) => Some(value),
        Locked::Absent | Locked::Skipped => None,
    }
}

impl<K, V> fmt::Debug for Table<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("table", &self.tree.table()).finish_non_exhaustive()
    }
}
