//! Iteration over rows of a table.

use super::KeyRange;
use super::codec::undecodable;
use super::scan::{Memory, Span, aimed};
use crate::idle::CursorGuard;
use crate::live::Live;
use crate::{Error, Result, Transaction};
use foreshore_base::key::{Key, Value};
use foreshore_btree::{End, Tree};
use foreshore_lock::RowLock;
use std::{fmt, iter::FusedIterator, marker::PhantomData, mem};

/// Iterator over rows of a table, from either end or both. It ends after an error.
#[must_use = "iterators read nothing unless they are advanced"]
pub struct Range<'tx, K, V> {
    tx: &'tx Transaction,
    scan: Scan,
    types: PhantomData<fn(K) -> V>,
}

/// An encoded row.
type Row<'c> = (&'c [u8], &'c [u8]);

/// State of an iteration.
enum Scan {
    /// Before the first step; nothing is locked.
    Ahead(CursorGuard, Option<RowLock>),
    /// Between two steps.
    Running(CursorGuard),
    /// After the last row.
    Over,
}

impl<'tx, K: Key, V: Value> Range<'tx, K, V> {
    pub(super) fn new<'k>(
        tx: &'tx Transaction,
        tree: &Tree,
        range: &impl KeyRange<'k, K>,
        lock: Option<RowLock>,
    ) -> Self {
        Self::by(tx, tree, |memory| Span::within::<K>(memory, range), lock)
    }

    /// Returns the iterator over all rows.
    pub(super) fn all(tx: &'tx Transaction, tree: &Tree) -> Self {
        Self::by(tx, tree, |_| Span::all(), None)
    }

    /// Returns the iterator over rows whose encoded keys lie in a span, which `span` may make in the memory of an
    /// earlier one.
    pub(super) fn by(
        tx: &'tx Transaction,
        tree: &Tree,
        span: impl FnOnce(Memory) -> Span,
        lock: Option<RowLock>,
    ) -> Self {
        Self { tx, scan: Scan::Ahead(aimed(tx, tree, span), lock), types: PhantomData }
    }

    /// Takes the next row and returns what `read` makes of its key and its encoded value, without an owned copy. The
    /// encoding of `&[u8]` and `&str` is their bytes. Returns `None` at the end.
    ///
    /// # Errors
    /// Those of the iteration. The iteration ends after an error.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const LOG: TableDef<u64, &str> = TableDef::new("log");
    /// db.run(|tx| tx.open(LOG)?.insert_new(1, "entry"))?;
    /// let reader = db.read();
    /// let mut entries = reader.open(LOG)?.range(1..);
    /// let mut bytes = 0;
    /// while let Some(len) = entries.next_with(|_number, entry| entry.len())? {
    ///     bytes += len;
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn next_with<T>(&mut self, read: impl FnOnce(K::Owned, &[u8]) -> T) -> Result<Option<T>> {
        self.next_row(|(key, value)| Some(read(K::decode_key(key)?, value))).transpose()
    }

    /// Takes the next row and returns what `read` makes of its encoded key and its encoded value. Nothing is copied or
    /// decoded. Returns `None` at the end.
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
    /// let mut users = reader.open(USERS)?.iter();
    /// assert_eq!(users.next_encoded_with(|key, value| key.len() + value.len())?, Some(15));
    /// assert_eq!(users.next_encoded_with(|_, _| ())?, None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn next_encoded_with<T>(&mut self, read: impl FnOnce(&[u8], &[u8]) -> T) -> Result<Option<T>> {
        self.next_row(|(key, value)| Some(read(key, value))).transpose()
    }

    /// Takes the next row from the front. Rows that the cursor has buffered are returned without an operation for each.
    #[inline(always)]
    fn next_row<T>(&mut self, read: impl FnOnce(Row<'_>) -> Option<T>) -> Option<Result<T>> {
        if let Scan::Running(cursor) = &mut self.scan
            && self.tx.if_live(|live| cursor.has_at_hand(&live.txn)) == Some(true)
            && let Some(row) = cursor.next_at_hand()
        {
            return match read(row) {
                Some(row) => Some(Ok(row)),
                None => Some(Err(self.undecodable(End::Front))),
            };
        }
        self.step(End::Front, read)
    }

    /// Takes the next row by a step of the cursor. No borrow of the transaction is held while `read` runs, so `read`
    /// may use the transaction.
    fn step<T>(&mut self, end: End, read: impl FnOnce(Row<'_>) -> Option<T>) -> Option<Result<T>> {
        let scan = match &mut self.scan {
            Scan::Over => return None,
            scan => scan,
        };
        match self.tx.with(|_, live| row(scan, live, end)) {
            Ok(Some(row)) => match read(row) {
                Some(row) => Some(Ok(row)),
                None => Some(Err(self.undecodable(end))),
            },
            Ok(None) => {
                self.scan = Scan::Over;
                None
            }
            Err(error) => {
                self.scan = Scan::Over;
                Some(Err(error))
            }
        }
    }

    /// Ends the transaction and the iteration, because the last row taken from one end does not decode.
    #[cold]
    fn undecodable(&mut self, end: End) -> Error {
        let Scan::Running(cursor) = &self.scan else { unreachable!("a row was taken") };
        let key = cursor.last(end).unwrap_or_default();
        let part = if K::decode_key(key).is_none() { "key" } else { "value" };
        let error = undecodable(cursor.table(), key, part);
        self.scan = Scan::Over;
        match self.tx.with::<()>(|_, _| Err(error.clone())) {
            Err(error) => error,
            Ok(()) => error,
        }
    }
}

/// Returns the next row from one of the ends; `Ok(None)` if none is left.
fn row<'s>(scan: &'s mut Scan, live: &mut Live, end: End) -> Result<Option<Row<'s>>> {
    if let Scan::Ahead(cursor, lock) = scan {
        match *lock {
            None => cursor.begin(&mut live.txn)?,
            Some(lock) => cursor.begin_locked(&mut live.txn, lock)?,
        }
        if let Scan::Ahead(cursor, _) = mem::replace(scan, Scan::Over) {
            *scan = Scan::Running(cursor);
        }
    }
    let Scan::Running(cursor) = scan else { return Ok(None) };
    Ok(match end {
        End::Front => cursor.next(&mut live.txn),
        End::Back => cursor.next_back(&mut live.txn),
    }?)
}

#[inline]
fn decode<K: Key, V: Value>((key, value): Row<'_>) -> Option<(K::Owned, V::Owned)> {
    Some((K::decode_key(key)?, V::decode(value)?))
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_row(decode::<K, V>)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back, decode::<K, V>)
    }
}

impl<K: Key, V: Value> FusedIterator for Range<'_, K, V> {}

impl<K, V> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("is_over", &matches!(self.scan, Scan::Over)).finish_non_exhaustive()
    }
}
