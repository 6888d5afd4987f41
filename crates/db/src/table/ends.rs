//! Taking rows from the ends of a table.
//!
//! A row that was taken stays in its leaf, as a deleted one, until its transaction has ended. So a transaction that
//! takes many passes all of them each time. One case is spared that: a serializable transaction that takes one row
//! after the other from the ends of a table. It notes the last one that it took from each end, and looks between these.
//!
//! - At the other levels other transactions may insert there. A serializable one keeps them out by its intervals.
//! - A pop inserts nothing, so it keeps the note of the other end.
//! - Any other write of the transaction, to whichever table, loses both notes, since it may have inserted there itself.
//!   So does a pop from another table.

use super::Table;
use super::codec::undecodable;
use super::kept::{Write, Writer};
use super::scan::{End, Span};
use crate::Result;
use crate::live::Scratch;
use foreshore_base::key::{Key, Value};
use foreshore_lock::RowLock;
use foreshore_txn::Isolation;

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Removes the row with the smallest key and returns it.
    ///
    /// The row is locked when it is met, so two transactions that take a row each get different ones: the second waits
    /// for the end of the first. To skip rows that are locked, use [`range_locked`](Self::range_locked) with
    /// [`RowLock::skip_locked`]. A serializable transaction also locks the keys before the row.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Device, Error, Options, TableDef};
    /// # let db = Options::new().device(Device::Null).open("/db")?;
    /// const QUEUE: TableDef<u64, &str> = TableDef::new("queue");
    /// db.run(|tx| {
    ///     let queue = tx.open(QUEUE)?;
    ///     queue.put(1, "first")?;
    ///     queue.put(2, "second")
    /// })?;
    /// assert_eq!(db.run(|tx| tx.open(QUEUE)?.pop_first())?, Some((1, "first".to_owned())));
    /// assert_eq!(db.run(|tx| tx.open(QUEUE)?.pop_last())?, Some((2, "second".to_owned())));
    /// assert_eq!(db.run(|tx| tx.open(QUEUE)?.pop_first())?, None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn pop_first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.pop(End::Front)
    }

    /// Removes the row with the largest key and returns it. Locks as [`pop_first`](Self::pop_first) does, from the
    /// other end.
    ///
    /// # Errors
    /// Those of every method.
    pub fn pop_last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.pop(End::Back)
    }

    fn pop(&self, end: End) -> Result<Option<(K::Owned, V::Owned)>> {
        self.tx.with(|engine, live| {
            let table = self.tree.table();
            let (txn, Scratch { key, found, popped, reindexed, dropped, inserted, .. }) = live.parts();
            let (lower, upper) = popped.left(txn, table);
            let mut cursor = Span { lower, upper }.cursor(&self.tree, txn, Some(RowLock::update()))?;
            let Some((row_key, row_value)) = end.step(&mut cursor, txn)? else { return Ok(None) };
            let owned = K::decode_key(row_key).ok_or_else(|| undecodable(table, row_key, "key"))?;
            let value = self.value(row_key, row_value)?;
            key.clear();
            key.extend_from_slice(row_key);
            let is_removed =
                self.store(Writer { engine, txn, reindexed, dropped, inserted }, Write::remove(key), found)?;
            assert!(is_removed, "a row that was locked is there");
            if txn.isolation() == Isolation::Serializable {
                popped.note(txn, table, end == End::Front, key);
            }
            Ok(Some((owned, value)))
        })
    }
}
