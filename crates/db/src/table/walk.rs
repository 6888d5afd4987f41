//! A position among the rows of a table, which moves both ways.

use super::scan::{End, Scan, Span};
use super::{Table, undecodable};
use crate::Result;
use foreshore_base::key::{Key, Value};
use std::{borrow::Borrow, fmt, ops::Bound};

/// A position in a table: at a row, before the first or after the last. [`Table::cursor`] returns it.
///
/// It sees rows that the transaction writes meanwhile. Each move locks the keys that it passes, as
/// [`Table::range`] does.
pub struct Cursor<'t, 'tx, K, V> {
    table: &'t Table<'tx, K, V>,
    at: Position,
    /// The iteration that the last move belongs to, and its direction.
    scan: Option<(End, Scan<'tx>)>,
}

/// Where a cursor is.
#[derive(Debug)]
enum Position {
    Begin,
    /// At the row of this encoded key, or where it was.
    Row(Vec<u8>),
    End,
}

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Returns a cursor before the first row.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const PRICES: TableDef<u64, i64> = TableDef::new("prices by day");
    /// db.run(|tx| [(1, 10), (5, 12), (9, 11)].iter().try_for_each(|(day, price)| tx.open(PRICES)?.put(day, price)))?;
    /// let reader = db.read();
    /// let prices = reader.open(PRICES)?;
    /// let mut cursor = prices.cursor();
    /// assert_eq!(cursor.seek(4)?, Some((5, 12)));
    /// assert_eq!(cursor.next()?, Some((9, 11)));
    /// assert_eq!(cursor.next()?, None);
    /// assert_eq!(cursor.prev()?, Some((9, 11)));
    /// assert_eq!(cursor.seek_back(4)?, Some((1, 10)));
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn cursor<'t>(&'t self) -> Cursor<'t, 'tx, K, V> {
        Cursor { table: self, at: Position::Begin, scan: None }
    }
}

#[expect(clippy::should_implement_trait, reason = "an iterator has no way back")]
impl<K: Key, V: Value> Cursor<'_, '_, K, V> {
    /// Moves to the first row whose key is `key` or above, and returns it. If there is none, moves after the last row.
    ///
    /// # Errors
    /// Those of every method of [`Table`], and `KeyTooLarge`.
    pub fn seek<'k>(&mut self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<(K::Owned, V::Owned)>> {
        let span = Span { lower: Bound::Included(encoded::<K>(key.borrow())), upper: Bound::Unbounded };
        self.scan_from(End::Front, span)
    }

    /// Moves to the last row whose key is `key` or below, and returns it. If there is none, moves before the first row.
    ///
    /// # Errors
    /// Those of every method of [`Table`], and `KeyTooLarge`.
    pub fn seek_back<'k>(&mut self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<(K::Owned, V::Owned)>> {
        let span = Span { lower: Bound::Unbounded, upper: Bound::Included(encoded::<K>(key.borrow())) };
        self.scan_from(End::Back, span)
    }

    /// Moves to the first row and returns it.
    ///
    /// # Errors
    /// Those of every method of [`Table`].
    pub fn first(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.scan_from(End::Front, Span::all())
    }

    /// Moves to the last row and returns it.
    ///
    /// # Errors
    /// Those of every method of [`Table`].
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (1..=3).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let reader = db.read();
    /// let stock = reader.open(STOCK)?;
    /// let mut cursor = stock.cursor();
    /// assert_eq!((cursor.last()?, cursor.first()?), (Some((3, 10)), Some((1, 10))));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn last(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.scan_from(End::Back, Span::all())
    }

    /// Moves to the next row and returns it. At the last row, moves after it and returns `None`.
    ///
    /// # Errors
    /// Those of every method of [`Table`].
    pub fn next(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.step(End::Front)
    }

    /// Moves to the row before and returns it. At the first row, moves before it and returns `None`.
    ///
    /// # Errors
    /// Those of every method of [`Table`].
    pub fn prev(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.step(End::Back)
    }

    fn step(&mut self, end: End) -> Result<Option<(K::Owned, V::Owned)>> {
        match &self.scan {
            Some((direction, _)) if *direction == end => self.take(),
            _ => {
                let span = match (end, &self.at) {
                    (End::Front, Position::End) | (End::Back, Position::Begin) => return Ok(None),
                    (End::Front, Position::Begin) | (End::Back, Position::End) => Span::all(),
                    (End::Front, Position::Row(key)) => {
                        Span { lower: Bound::Excluded(key.clone()), upper: Bound::Unbounded }
                    }
                    (End::Back, Position::Row(key)) => {
                        Span { lower: Bound::Unbounded, upper: Bound::Excluded(key.clone()) }
                    }
                };
                self.scan_from(end, span)
            }
        }
    }

    fn scan_from(&mut self, end: End, span: Span) -> Result<Option<(K::Owned, V::Owned)>> {
        self.scan = Some((end, Scan::new(self.table.tx, &self.table.tree, |_| span)));
        self.take()
    }

    /// Takes the next row of the iteration.
    fn take(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        let Some((end, scan)) = &mut self.scan else { return Ok(None) };
        let (end, table) = (*end, self.table);
        let row = scan.next_with(end, |encoded, value| {
            let key = K::decode_key(encoded).ok_or_else(|| undecodable(table.tree.table(), encoded, "key"))?;
            Ok((encoded.to_vec(), (key, table.value(encoded, value)?)))
        });
        if !matches!(row, Ok(Some(_))) {
            self.scan = None;
        }
        let row = row?;
        let (at, row) = match row {
            Some((encoded, row)) => (Position::Row(encoded), Some(row)),
            None if end == End::Front => (Position::End, None),
            None => (Position::Begin, None),
        };
        self.at = at;
        Ok(row)
    }
}

fn encoded<K: Key>(key: &K::Ref<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    K::encode_key(key, &mut bytes);
    bytes
}

impl<K, V> fmt::Debug for Cursor<'_, '_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("table", self.table).field("at", &self.at).finish_non_exhaustive()
    }
}
