//! Writes of rows together with their entries in the indexes of the table: the one place that changes rows.
//!
//! 1. The row is written first, and its old value read. Then the entries that only the old row has are removed, and
//!    those that only the new row has are inserted. A change that leaves the index keys as they are writes no entry.
//! 2. A request that is refused half-way, because a unique key is taken or a key is too long, is rolled back to where
//!    it began. Its locks stay, so that the answer stays true. If the function of an index panics half-way, the
//!    transaction can only be rolled back.
//! 3. A writer compares the word of the table's indexes before and after the write of the row
//!    ([`crate::index_state`]). A table without indexes costs no more than that.
//!
//! **Invariant:** no row is written while the table has an index that the writer does not maintain.

use super::Table;
use super::codec::undecodable;
use super::kept::{Change, Write, Writer};
use super::scan::Span;
use crate::catalogue::Declared;
use crate::index_def::Entries;
use crate::transaction::keeps_transaction;
use crate::watches::TableSet;
use crate::{Error, Result};
use foreshore_base::key::{Key, Value};
use foreshore_btree::Tree;
use foreshore_lock::RowLock;
use foreshore_sync::pause;
use foreshore_txn::Txn;
use std::ops::Bound;

/// Limits of what an index build reads by one operation: rows, and encoded bytes without the last row.
const MOST: usize = 256;
const MOST_BYTES: usize = 64 << 10;

impl<K: Key, V: Value> Table<'_, K, V> {
    /// Writes a row and its entries in the indexes, and returns whether there was a row. Overwrites `old`.
    #[inline]
    pub(super) fn store(&self, writer: &mut Writer<'_>, write: Write<'_>, old: &mut Vec<u8>) -> Result<bool> {
        let (indexes, plain_at) = (self.tree.indexes(), self.kept.plain_at());
        let was_there = if indexes.word() == plain_at {
            let was_there = self.store_row(writer.txn, write, old)?;
            if indexes.word() != plain_at {
                self.check_written(writer)?;
            }
            was_there
        } else {
            self.store_kept(writer, write, old)?
        };
        if write.new_value().is_some() {
            self.note_put(was_there, writer.inserted);
        }
        Ok(was_there)
    }

    /// Notes a row that was put, in place of an old one or not.
    #[inline]
    pub(super) fn note_put(&self, was_there: bool, inserted: &mut TableSet) {
        if !was_there {
            inserted.add(self.tree.table());
        }
    }

    /// Returns whether a write of the table has to maintain indexes.
    pub(super) fn has_indexes(&self, writer: &mut Writer<'_>) -> Result<bool> {
        if !self.kept.is_known_at(self.tree.indexes().word()) {
            self.check_kept(writer)?;
        }
        Ok(!self.kept.declared().is_empty())
    }

    /// Calls `put` to write a row of a table without indexes. `put` returns whether there was a row before.
    pub(super) fn store_plain(
        &self,
        writer: &mut Writer<'_>,
        put: impl FnOnce(&mut Txn) -> Result<bool>,
    ) -> Result<()> {
        let has_indexes = self.has_indexes(writer)?;
        assert!(!has_indexes, "an open table keeps the same indexes to its end");
        let was_there = put(writer.txn)?;
        if !self.kept.is_known_at(self.tree.indexes().word()) {
            self.check_written(writer)?;
        }
        self.note_put(was_there, writer.inserted);
        Ok(())
    }

    /// Calls `remove`, which returns whether it has removed a row. If the table has or may have indexes, returns false
    /// without the call.
    pub(super) fn remove_plain(
        &self,
        writer: &mut Writer<'_>,
        remove: impl FnOnce(&mut Txn) -> Result<bool>,
    ) -> Result<bool> {
        let (indexes, plain_at) = (self.tree.indexes(), self.kept.plain_at());
        if indexes.word() != plain_at {
            return Ok(false);
        }
        pause::point("db: about to write a row");
        let is_removed = remove(writer.txn)?;
        if is_removed && indexes.word() != plain_at {
            self.check_written(writer)?;
        }
        Ok(is_removed)
    }

    #[inline]
    fn store_row(
        &self,
        txn: &mut Txn,
        Write { key, change, returns_old }: Write<'_>,
        old: &mut Vec<u8>,
    ) -> Result<bool> {
        pause::point("db: about to write a row");
        Ok(match change {
            Change::Put(value) if returns_old => self.tree.put_over(txn, key, value, old)?,
            Change::Put(value) => self.tree.put_only(txn, key, value, old)?,
            Change::Insert(value) => self.tree.insert_new(txn, key, value).map(|()| false)?,
            Change::Remove if returns_old => self.tree.remove_into(txn, key, old)?,
            Change::Remove => self.tree.remove_only(txn, key, old)?,
        })
    }

    /// Writes a row of a table that has indexes, or may have some.
    #[inline(never)]
    fn store_kept(&self, writer: &mut Writer<'_>, write: Write<'_>, old: &mut Vec<u8>) -> Result<bool> {
        if !self.kept.is_known_at(self.tree.indexes().word()) {
            self.check_kept(writer)?;
        }
        let savepoint = writer.txn.savepoint();
        let was_partial = writer.txn.set_partial(true);
        let stored = self.store_with_entries(writer, write, old);
        writer.txn.set_partial(was_partial);
        if stored.as_ref().is_err_and(keeps_transaction) {
            writer.txn.rollback_to(&savepoint, |_| false)?;
        }
        stored
    }

    fn store_with_entries(&self, writer: &mut Writer<'_>, write: Write<'_>, old: &mut Vec<u8>) -> Result<bool> {
        let was_there = self.store_row(writer.txn, write.returning_old(), old)?;
        if !self.kept.is_known_at(self.tree.indexes().word()) {
            self.check_written(writer)?;
        }
        let [before, after] = &mut writer.indexes.entries;
        for index in self.kept.declared() {
            before.clear();
            after.clear();
            if was_there {
                self.entries(index, write.key, old, before)?;
            }
            if let Some(value) = write.new_value() {
                self.entries(index, write.key, value, after)?;
            }
            for entry in before.iter().filter(|entry| !after.has(entry)) {
                remove_entry(writer.txn, index, entry, write.key)?;
            }
            for entry in after.iter().filter(|entry| !before.has(entry)) {
                insert_entry(writer.txn, index, entry, write.key)?;
            }
        }
        Ok(was_there)
    }

    /// Replaces `out` by the entries of a row in an index.
    fn entries(&self, index: &Declared<'_>, key: &[u8], value: &[u8], out: &mut Entries) -> Result<()> {
        index.def.entries(key, value, out).map_err(|part| undecodable(self.tree.table(), key, part))
    }

    /// Checks before a write that this open table maintains all indexes of the stored one.
    fn check_kept(&self, writer: &mut Writer<'_>) -> Result<()> {
        let is_it = |tree: &Tree| tree.table() == self.tree.table();
        if self.tree.is_retired() || writer.dropped.iter().any(is_it) {
            // If another transaction has dropped the table, the write of the row returns that error. If this one has,
            // the row disappears with the table, or by a rollback to before the drop.
            return Ok(());
        }
        writer.engine.catalogue.check_kept(writer.txn, &writer.indexes.changed, &self.tree, &self.kept.ids())?;
        self.kept.set_known(self.tree.indexes().word());
        Ok(())
    }

    /// Checks the same after the row was written, while the transaction holds its intent lock of the table. Its error
    /// ends the transaction.
    #[cold]
    fn check_written(&self, writer: &mut Writer<'_>) -> Result<()> {
        self.check_kept(writer).map_err(|error| match error {
            Error::IndexUndeclared { .. } => Error::IndexesChanged { table: self.tree.table().into() },
            other => other,
        })
    }

    /// Builds the indexes that the transaction has just created. It has locked the table against writes. Its error ends
    /// the transaction.
    pub(super) fn build_new(&self) -> Result<()> {
        let new: Vec<_> = self.kept.declared().iter().filter(|index| index.is_new).collect();
        let (mut left, mut is_over, mut entries) = (Span::all(), new.is_empty(), Entries::default());
        while !is_over {
            is_over = self.tx.with(|_, live| {
                let was_partial = live.txn.set_partial(true);
                // The newest rows, at every level. A row that the snapshot does not see as it is now is a conflict.
                let mut cursor = left.cursor(&self.tree, &mut live.txn, Some(RowLock::share()))?;
                let (mut rows, mut bytes) = (Vec::new(), 0);
                let is_over = loop {
                    if rows.len() == MOST || bytes >= MOST_BYTES {
                        break false;
                    }
                    let Some((key, value)) = cursor.next(&mut live.txn)? else { break true };
                    let mut of_row = Vec::with_capacity(new.len());
                    for index in &new {
                        self.entries(index, key, value, &mut entries)?;
                        of_row.push(std::mem::take(&mut entries));
                    }
                    bytes += key.len() + value.len();
                    rows.push((key.to_vec(), of_row));
                };
                for (key, of_row) in &rows {
                    for (index, entries) in new.iter().zip(of_row) {
                        entries.iter().try_for_each(|entry| insert_entry(&mut live.txn, index, entry, key))?;
                    }
                }
                if let Some((last, _)) = rows.pop() {
                    left.lower = Bound::Excluded(last);
                }
                live.txn.set_partial(was_partial);
                Ok(is_over)
            })?;
        }
        Ok(())
    }
}

fn remove_entry(txn: &mut Txn, index: &Declared<'_>, entry: &[u8], primary: &[u8]) -> Result<()> {
    let mut value = Vec::new();
    let was_there = index.tree.remove_into(txn, entry, &mut value)?;
    let is_sound = was_there && (!index.def.is_unique() || value == primary);
    if is_sound { Ok(()) } else { Err(mismatch(index, entry)) }
}

pub(super) fn insert_entry(txn: &mut Txn, index: &Declared<'_>, entry: &[u8], primary: &[u8]) -> Result<()> {
    if !index.def.is_unique() {
        let was_there = index.tree.put_only(txn, entry, &[], &mut Vec::new())?;
        return if was_there { Err(mismatch(index, entry)) } else { Ok(()) };
    }
    index.tree.insert_new(txn, entry, primary).map_err(|error| match error {
        foreshore_base::Error::KeyExists { table: index, key } => Error::IndexKeyExists { index, key },
        other => other.into(),
    })
}

fn mismatch(index: &Declared<'_>, entry: &[u8]) -> Error {
    Error::IndexMismatch { index: index.tree.table().into(), entry: entry.into() }
}
