//! An index and its table: finds rows by index entries, and index entries by rows.

use super::codec::undecodable;
use super::scan::Span;
use super::{KeyPrefix, KeyRange};
use crate::index_def::Definition;
use crate::live::{Live, Scratch};
use crate::{Error, IndexDef, Result};
use foreshore_base::key::{Key, Value, after_prefix};
use foreshore_btree::Tree;
use foreshore_txn::{Isolation, Txn};
use std::{fmt, ops::Bound};

/// An index, its table and its definition.
pub(super) struct Index<K: Key, V: Value, I: Key> {
    table: Tree,
    tree: Tree,
    def: IndexDef<K, V, I>,
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> Index<K, V, I> {
    pub(super) const fn new(table: Tree, tree: Tree, def: IndexDef<K, V, I>) -> Self {
        Self { table, tree, def }
    }

    /// Returns the tree of the table.
    pub(super) const fn table(&self) -> &Tree {
        &self.table
    }

    /// Returns the tree of the index.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) const fn is_unique(&self) -> bool {
        self.def.is_unique()
    }

    /// Returns the entries of a range of index keys.
    pub(super) fn span<'i>(&self, range: &impl KeyRange<'i, I>) -> Span {
        if self.def.is_unique() {
            return Span::of::<I>(range);
        }
        // An entry is an index key followed by a primary key. So an entry begins with an index key if and only if it
        // has that key.
        let part = |key: &I::Ref<'i>| {
            let mut bytes = Vec::new();
            I::encode_key_part(key, &mut bytes);
            bytes
        };
        let (lower, upper) = range.bounds();
        let lower = match lower.map(part) {
            Bound::Excluded(key) => match after_prefix(&key) {
                Some(after) => Bound::Included(after),
                None => return Span { lower: Bound::Excluded(Vec::new()), upper: Bound::Excluded(Vec::new()) },
            },
            other => other,
        };
        let upper = match upper.map(part) {
            Bound::Included(key) => after_prefix(&key).map_or(Bound::Unbounded, Bound::Excluded),
            other => other,
        };
        Span { lower, upper }
    }

    /// Returns the entries of the index keys that begin with `prefix`.
    pub(super) fn prefix<'i>(&self, prefix: &impl KeyPrefix<'i, I>) -> Span {
        let mut bytes = Vec::new();
        if self.def.is_unique() {
            prefix.encode(&mut bytes)
        } else {
            prefix.encode_part(&mut bytes)
        }
        Span::prefix(bytes)
    }

    /// Decodes a row.
    fn row(&self, primary: &[u8], value: &[u8]) -> Result<(K::Owned, V::Owned)> {
        let undecodable = |part| undecodable(self.table.table(), primary, part);
        let key = K::decode_key(primary).ok_or_else(|| undecodable("key"))?;
        Ok((key, V::decode(value).ok_or_else(|| undecodable("value"))?))
    }

    /// Returns the index key and the encoded primary key of an entry.
    pub(super) fn split<'b>(&self, entry: &'b [u8], value: &'b [u8]) -> Result<(I::Owned, &'b [u8])> {
        self.def.split(entry, value).ok_or_else(|| undecodable(self.tree.table(), entry, "key"))
    }

    /// Replaces `out` by the entries that a row should have.
    pub(super) fn expect(&self, primary: &[u8], value: &[u8], out: &mut Vec<Vec<u8>>) -> Result<()> {
        self.def.entries(primary, value, out).map_err(|part| undecodable(self.table.table(), primary, part))
    }

    /// Returns the row of an entry. `None` at read committed, if the row has lost the index key since.
    pub(super) fn row_of(&self, live: &mut Live, entry: &[u8], primary: &[u8]) -> Result<Option<(K::Owned, V::Owned)>> {
        let (txn, Scratch { found, .. }) = live.parts();
        let may_differ = txn.isolation() == Isolation::ReadCommitted;
        if !self.table.get(txn, primary, found)? {
            return if may_differ { Ok(None) } else { Err(self.mismatch(entry)) };
        }
        if may_differ {
            let mut entries = Vec::new();
            self.expect(primary, found, &mut entries)?;
            if !entries.iter().any(|known| known == entry) {
                return Ok(None);
            }
        }
        self.row(primary, found).map(Some)
    }

    /// Returns the row of an entry of a unique index. Reads both by one snapshot, if the transaction reads by one.
    pub(super) fn row_of_unique(&self, txn: &mut Txn, entry: &[u8]) -> Result<Option<(K::Owned, V::Owned)>> {
        let (mut primary, mut value) = (Vec::new(), Vec::new());
        let snapshot = txn.reads_at()?;
        let get = |txn: &mut Txn, tree: &Tree, key: &[u8], out: &mut Vec<u8>| match &snapshot {
            Some(snapshot) => tree.get_at(txn, snapshot, key, out),
            None => tree.get_newest(txn, key, out),
        };
        if !get(txn, &self.tree, entry, &mut primary)? {
            return Ok(None);
        }
        if !get(txn, &self.table, &primary, &mut value)? {
            return Err(self.mismatch(entry));
        }
        self.row(&primary, &value).map(Some)
    }

    /// Checks that the index has the entry of a row. Overwrites `found`.
    pub(super) fn find_entry(&self, txn: &mut Txn, entry: &[u8], primary: &[u8], found: &mut Vec<u8>) -> Result<()> {
        let is_there = self.tree.get(txn, entry, found)?;
        let is_sound = is_there && (!self.def.is_unique() || *found == primary);
        if is_sound { Ok(()) } else { Err(self.mismatch(entry)) }
    }

    /// Checks that the table has the row of an entry, and that the row should have it. Overwrites `found`.
    pub(super) fn find_row(&self, txn: &mut Txn, entry: &[u8], primary: &[u8], found: &mut Vec<u8>) -> Result<()> {
        let mut expected = Vec::new();
        if self.table.get(txn, primary, found)? {
            self.expect(primary, found, &mut expected)?;
        }
        if expected.iter().any(|known| known == entry) { Ok(()) } else { Err(self.mismatch(entry)) }
    }

    fn mismatch(&self, entry: &[u8]) -> Error {
        Error::IndexMismatch { index: self.tree.table().into(), entry: entry.into() }
    }
}

impl<K: Key, V: Value, I: Key> Clone for Index<K, V, I> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), tree: self.tree.clone(), def: self.def }
    }
}

impl<K: Key, V: Value, I: Key> fmt::Debug for Index<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("table", &self.table.table()).field("def", &self.def).finish_non_exhaustive()
    }
}
