//! Removal of many rows by one call.
//!
//! Rows are read ahead, some at a time. An iterator then removes them one by one, and the other calls by one operation.
//! A serializable transaction has locked what it has read, and a snapshot transaction gets a conflict for a row that
//! has changed since. At read committed a row may change between the two, so it is locked and the predicate is called
//! again.
//!
//! A predicate may itself write. Then, at every level, the rows behind its row are read again. A row that it selects is
//! locked, and the predicate is called again.

use super::codec::undecodable;
use super::kept::{Write, Writer};
use super::scan::Span;
use super::{KeyRange, Table};
use crate::Result;
use crate::live::Scratch;
use foreshore_base::Lsn;
use foreshore_base::key::{Key, Value};
use foreshore_btree::{Cursor, RemovedFirst};
use foreshore_txn::{Isolation, Txn};
use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;

/// Rows in the first batch that is read ahead, and in the largest. The first is small, because a caller may want only
/// one row.
const FIRST: usize = 4;
const MOST: usize = 256;
/// Limit of the encoded bytes of a batch, without its last row.
const MOST_BYTES: usize = 64 << 10;

/// Rows that are removed one by one after a step for several was refused; twice as many after each further refusal.
const AFTER_REFUSAL: usize = 8;

/// A row that was read, with its encoded key.
struct Read<K: Key, V: Value> {
    encoded: Vec<u8>,
    key: K::Owned,
    value: V::Owned,
}

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Removes the rows with keys in `range` for which `removes` returns true, and returns each when the iterator
    /// reaches it. The rows that the iterator does not reach stay.
    ///
    /// Locks as [`range`](Self::range) does, somewhat ahead of what it returns. At
    /// [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) the rows are read in batches, each batch as of its
    /// own time. `removes` may be called twice for a row. A call that writes makes the iterator read again what lies
    /// ahead.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| {
    ///     let stock = tx.open(STOCK)?;
    ///     (1..=6).try_for_each(|number| stock.put(number, 10 * number as i64))?;
    ///     let even = stock.extract_if(..=4, |number, _| number % 2 == 0).collect::<Result<Vec<_>, _>>()?;
    ///     assert_eq!(even, [(2, 20), (4, 40)]);
    ///     assert_eq!(stock.keys(..).collect::<Result<Vec<_>, _>>()?, [1, 3, 5, 6]);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn extract_if<'t, 'k, F: FnMut(&K::Owned, &V::Owned) -> bool>(
        &'t self,
        range: impl KeyRange<'k, K>,
        removes: F,
    ) -> ExtractIf<'t, 'tx, K, V, F> {
        self.extract_span(Span::of::<K>(&range), removes)
    }

    fn extract_span<'t, F: FnMut(&K::Owned, &V::Owned) -> bool>(
        &'t self,
        span: Span,
        removes: F,
    ) -> ExtractIf<'t, 'tx, K, V, F> {
        let ahead = Ahead { rows: VecDeque::new(), is_last: false, at: None, most: FIRST, may_change: false };
        ExtractIf { table: self, removes, left: Some(span), ahead }
    }

    /// Removes the rows for which `is_kept` returns false, and returns how many. Reads and locks as
    /// [`extract_if`](Self::extract_if) does. `is_kept` may be called several times for a row.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const SESSIONS: TableDef<u64, u64> = TableDef::new("sessions by number, with their ends");
    /// db.run(|tx| {
    ///     let sessions = tx.open(SESSIONS)?;
    ///     (0..10).try_for_each(|number| sessions.put(number, 100 * number))?;
    ///     assert_eq!(sessions.retain(|_, &end| end > 450)?, 5);
    ///     sessions.len()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn retain(&self, mut is_kept: impl FnMut(&K::Owned, &V::Owned) -> bool) -> Result<u64> {
        let (mut left, mut count, mut rows) = (Span::all(), 0, Vec::new());
        while !self.may_change()? {
            let is_over = self.read_ahead(&left, MOST, |cursor, txn| {
                let row = self.read_row(cursor, txn)?;
                Ok(row.map(|(row, len)| (rows.push(row), len).1))
            })?;
            let at = self.last_change();
            let last = rows.last().map(|row: &Read<K, V>| row.encoded.clone());
            rows.retain(|row| !is_kept(&row.key, &row.value));
            if self.last_change() != at {
                break;
            }
            let keys: Vec<_> = rows.drain(..).map(|row| row.encoded).collect();
            count += self.remove_all(&keys)?;
            match last {
                Some(last) if !is_over => left.lower = Bound::Excluded(last),
                _ => return Ok(count),
            }
        }
        // The rows may be others than those that were read, or have other values: they are read again.
        self.extract_span(left, |key, value| !is_kept(key, value)).try_fold(count, |count, row| row.map(|_| count + 1))
    }

    /// Removes the rows with keys in `range` and returns how many. Values are decoded only if the table has
    /// indexes. Locks as [`range`](Self::range) does. At
    /// [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) the keys are read in batches, each batch as of its
    /// own time: rows that are inserted meanwhile may stay. Locks the table as every write does, even if it finds no
    /// row: it waits for an index build or a load of the table by others.
    ///
    /// # Errors
    /// Those of every method.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const LOG: TableDef<(u32, u64), &str> = TableDef::new("log by day");
    /// db.run(|tx| {
    ///     let log = tx.open(LOG)?;
    ///     (0..10).try_for_each(|day| log.put((day, 1), "entry"))?;
    ///     assert_eq!(log.remove_range(..(7, 0))?, 7);
    ///     log.clear()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn remove_range<'k>(&self, range: impl KeyRange<'k, K>) -> Result<u64> {
        let mut left = Span::of::<K>(&range);
        let mut count = 0;
        let mut keys = Vec::new();
        loop {
            if let Some((removed, rest)) = self.remove_first(&left)? {
                count += removed as u64;
                match rest {
                    Some(lower) => left.lower = lower,
                    None => return Ok(count),
                }
                continue;
            }
            let is_over = self.read_ahead(&left, MOST, |cursor, txn| {
                let Some(key) = cursor.next_key(txn)? else { return Ok(None) };
                keys.push(key.to_vec());
                Ok(Some(key.len()))
            })?;
            let last = keys.last().cloned();
            count += self.remove_all(&keys)?;
            keys.clear();
            match last {
                Some(last) if !is_over => left.lower = Bound::Excluded(last),
                _ => return Ok(count),
            }
        }
    }

    /// Removes all rows and returns how many. Reads and locks as [`remove_range`](Self::remove_range) does. To
    /// remove the rows of a large table at once, use [`Transaction::clear_table`](crate::Transaction::clear_table).
    ///
    /// # Errors
    /// Those of every method.
    pub fn clear(&self) -> Result<u64> {
        self.remove_range(..)
    }

    /// Returns whether rows may change between a read by this transaction and their removal.
    fn may_change(&self) -> Result<bool> {
        self.tx.with(|_, live| Ok(live.txn.isolation() == Isolation::ReadCommitted))
    }

    /// Removes the first rows of a span by one step. Returns how many, and the bound from which rows are left. Returns
    /// `None` if they take more than one step, or if the table may have indexes.
    fn remove_first(&self, left: &Span) -> Result<Option<RemovedFirst>> {
        self.tx.with(|engine, live| {
            let (txn, Scratch { indexes, dropped, inserted, .. }) = live.parts();
            let writer = &mut Writer { engine, txn, indexes, dropped, inserted };
            let mut step = None;
            self.remove_plain(writer, |txn| {
                step = self.tree.remove_first(txn, (left.lower.clone(), left.upper.clone()))?;
                Ok(step.as_ref().is_some_and(|(count, _)| *count > 0))
            })?;
            Ok(step)
        })
    }

    /// Removes the rows of encoded keys, which ascend, by one operation, and returns how many there were. Neighbours
    /// are removed by one step if the table has no indexes.
    fn remove_all(&self, mut keys: &[Vec<u8>]) -> Result<u64> {
        self.tx.with(|engine, live| {
            let (txn, Scratch { found, indexes, dropped, inserted, .. }) = live.parts();
            let writer = &mut Writer { engine, txn, indexes, dropped, inserted };
            let (mut count, mut refused) = (0, 0);
            while !keys.is_empty() {
                let mut several = 0;
                self.remove_plain(writer, |txn| {
                    several = self.tree.remove_several(txn, keys)?;
                    Ok(several > 0)
                })?;
                count += several as u64;
                // What refuses a step, such as short space, may refuse the next ones.
                refused = if several > 0 { 0 } else { refused + 1 };
                let singly = if several > 0 { 0 } else { keys.len().min(AFTER_REFUSAL << (refused - 1)) };
                for key in &keys[several..several + singly] {
                    count += u64::from(self.store(writer, Write::remove(key), found)?);
                }
                keys = &keys[several + singly..];
            }
            Ok(count)
        })
    }

    /// Removes the row of an encoded key, unless the transaction has written since its change `at`. Returns whether
    /// there was one, and the last change now.
    fn remove_unless_written(&self, key: &[u8], at: Option<Lsn>) -> Result<Option<(bool, Lsn)>> {
        self.tx.with(|engine, live| {
            if at != Some(live.txn.last_lsn()) {
                return Ok(None);
            }
            let (txn, Scratch { found, indexes, dropped, inserted, .. }) = live.parts();
            let writer = &mut Writer { engine, txn, indexes, dropped, inserted };
            let is_removed = self.store(writer, Write::remove(key), found)?;
            Ok(Some((is_removed, live.txn.last_lsn())))
        })
    }

    /// Reads the next row, and returns it with the length of its bytes.
    fn read_row(&self, cursor: &mut Cursor, txn: &mut Txn) -> Result<Option<(Read<K, V>, usize)>> {
        let Some((encoded, value)) = cursor.next(txn)? else { return Ok(None) };
        let len = encoded.len() + value.len();
        let key = K::decode_key(encoded).ok_or_else(|| undecodable(self.tree.table(), encoded, "key"))?;
        Ok(Some((Read { key, value: self.value(encoded, value)?, encoded: encoded.to_vec() }, len)))
    }

    /// Returns the transaction's last change, `None` if the transaction cannot go on.
    fn last_change(&self) -> Option<Lsn> {
        self.tx.if_live(|live| live.txn.last_lsn())
    }

    /// Reads rows of a span in one operation, at most `most`, and returns whether there are no more. `next` reads a row
    /// and returns its bytes.
    fn read_ahead(
        &self,
        span: &Span,
        most: usize,
        mut next: impl FnMut(&mut Cursor, &mut Txn) -> Result<Option<usize>>,
    ) -> Result<bool> {
        self.tx.with(|_, live| {
            let mut cursor = span.cursor(&self.tree, &mut live.txn, None)?;
            let mut bytes = 0;
            for _ in 0..most {
                let Some(len) = next(&mut cursor, &mut live.txn)? else { return Ok(true) };
                bytes += len;
                if bytes >= MOST_BYTES {
                    break;
                }
            }
            Ok(false)
        })
    }
}

/// Iterator over the rows that [`Table::extract_if`] removes. It ends after an error.
#[must_use = "rows that the iterator does not reach are not removed"]
pub struct ExtractIf<'t, 'tx, K: Key, V: Value, F> {
    table: &'t Table<'tx, K, V>,
    removes: F,
    /// The keys behind the last row that was asked for; `None` at the end.
    left: Option<Span>,
    ahead: Ahead<K, V>,
}

/// Rows that were read ahead.
struct Ahead<K: Key, V: Value> {
    rows: VecDeque<Read<K, V>>,
    /// Whether there are none behind them.
    is_last: bool,
    /// The LSN of the transaction's last change when the rows were last known to be current.
    at: Option<Lsn>,
    /// How many the next read takes at most.
    most: usize,
    /// Whether they may change before they are removed.
    may_change: bool,
}

impl<K: Key, V: Value, F: FnMut(&K::Owned, &V::Owned) -> bool> ExtractIf<'_, '_, K, V, F> {
    /// Removes and returns the next row for which `removes` returns true.
    fn extract(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        while let Some(mut row) = self.take()? {
            let is_removed = (self.removes)(&row.key, &row.value) && self.remove(&mut row)?;
            if let Some(left) = &mut self.left {
                left.lower = Bound::Excluded(row.encoded);
            }
            if is_removed {
                return Ok(Some((row.key, row.value)));
            }
        }
        Ok(None)
    }

    /// Takes the next row of those that were read ahead. Reads more if there is none, and again if the caller has
    /// written.
    fn take(&mut self) -> Result<Option<Read<K, V>>> {
        let is_stale = self.ahead.at.is_none() || self.has_written();
        let (table, ahead) = (self.table, &mut self.ahead);
        if is_stale {
            ahead.rows.clear();
            (ahead.is_last, ahead.most) = (false, FIRST);
        }
        if ahead.rows.is_empty()
            && !ahead.is_last
            && let Some(left) = &self.left
        {
            ahead.may_change = table.may_change()?;
            let rows = &mut ahead.rows;
            ahead.is_last = table.read_ahead(left, ahead.most, |cursor, txn| {
                let row = table.read_row(cursor, txn)?;
                Ok(row.map(|(row, len)| (rows.push_back(row), len).1))
            })?;
            ahead.at = table.last_change();
            ahead.most = (2 * ahead.most).min(MOST);
        }
        Ok(ahead.rows.pop_front())
    }

    /// Removes a row and returns whether it was there and `removes` still returns true.
    fn remove(&mut self, row: &mut Read<K, V>) -> Result<bool> {
        if !self.ahead.may_change
            && let Some((is_removed, at)) = self.table.remove_unless_written(&row.encoded, self.ahead.at)?
        {
            self.ahead.at = Some(at);
            return Ok(is_removed);
        }
        let Some(newest) = self.table.lock_encoded(&row.encoded)? else { return Ok(false) };
        row.value = newest;
        if !(self.removes)(&row.key, &row.value) {
            return Ok(false);
        }
        if let Some((is_removed, at)) = self.table.remove_unless_written(&row.encoded, self.ahead.at)? {
            self.ahead.at = Some(at);
            return Ok(is_removed);
        }
        // The predicate has written. It may have changed this row, so the value is that of the removal. The rows ahead
        // are read again.
        let Some(removed) = self.table.take_encoded(&row.encoded)? else { return Ok(false) };
        row.value = removed;
        Ok(true)
    }

    /// Whether the transaction has written since the rows were read ahead.
    fn has_written(&self) -> bool {
        self.ahead.at != self.table.last_change()
    }
}

impl<K: Key, V: Value, F: FnMut(&K::Owned, &V::Owned) -> bool> Iterator for ExtractIf<'_, '_, K, V, F> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left.as_ref()?;
        let row = self.extract();
        if !matches!(row, Ok(Some(_))) {
            self.left = None;
        }
        row.transpose()
    }
}

impl<K: Key, V: Value, F: FnMut(&K::Owned, &V::Owned) -> bool> FusedIterator for ExtractIf<'_, '_, K, V, F> {}

impl<K: Key, V: Value, F> fmt::Debug for ExtractIf<'_, '_, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractIf").field("table", self.table).field("left", &self.left).finish_non_exhaustive()
    }
}
