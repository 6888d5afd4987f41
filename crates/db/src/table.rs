//! Tables of a transaction.

mod many;

use crate::catalogue::TreeRef;
use crate::transaction::{Live, Scratch};
use crate::{Error, Result, Transaction};
use foreshore_base::TableId;
use foreshore_base::key::{Key, Value};
use foreshore_btree::{Cursor, Tree};
use foreshore_lock::{Locked, RowLock};
use foreshore_txn::Txn;
use std::{
    borrow::Borrow,
    fmt,
    iter::FusedIterator,
    marker::PhantomData,
    mem,
    ops::{Bound, RangeBounds},
};

/// A table open in a transaction.
///
/// Keys and values are passed by value or by reference, and returned owned: `insert(&7, &100)`, `get("name")`.
///
/// Every method may return these errors:
///
/// - `RolledBack` once an error has ended the transaction
/// - `Deadlock` or `LockTimeout`, because of other transactions
/// - `Undecodable` if a row does not decode to the types of the table
/// - `Poisoned`, `Closed`, `DiskFull`, `Io` or `Corrupted`, of the engine.
pub struct Table<'tx, K, V> {
    tx: &'tx Transaction,
    tree: TreeRef<'tx>,
    types: PhantomData<fn(K) -> V>,
}

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    pub(crate) fn new(tx: &'tx Transaction, tree: TreeRef<'tx>) -> Self {
        Self { tx, tree, types: PhantomData }
    }

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

    /// Calls `read` with the encoded value of `key`, without an owned copy. For `&[u8]` and `&str` these are its bytes.
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
        self.tx.give_back(|live| live.scratch.found = bytes);
        Ok(Some(value))
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

    /// Returns the newest value of `key`, which no other transaction changes until this one ends. If there is no row,
    /// no other transaction inserts one. At serializable every read does that.
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
    /// # use foreshore::{Db, Device, Error, Locked, Options, RowLock, TableDef};
    /// # let db = Options::new().device(Device::Null).open("/db")?;
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
    /// Call this before any other lock is taken: a transaction that waits for the table while others wait for its locks
    /// is in a deadlock.
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
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            encode_value::<V>(value, &mut live.scratch.value);
            let (txn, Scratch { key, value, found, .. }) = live.parts();
            let is_old = self.tree.put_over(txn, key, value, found)?;
            is_old.then(|| self.value(key, found)).transpose()
        })
    }

    /// Inserts a row with a new key.
    ///
    /// # Errors
    /// `KeyExists` if the key exists; the row is then locked until the transaction ends, so that the answer stays true.
    /// Those of every method, `KeyTooLarge` and `ValueTooLarge`.
    pub fn insert_new<'k, 'v>(&self, key: impl Borrow<K::Ref<'k>>, value: impl Borrow<V::Ref<'v>>) -> Result<()> {
        let (key, value) = (key.borrow(), value.borrow());
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            encode_value::<V>(value, &mut live.scratch.value);
            Ok(self.tree.insert_new(&mut live.txn, &live.scratch.key, &live.scratch.value)?)
        })
    }

    /// Removes the row of `key` and returns its value.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    pub fn remove<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        let key = key.borrow();
        self.tx.with(|_, live| {
            encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, found, .. }) = live.parts();
            let is_old = self.tree.remove_into(txn, key, found)?;
            is_old.then(|| self.value(key, found)).transpose()
        })
    }

    /// Iterates over the rows with keys in `range`, by key, from either end or both.
    ///
    /// The interval of keys that was iterated over is locked against writes of other transactions until this one ends.
    /// Rows that this transaction writes meanwhile are seen if they lie ahead.
    pub fn range<'k, Q: Borrow<K::Ref<'k>>>(&self, range: impl RangeBounds<Q>) -> Range<'tx, K, V> {
        self.range_by(range, None)
    }

    /// Iterates over the newest rows with keys in `range`, by key, and locks each as `lock` says when the iterator
    /// reaches it.
    ///
    /// A serializable transaction locks the keys between the rows too, so that none is inserted. With
    /// [`RowLock::skip_locked`] it does not, because such a scan may miss rows anyway.
    ///
    /// At [`Isolation::Snapshot`](crate::Isolation::Snapshot) a row that was changed or removed since the snapshot is
    /// a `Conflict`. With both [`RowLock::update`] and [`RowLock::skip_locked`] the scan skips removed rows, and rows
    /// that another transaction is removing.
    ///
    /// Workers that share a queue take the first row that no other worker has:
    ///
    /// ```
    /// # use foreshore::{Db, Device, Error, Options, RowLock, TableDef};
    /// # let db = Options::new().device(Device::Null).open("/db")?;
    /// const JOBS: TableDef<u64, &str> = TableDef::new("jobs");
    /// db.run(|tx| tx.open(JOBS)?.insert(1, "sweep"))?;
    /// db.run(|tx| {
    ///     let jobs = tx.open(JOBS)?;
    ///     let mut free = jobs.range_locked::<u64>(.., RowLock::update().skip_locked());
    ///     if let Some((number, _job)) = free.next().transpose()? {
    ///         // Done in this transaction: if it fails, another worker finds the job.
    ///         jobs.remove(number)?;
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range_locked<'k, Q: Borrow<K::Ref<'k>>>(
        &self,
        range: impl RangeBounds<Q>,
        lock: RowLock,
    ) -> Range<'tx, K, V> {
        self.range_by(range, Some(lock))
    }

    fn range_by<'k, Q: Borrow<K::Ref<'k>>>(
        &self,
        range: impl RangeBounds<Q>,
        lock: Option<RowLock>,
    ) -> Range<'tx, K, V> {
        let encode = |bound: Bound<&Q>| {
            bound.map(|key| {
                let mut bytes = Vec::new();
                K::encode_key(key.borrow(), &mut bytes);
                bytes
            })
        };
        Range::new(self, encode(range.start_bound()), encode(range.end_bound()), lock)
    }

    /// Returns the row with the smallest key. Locks it and the keys before it, as [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of every method.
    pub fn first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next().transpose()
    }

    /// Returns the row with the largest key. Locks it and the keys behind it, as [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Device, Error, Options, TableDef};
    /// # let db = Options::new().device(Device::Null).open("/db")?;
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

    /// Iterates over all rows, by key. Locks as [`range`](Self::range) does.
    pub fn iter(&self) -> Range<'tx, K, V> {
        Range::new(self, Bound::Unbounded, Bound::Unbounded, None)
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

fn undecodable(table: TableId, key: &[u8], part: &'static str) -> Error {
    Error::Undecodable { table: table.into(), key: key.into(), part }
}

/// Encodes a key. The tree checks its length.
fn encode_key<K: Key>(key: &K::Ref<'_>, out: &mut Vec<u8>) {
    out.clear();
    K::encode_key(key, out);
}

/// Encodes a value. The tree checks its length.
fn encode_value<V: Value>(value: &V::Ref<'_>, out: &mut Vec<u8>) {
    out.clear();
    V::encode(value, out);
}

impl<K, V> fmt::Debug for Table<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("table", &self.tree.table()).finish_non_exhaustive()
    }
}

/// Iterator over rows of a table, from either end or both. It ends after an error.
pub struct Range<'tx, K, V> {
    tx: &'tx Transaction,
    scan: Scan,
    types: PhantomData<fn(K) -> V>,
}

/// A step of a cursor from one of its ends.
type Step = for<'c> fn(&'c mut Cursor, &mut Txn) -> foreshore_base::Result<Option<(&'c [u8], &'c [u8])>>;

/// State of an iteration.
enum Scan {
    /// Before the first step; nothing is locked.
    Ahead { tree: Tree, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>, lock: Option<RowLock> },
    /// Between two steps.
    Running(Box<Cursor>),
    /// After the last row.
    Over,
}

impl<'tx, K: Key, V: Value> Range<'tx, K, V> {
    fn new(table: &Table<'tx, K, V>, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>, lock: Option<RowLock>) -> Self {
        let scan = Scan::Ahead { tree: (*table.tree).clone(), lower, upper, lock };
        Self { tx: table.tx, scan, types: PhantomData }
    }

    /// Returns the next row from one of the ends; `Ok(None)` if none is left.
    fn row(scan: &mut Scan, live: &mut Live, step: Step) -> Result<Option<(K::Owned, V::Owned)>> {
        if let Scan::Ahead { tree, lower, upper, lock } = scan {
            let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            *scan = Scan::Running(Box::new(match *lock {
                None => tree.range(&mut live.txn, lower, upper)?,
                Some(lock) => tree.range_locked(&mut live.txn, lower, upper, lock)?,
            }));
        }
        let Scan::Running(cursor) = scan else { return Ok(None) };
        let table = cursor.table();
        let Some((key, value)) = step(cursor, &mut live.txn)? else { return Ok(None) };
        let refused = |part| undecodable(table, key, part);
        let owned = K::decode_key(key).ok_or_else(|| refused("key"))?;
        let value = V::decode(value).ok_or_else(|| refused("value"))?;
        Ok(Some((owned, value)))
    }

    fn step(&mut self, step: Step) -> Option<Result<(K::Owned, V::Owned)>> {
        if matches!(self.scan, Scan::Over) {
            return None;
        }
        let scan = &mut self.scan;
        let row = self.tx.with(|_, live| Self::row(scan, live, step));
        if !matches!(row, Ok(Some(_))) {
            self.scan = Scan::Over;
        }
        row.transpose()
    }
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Cursor::next)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Cursor::next_back)
    }
}

impl<K: Key, V: Value> FusedIterator for Range<'_, K, V> {}

impl<K, V> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("is_over", &matches!(self.scan, Scan::Over)).finish_non_exhaustive()
    }
}
