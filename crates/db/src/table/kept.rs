//! The indexes that writes through an open table maintain, and the description of a write.

use crate::catalogue::Declared;
use crate::engine::Engine;
use crate::index_state::IndexWord;
use crate::live::IndexScratch;
use crate::watches::TableSet;
use foreshore_base::{Few, TableId};
use foreshore_btree::Tree;
use foreshore_txn::Txn;
use std::cell::Cell;

/// The indexes that writes through an open table maintain: those that its definition declares.
pub(super) struct Kept<'tx> {
    declared: Few<Declared<'tx>>,
    /// The value of the table's [`IndexWord`] at which these are all its indexes.
    known_at: Cell<IndexWord>,
    /// The same if `declared` is empty, and otherwise a value that no table has.
    plain_at: Cell<IndexWord>,
}

impl<'tx> Kept<'tx> {
    /// Indexes of a table that was opened while `word` was the state of its indexes.
    pub(super) fn new(declared: Few<Declared<'tx>>, word: IndexWord) -> Self {
        let (known_at, plain_at) = (Cell::new(IndexWord::NONE), Cell::new(IndexWord::NONE));
        let kept = Self { declared, known_at, plain_at };
        if word.count() == Some(kept.declared.len() as u64) {
            kept.set_known(word);
        }
        kept
    }

    /// Notes that these are all indexes of the table under `word`.
    pub(super) fn set_known(&self, word: IndexWord) {
        self.known_at.set(word);
        if self.declared.is_empty() {
            self.plain_at.set(word);
        }
    }

    pub(super) fn is_known_at(&self, word: IndexWord) -> bool {
        self.known_at.get() == word
    }

    /// Returns the word at which the table has no indexes, so that a write maintains none.
    #[inline]
    pub(super) const fn plain_at(&self) -> IndexWord {
        self.plain_at.get()
    }

    pub(super) fn declared(&self) -> &[Declared<'tx>] {
        &self.declared
    }

    /// Returns the names and the ids of the indexes.
    pub(super) fn ids(&self) -> Vec<(&'static str, TableId)> {
        self.declared.iter().map(|index| (index.def.name(), index.tree.table())).collect()
    }
}

/// A write of one row.
#[derive(Clone, Copy)]
pub(super) struct Write<'a> {
    pub(super) key: &'a [u8],
    pub(super) change: Change<'a>,
    /// Whether the caller wants the old value.
    pub(super) returns_old: bool,
}

/// What happens to the row.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    Put(&'a [u8]),
    /// Refused if there is a row.
    Insert(&'a [u8]),
    Remove,
}

impl<'a> Write<'a> {
    pub(super) const fn put(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { key, change: Change::Put(value), returns_old: false }
    }

    pub(super) const fn insert(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { key, change: Change::Insert(value), returns_old: false }
    }

    pub(super) const fn remove(key: &'a [u8]) -> Self {
        Self { key, change: Change::Remove, returns_old: false }
    }

    /// Returns the same write, which also copies the old value of the row to the caller's buffer, however large.
    pub(super) const fn returning_old(self) -> Self {
        Self { returns_old: true, ..self }
    }

    /// Returns the value of the row afterwards.
    pub(super) const fn new_value(&self) -> Option<&'a [u8]> {
        match self.change {
            Change::Put(value) | Change::Insert(value) => Some(value),
            Change::Remove => None,
        }
    }
}

/// What a write needs besides its row.
pub(super) struct Writer<'w> {
    pub(super) engine: &'w Engine,
    pub(super) txn: &'w mut Txn,
    /// What the transaction keeps for indexes.
    pub(super) indexes: &'w mut IndexScratch,
    /// The tables that it has dropped.
    pub(super) dropped: &'w [Tree],
    /// The tables into which it has inserted.
    pub(super) inserted: &'w mut TableSet,
}
