//! Encoded rows of a table, for the operations that need no owned ones.

use super::KeyRange;
use crate::live::Live;
use crate::{Result, Transaction};
use foreshore_base::key::{Key, after_prefix};
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

impl Span {
    /// All keys.
    pub(super) const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Encodes a range.
    pub(super) fn of<'k, K: Key>(range: &impl KeyRange<'k, K>) -> Self {
        let encode = |key: &K::Ref<'k>| {
            let mut bytes = Vec::new();
            K::encode_key(key, &mut bytes);
            bytes
        };
        let (lower, upper) = range.bounds();
        Self { lower: lower.map(encode), upper: upper.map(encode) }
    }

    /// The keys that begin with `prefix`.
    pub(super) fn prefix(prefix: Vec<u8>) -> Self {
        let upper = after_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
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

/// An iteration over encoded rows.
pub(super) struct Scan<'tx> {
    tx: &'tx Transaction,
    state: State,
}

enum State {
    /// Before the first step; nothing is locked.
    Ahead(Tree, Span),
    Running(Box<Cursor>),
    Over,
}

impl<'tx> Scan<'tx> {
    pub(super) fn new(tx: &'tx Transaction, tree: &Tree, span: Span) -> Self {
        Self { tx, state: State::Ahead(tree.clone(), span) }
    }

    pub(super) const fn tx(&self) -> &'tx Transaction {
        self.tx
    }

    /// Returns what `read` makes of the next row. An error ends the iteration.
    pub(super) fn next_with<T>(&mut self, end: End, read: impl FnOnce(&[u8], &[u8]) -> Result<T>) -> Result<Option<T>> {
        self.next_by(|cursor, txn| end.step(cursor, txn)?.map(|(key, value)| read(key, value)).transpose())
    }

    /// Returns what `read` makes of the next key. Reads no large value. An error ends the iteration.
    pub(super) fn next_key_with<T>(&mut self, end: End, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        self.next_by(|cursor, txn| end.step_key(cursor, txn)?.map(read).transpose())
    }

    fn next_by<T>(&mut self, step: impl FnOnce(&mut Cursor, &mut Txn) -> Result<Option<T>>) -> Result<Option<T>> {
        let state = &mut self.state;
        if matches!(state, State::Over) {
            return Ok(None);
        }
        let row = self.tx.with(|_, live| {
            let Some(cursor) = state.cursor(live)? else { return Ok(None) };
            step(cursor, &mut live.txn)
        });
        if !matches!(row, Ok(Some(_))) {
            self.state = State::Over;
        }
        row
    }

    /// Counts the rows that are left.
    pub(super) fn count(mut self) -> Result<u64> {
        let mut count = 0;
        while !matches!(self.state, State::Over) {
            let state = &mut self.state;
            self.tx.with(|_, live| {
                let Some(cursor) = state.cursor(live)? else { return Ok(()) };
                for _ in 0..AT_ONCE {
                    if cursor.next_key(&mut live.txn)?.is_none() {
                        *state = State::Over;
                        break;
                    }
                    count += 1;
                }
                Ok(())
            })?;
        }
        Ok(count)
    }
}

impl State {
    /// Returns the cursor, which the first call makes.
    fn cursor(&mut self, live: &mut Live) -> Result<Option<&mut Cursor>> {
        if let Self::Ahead(tree, span) = self {
            *self = Self::Running(Box::new(span.cursor(tree, &mut live.txn, None)?));
        }
        Ok(match self {
            Self::Running(cursor) => Some(cursor),
            Self::Ahead(..) | Self::Over => None,
        })
    }
}
