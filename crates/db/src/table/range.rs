//! Iteration over rows of a table.

use super::codec::undecodable;
use crate::live::Live;
use crate::{Result, Transaction};
use foreshore_base::TableId;
use foreshore_base::key::{Key, Value};
use foreshore_btree::{Cursor, Tree};
use foreshore_lock::RowLock;
use foreshore_txn::Txn;
use std::{fmt, iter::FusedIterator, marker::PhantomData, ops::Bound};

/// Iterator over rows of a table, from either end or both. It ends after an error.
#[must_use = "iterators read nothing unless they are advanced"]
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
    pub(super) fn new(
        tx: &'tx Transaction,
        tree: Tree,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        lock: Option<RowLock>,
    ) -> Self {
        Self { tx, scan: Scan::Ahead { tree, lower, upper, lock }, types: PhantomData }
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
        step(cursor, &mut live.txn)?.map(|row| Self::decode(table, row)).transpose()
    }

    fn decode(table: TableId, (key, value): (&[u8], &[u8])) -> Result<(K::Owned, V::Owned)> {
        let owned = K::decode_key(key).ok_or_else(|| undecodable(table, key, "key"))?;
        let value = V::decode(value).ok_or_else(|| undecodable(table, key, "value"))?;
        Ok((owned, value))
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
        // Rows that were read together are handed out without an operation for each.
        if let Scan::Running(cursor) = &mut self.scan {
            let table = cursor.table();
            let row = self.tx.if_live(|live| Some(Self::decode(table, cursor.next_at_hand(&live.txn)?)));
            match row.flatten() {
                Some(Ok(row)) => return Some(Ok(row)),
                Some(Err(error)) => {
                    self.scan = Scan::Over;
                    return Some(self.tx.with(|_, _| Err(error)));
                }
                None => {}
            }
        }
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
