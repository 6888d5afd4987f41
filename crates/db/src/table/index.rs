//! An index and its table: finds rows by index entries, and index entries by rows.

use super::codec::undecodable;
use super::scan::{Memory, Span};
use super::{KeyPrefix, KeyRange};
use crate::catalogue::TreeRef;
use crate::index_def::{Definition, Entries};
use crate::live::{Live, Scratch};
use crate::{Error, IndexDef, Result};
use foreshore_base::key::{Key, Value, to_after_prefix};
use foreshore_btree::Tree;
use foreshore_txn::{Isolation, Txn};
use std::{fmt, mem, ops::Bound};

/// An index, its table and its definition.
pub(super) struct Index<'tx, K: Key, V: Value, I: Key> {
    table: TreeRef<'tx>,
    tree: TreeRef<'tx>,
    def: IndexDef<K, V, I>,
}

impl<'tx, K: Key + 'static, V: Value + 'static, I: Key + 'static> Index<'tx, K, V, I> {
    pub(super) const fn new(table: TreeRef<'tx>, tree: TreeRef<'tx>, def: IndexDef<K, V, I>) -> Self {
        Self { table, tree, def }
    }

    /// Returns the tree of the table.
    pub(super) fn table(&self) -> &Tree {
        &self.table
    }

    /// Returns the tree of the index.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) const fn is_unique(&self) -> bool {
        self.def.is_unique()
    }

    /// Returns the entries of a range of index keys, encoded in `memory`.
    pub(super) fn span<'i>(&self, memory: Memory, range: &impl KeyRange<'i, I>) -> Span {
        if self.def.is_unique() {
            return Span::within::<I>(memory, range);
        }
        // An entry is an index key followed by a primary key. So an entry begins with an index key if and only if it
        // has that key.
        let Span { mut lower, mut upper } = Span::encoded(memory, range.bounds(), I::encode_key_part);
        if let Bound::Excluded(key) = &mut lower {
            if !to_after_prefix(key) {
                return Span { lower: Bound::Excluded(Vec::new()), upper: Bound::Excluded(Vec::new()) };
            }
            lower = Bound::Included(mem::take(key));
        }
        if let Bound::Included(key) = &mut upper {
            upper = if to_after_prefix(key) { Bound::Excluded(mem::take(key)) } else { Bound::Unbounded };
        }
        Span { lower, upper }
    }

    /// Returns the entries of the index keys that begin with `prefix`, encoded in `memory`.
    pub(super) fn prefix<'i>(&self, [mut lower, upper]: Memory, prefix: &impl KeyPrefix<'i, I>) -> Span {
        if self.def.is_unique() {
            prefix.encode(&mut lower)
        } else {
            prefix.encode_part(&mut lower)
        }
        Span::prefix(lower, upper)
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
    pub(super) fn expect(&self, primary: &[u8], value: &[u8], out: &mut Entries) -> Result<()> {
        self.def.entries(primary, value, out).map_err(|part| undecodable(self.table.table(), primary, part))
    }

    /// Returns the row of an entry. `None` at read committed, if the row has lost the index key since.
    pub(super) fn row_of(&self, live: &mut Live, entry: &[u8], primary: &[u8]) -> Result<Option<(K::Owned, V::Owned)>> {
        let (txn, Scratch { found, indexes, .. }) = live.parts();
        let may_differ = txn.isolation() == Isolation::ReadCommitted;
        if !self.table.get(txn, primary, found)? {
            return if may_differ { Ok(None) } else { Err(self.mismatch(entry)) };
        }
        if may_differ {
            let expected = &mut indexes.entries[0];
            self.expect(primary, found, expected)?;
            if !expected.has(entry) {
                return Ok(None);
            }
        }
        self.row(primary, found).map(Some)
    }

    /// Returns the row of an entry of a unique index. Reads both by one snapshot, if the transaction reads by one. The
    /// entry is the key of the call.
    pub(super) fn row_of_unique(&self, live: &mut Live) -> Result<Option<(K::Owned, V::Owned)>> {
        let (txn, Scratch { key: entry, value: primary, found, .. }) = live.parts();
        let Some(snapshot) = txn.reads_at()? else {
            return self.find_row_of(entry, primary, found, |tree, key, out| tree.get_newest(txn, key, out));
        };
        let row = self.find_row_of(entry, primary, found, |tree, key, out| tree.get_at(txn, &snapshot, key, out));
        txn.end_reads_at(snapshot);
        row
    }

    /// Returns the row of an entry of a unique index. Overwrites `primary` and `found`.
    fn find_row_of(
        &self,
        entry: &[u8],
        primary: &mut Vec<u8>,
        found: &mut Vec<u8>,
        mut get: impl FnMut(&Tree, &[u8], &mut Vec<u8>) -> foreshore_base::Result<bool>,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        if !get(&self.tree, entry, primary)? {
            return Ok(None);
        }
        if !get(&self.table, primary, found)? {
            return Err(self.mismatch(entry));
        }
        self.row(primary, found).map(Some)
    }

    /// Checks that the index has the entry of a row. Overwrites `found`.
    pub(super) fn find_entry(&self, txn: &mut Txn, entry: &[u8], primary: &[u8], found: &mut Vec<u8>) -> Result<()> {
        let is_there = self.tree.get(txn, entry, found)?;
        let is_sound = is_there && (!self.def.is_unique() || *found == primary);
        if is_sound { Ok(()) } else { Err(self.mismatch(entry)) }
    }

    /// Checks that the table has the row of an entry, and that the row should have it. Overwrites `found`.
    pub(super) fn find_row(&self, txn: &mut Txn, entry: &[u8], primary: &[u8], found: &mut Vec<u8>) -> Result<()> {
        let mut expected = Entries::default();
        if self.table.get(txn, primary, found)? {
            self.expect(primary, found, &mut expected)?;
        }
        if expected.has(entry) { Ok(()) } else { Err(self.mismatch(entry)) }
    }

    fn mismatch(&self, entry: &[u8]) -> Error {
        Error::IndexMismatch { index: self.tree.table().into(), entry: entry.into() }
    }
}

impl<K: Key, V: Value, I: Key> Clone for Index<'_, K, V, I> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), tree: self.tree.clone(), def: self.def }
    }
}

impl<K: Key, V: Value, I: Key> fmt::Debug for Index<'_, K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("table", &self.table.table()).field("def", &self.def).finish_non_exhaustive()
    }
}
