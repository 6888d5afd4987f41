//! Taking rows from the ends of a table.
//!
//! A row that was taken stays in its leaf as a ghost until its transaction has ended. A transaction that takes many
//! rows would pass all these ghosts each time. So it notes the last key that it took from each end, and searches
//! between them.
//!
//! No row outside of these keys is missed:
//!
//! - *Serializable.* The transaction's interval locks keep others from inserting there.
//! - *Snapshot.* A row that another transaction inserts there is not in the snapshot.
//! - *Read committed.* Others may insert there, so no key is noted, and a pop passes all leaves that earlier pops have
//!   emptied. Only in the outermost leaf it begins where the last pop ended, if the leaf is unchanged since.
//!
//! A pop inserts nothing, so it leaves the key of the other end. Any other write of the transaction, to whichever
//! table, clears both keys, since it may have inserted there. So does a pop from another table.
//!
//! Most rows are removed in one step ([`Tree::pop_at_once`](foreshore_btree::Tree::pop_at_once)). A scan with locks
//! removes the others, such as rows of tables with indexes and rows that need a wait.

use super::Table;
use super::codec::undecodable;
use super::kept::{Write, Writer};
use super::scan::{End, Span};
use crate::Result;
use crate::live::Scratch;
use foreshore_base::key::{Key, Value};
use foreshore_lock::RowLock;
use std::ops::Bound;

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
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
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
            let (txn, Scratch { key, found, popped, indexes, dropped, inserted, .. }) = live.parts();
            let (bounds, last) = (popped.left(txn, table), popped.at(end == End::Front));
            let mut writer = Writer { engine, txn, indexes, dropped, inserted };
            let (mut row, mut at) = (None, None);
            self.remove_plain(&mut writer, |txn| {
                let decode = |key: &[u8], value: &[u8]| {
                    row = K::decode_key(key).zip(V::decode(value));
                    row.is_some()
                };
                at = self.tree.pop_at_once(txn, bounds.clone(), end.into(), last, (key, found), decode)?;
                Ok(at.is_some())
            })?;
            if at.is_none() {
                row = self.pop_by_scan(&mut writer, bounds, end, (key, found))?;
            }
            if row.is_some() {
                popped.note(writer.txn, table, end == End::Front, (key, at));
            }
            Ok(row)
        })
    }

    /// Locks the row at one end of the bounds, and removes it. Its key is copied to the first buffer.
    fn pop_by_scan(
        &self,
        writer: &mut Writer<'_>,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        end: End,
        (key, found): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        let mut cursor = Span { lower, upper }.cursor(&self.tree, writer.txn, Some(RowLock::update()))?;
        let Some((row_key, row_value)) = end.step(&mut cursor, writer.txn)? else { return Ok(None) };
        let owned = K::decode_key(row_key).ok_or_else(|| undecodable(self.tree.table(), row_key, "key"))?;
        let value = self.value(row_key, row_value)?;
        key.clear();
        key.extend_from_slice(row_key);
        let is_removed = self.store(writer, Write::remove(key), found)?;
        assert!(is_removed, "a row that was locked is there");
        Ok(Some((owned, value)))
    }
}
