//! Encoded rows of a table, for the operations that need no owned ones.

use super::KeyRange;
use crate::idle::CursorGuard;
use crate::live::Live;
use crate::{Result, Transaction};
use foreshore_base::key::{Key, to_after_prefix};
use foreshore_btree::{Cursor, Tree};
use foreshore_lock::RowLock;
use foreshore_txn::Txn;
use std::ops::Bound;

/// Rows that one operation of the transaction reads at most. Between two of them it notices that it is too old, or that
/// the database closes.
const AT_ONCE: usize = 1024;

/// Encoded bounds.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) lower: Bound<Vec<u8>>,
    pub(super) upper: Bound<Vec<u8>>,
}

/// Empty vectors for the keys of two bounds.
pub(super) type Memory = [Vec<u8>; 2];

impl Span {
    /// All keys.
    pub(super) const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Encodes a range.
    pub(super) fn of<'k, K: Key>(range: &impl KeyRange<'k, K>) -> Self {
        Self::within::<K>(Memory::default(), range)
    }

    /// Encodes a range in `memory`.
    pub(super) fn within<'k, K: Key>(memory: Memory, range: &impl KeyRange<'k, K>) -> Self {
        Self::encoded(memory, range.bounds(), K::encode_key)
    }

    /// Encodes two bounds in `memory`. `encode` appends the bytes of a key.
    pub(super) fn encoded<K>(
        [lower, upper]: Memory,
        bounds: (Bound<&K>, Bound<&K>),
        encode: impl Fn(&K, &mut Vec<u8>),
    ) -> Self {
        let encode = |key: &K, mut bytes: Vec<u8>| {
            encode(key, &mut bytes);
            bytes
        };
        Self { lower: bounds.0.map(|key| encode(key, lower)), upper: bounds.1.map(|key| encode(key, upper)) }
    }

    /// The keys that begin with `prefix`. `memory` becomes the upper bound.
    pub(super) fn prefix(prefix: Vec<u8>, mut memory: Vec<u8>) -> Self {
        memory.extend_from_slice(&prefix);
        let upper = if to_after_prefix(&mut memory) { Bound::Excluded(memory) } else { Bound::Unbounded };
        Self { lower: Bound::Included(prefix), upper }
    }

    /// Begins a scan. With `lock` it locks what it reads.
    pub(super) fn cursor(&self, tree: &Tree, txn: &mut Txn, lock: Option<RowLock>) -> foreshore_base::Result<Cursor> {
        let (lower, upper) = (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice));
        match lock {
            None => tree.range(txn, lower, upper),
            Some(lock) => tree.range_locked(txn, lower, upper, lock),
        }
    }
}

/// The end of a range that rows are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

impl From<End> for foreshore_btree::End {
    fn from(end: End) -> Self {
        match end {
            End::Front => Self::Front,
            End::Back => Self::Back,
        }
    }
}

impl End {
    /// Returns the next encoded row from this end.
    pub(super) fn step<'c>(
        self,
        cursor: &'c mut Cursor,
        txn: &mut Txn,
    ) -> foreshore_base::Result<Option<(&'c [u8], &'c [u8])>> {
        match self {
            Self::Front => cursor.next(txn),
            Self::Back => cursor.next_back(txn),
        }
    }

    /// Returns the next encoded key from this end.
    fn step_key<'c>(self, cursor: &'c mut Cursor, txn: &mut Txn) -> foreshore_base::Result<Option<&'c [u8]>> {
        match self {
            Self::Front => cursor.next_key(txn),
            Self::Back => cursor.next_key_back(txn),
        }
    }
}

/// Returns a cursor of the session that is aimed at a span of a tree.
pub(super) fn aimed(tx: &Transaction, tree: &Tree, span: impl FnOnce(Memory) -> Span) -> CursorGuard {
    let mut cursor = CursorGuard::new(tx.if_live(|live| live.scratch.cursor.clone()), tree);
    cursor.aim(tree, |memory| {
        let Span { lower, upper } = span(memory);
        [lower, upper]
    });
    cursor
}

/// An iteration over encoded rows.
pub(super) struct Scan<'tx> {
    tx: &'tx Transaction,
    /// `None` after the last row.
    cursor: Option<CursorGuard>,
    /// Whether a step was made. Nothing is locked before the first one.
    has_begun: bool,
}

impl<'tx> Scan<'tx> {
    /// Makes an iteration over the rows of a span, which `span` may make in the memory of an earlier one.
    pub(super) fn new(tx: &'tx Transaction, tree: &Tree, span: impl FnOnce(Memory) -> Span) -> Self {
        Self { tx, cursor: Some(aimed(tx, tree, span)), has_begun: false }
    }

    /// Returns what `read` makes of the next row. An error ends the iteration.
    pub(super) fn next_with<T>(&mut self, end: End, read: impl FnOnce(&[u8], &[u8]) -> Result<T>) -> Result<Option<T>> {
        self.next_live(end, |_, key, value| read(key, value))
    }

    /// Returns what `read` makes of the next row in the same operation of the transaction. An error ends the iteration.
    pub(super) fn next_live<T>(
        &mut self,
        end: End,
        read: impl FnOnce(&mut Live, &[u8], &[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        self.next_by(|cursor, live| match end.step(cursor, &mut live.txn)? {
            Some((key, value)) => read(live, key, value).map(Some),
            None => Ok(None),
        })
    }

    /// Returns what `read` makes of the next key. Reads no large value. An error ends the iteration.
    pub(super) fn next_key_with<T>(&mut self, end: End, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        self.next_by(|cursor, live| end.step_key(cursor, &mut live.txn)?.map(read).transpose())
    }

    fn next_by<T>(&mut self, step: impl FnOnce(&mut Cursor, &mut Live) -> Result<Option<T>>) -> Result<Option<T>> {
        let Self { tx, cursor: Some(cursor), has_begun } = self else { return Ok(None) };
        let row = tx.with(|_, live| {
            if !*has_begun {
                cursor.begin(&mut live.txn)?;
                *has_begun = true;
            }
            step(cursor, live)
        });
        if !matches!(row, Ok(Some(_))) {
            self.cursor = None;
        }
        row
    }

    /// Counts the rows that are left.
    pub(super) fn count(mut self) -> Result<u64> {
        let mut count = 0;
        let mut count_some = |cursor: &mut Cursor, live: &mut Live| {
            for _ in 0..AT_ONCE {
                if cursor.next_key(&mut live.txn)?.is_none() {
                    return Ok(None);
                }
                count += 1;
            }
            Ok(Some(()))
        };
        while self.next_by(&mut count_some)?.is_some() {}
        Ok(count)
    }
}
