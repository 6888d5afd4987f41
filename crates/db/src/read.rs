//! Transactions that only read: by one snapshot, without locks.

use crate::{Db, Range, ReadOptions, Table, TableDef, Transaction};
use foreshore_base::Result;
use foreshore_base::key::{Key, Value};
use foreshore_wal::CommitTicket;
use std::{borrow::Borrow, ops::RangeBounds};

impl Db {
    /// Begins a transaction that reads what is durable now, and the same for as long as it runs. It waits for no writer, and
    /// no writer for it, nor does a transaction that drops a table which it reads.
    ///
    /// It sees every commit that was acknowledged as durable before. Never fails here, see [`begin`](Self::begin).
    #[must_use]
    pub fn read(&self) -> ReadTransaction {
        self.read_with(ReadOptions::new())
    }

    /// Begins a transaction that only reads.
    #[must_use]
    pub fn read_with(&self, options: ReadOptions) -> ReadTransaction {
        ReadTransaction { inner: self.begin_with(options.below()) }
    }
}

/// A transaction that only reads, all of it by one snapshot: it comes after the writers whose commits it sees and before all
/// others. Begun by [`Db::read`].
///
/// Old versions of rows are kept for it, and the pages of tables that are dropped meanwhile. If it becomes too old, or
/// old versions take too much room, it is cancelled, and its operations answer
/// [`SnapshotTooOld`](crate::Error::SnapshotTooOld).
#[derive(Debug)]
pub struct ReadTransaction {
    inner: Transaction,
}

impl ReadTransaction {
    /// Opens a table, as it was when the snapshot was taken: one that was dropped since is there with its rows, also
    /// where another has its name by now. One that was created since, under a name that was free, is empty.
    ///
    /// # Errors
    /// `NoTable`, `TableName`, `TableTypes`, `SnapshotTooOld`, and those of any operation.
    pub fn open<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<ReadTable<'_, K, V>> {
        self.inner.open_existing(def).map(|table| ReadTable { table })
    }

    /// Ends the transaction. The ticket tells when everything that it has read is durable, which is now unless it read by
    /// [`ReadOptions::latest`], or a table whose creation is not durable.
    ///
    /// # Errors
    /// `RolledBack` if an earlier error ended the transaction.
    pub fn finish(self) -> Result<CommitTicket> {
        self.inner.commit_pipelined()
    }
}

/// A table open in a transaction that only reads. Every method fails as those of [`Table`], and with `SnapshotTooOld`.
#[derive(Debug)]
pub struct ReadTable<'tx, K, V> {
    table: Table<'tx, K, V>,
}

impl<'tx, K: Key, V: Value> ReadTable<'tx, K, V> {
    /// The value of `key`.
    ///
    /// # Errors
    /// As for every method. `KeyTooLarge`.
    pub fn get<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<V::Owned>> {
        self.table.get(key)
    }

    /// See [`Table::get_with`].
    ///
    /// # Errors
    /// As for every method. `KeyTooLarge`.
    pub fn get_with<'k, T>(&self, key: impl Borrow<K::Ref<'k>>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.table.get_with(key, read)
    }

    /// Rows with keys in `range`, in the order of the keys, or from the last one back, or from both ends.
    pub fn range<'k, Q: Borrow<K::Ref<'k>>>(&self, range: impl RangeBounds<Q>) -> Range<'tx, K, V> {
        self.table.range(range)
    }

    /// The row with the smallest key.
    ///
    /// # Errors
    /// As for every method.
    pub fn first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.table.first()
    }

    /// The row with the largest key.
    ///
    /// # Errors
    /// As for every method.
    pub fn last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.table.last()
    }

    /// All rows, in the order of the keys.
    pub fn iter(&self) -> Range<'tx, K, V> {
        self.table.iter()
    }
}
