//! A running transaction of the layer `txn`, with its buffers and its tables.

use crate::idle::IdleCursor;
use crate::index_def::Entries;
use crate::index_state::IndexState;
use crate::popped::Popped;
use crate::tables::TableInfo;
use crate::watches::TableSet;
use foreshore_base::{Lsn, TableId, Xid};
use foreshore_btree::{Batch, Tree};
use foreshore_txn::Txn;
use std::{mem, sync::Arc};

/// Bytes of each buffer that are kept for the next transaction.
const KEPT_BYTES: usize = 64 << 10;

/// A running transaction.
pub(crate) struct Live {
    pub(crate) txn: Txn,
    pub(crate) scratch: Box<Scratch>,
}

/// Buffers of a transaction, and its tables. The next transaction of the session uses the memory again.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Encoded key of the call.
    pub(crate) key: Vec<u8>,
    /// Encoded value of the call.
    pub(crate) value: Vec<u8>,
    /// Value found by the call.
    pub(crate) found: Vec<u8>,
    /// Keys of a call with many, and what is found of them.
    pub(crate) batch: Batch,
    /// The cursor of its iterations.
    pub(crate) cursor: Arc<IdleCursor>,
    /// The last rows that were taken from the ends of a table.
    pub(crate) popped: Popped,
    /// Tables that this transaction created or gave a name, in order, with those dropped or renamed since. They are
    /// published when it commits.
    pub(crate) created: Vec<TableInfo>,
    /// Tables that this transaction dropped, in order. Their pages become free after it commits.
    pub(crate) dropped: Vec<Tree>,
    /// Tables that this transaction renamed, in order, each with the number of the naming that it ended.
    pub(crate) renamed: Vec<(TableId, Tree)>,
    /// Tables that this transaction has opened.
    pub(crate) opened: TableSet,
    /// Tables whose watches its commit signals: those into which it has inserted.
    pub(crate) inserted: TableSet,
    /// What it keeps for indexes.
    pub(crate) indexes: IndexScratch,
}

/// Buffers of a transaction for indexes, and the tables whose indexes it has changed.
#[derive(Default)]
pub(crate) struct IndexScratch {
    /// The catalogue key of an index.
    pub(crate) name: String,
    /// Entries of the old and of the new row of a write.
    pub(crate) entries: [Entries; 2],
    /// The tables whose indexes this transaction has created or dropped.
    pub(crate) changed: Vec<Arc<IndexState>>,
}

impl Scratch {
    /// Frees the memory of a transaction with large keys or values, of which some may have been refused for that.
    fn shrink(&mut self) {
        self.batch.shrink_to(KEPT_BYTES);
        self.popped.clear();
        self.indexes.changed.clear();
        self.indexes.entries.iter_mut().for_each(|entries| entries.shrink_to(KEPT_BYTES));
        for buffer in [&mut self.key, &mut self.value, &mut self.found] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES);
        }
    }
}

/// What the commit of a transaction does to tables.
pub(crate) struct TableChanges {
    /// Tables that get their names.
    pub(crate) created: Vec<TableInfo>,
    /// Tables that end.
    pub(crate) dropped: Vec<Tree>,
    /// Trees of tables that lose their names.
    pub(crate) renamed: Vec<Tree>,
}

impl TableChanges {
    /// Retires the trees of tables that end or lose their names, before transaction `by` releases its locks. Its commit
    /// can no longer fail.
    pub(crate) fn retire(&self, by: impl FnOnce() -> Xid) {
        if self.dropped.is_empty() && self.renamed.is_empty() {
            return;
        }
        let by = by();
        self.dropped.iter().chain(&self.renamed).for_each(|tree| tree.retire(by));
    }
}

impl Live {
    pub(crate) fn new(mut txn: Txn) -> Self {
        let mut scratch = txn.take_kept::<Scratch>().unwrap_or_default();
        assert!(
            scratch.created.is_empty() && scratch.dropped.is_empty() && scratch.renamed.is_empty(),
            "a transaction begins with tables of another one"
        );
        (scratch.opened, scratch.inserted) = (TableSet::EMPTY, TableSet::EMPTY);
        Self { txn, scratch }
    }

    /// Returns the transaction and its buffers, borrowed apart.
    pub(crate) fn parts(&mut self) -> (&mut Txn, &mut Scratch) {
        (&mut self.txn, &mut self.scratch)
    }

    /// Returns the transaction to end it, with what its commit does to tables.
    pub(crate) fn into_parts(self) -> (Txn, TableChanges) {
        let Self { mut txn, mut scratch } = self;
        let (mut created, dropped) = (mem::take(&mut scratch.created), mem::take(&mut scratch.dropped));
        let is_over = |info: &TableInfo| {
            let is_dropped = dropped.iter().any(|tree| tree.table() == info.tree.table());
            is_dropped || scratch.renamed.iter().any(|&(naming, _)| naming == info.naming)
        };
        created.retain(|info| !is_over(info));
        let renamed = scratch.renamed.drain(..).map(|(_, tree)| tree).collect();
        scratch.shrink();
        txn.keep(scratch);
        (txn, TableChanges { created, dropped, renamed })
    }

    /// Returns the transaction to roll it back.
    pub(crate) fn into_txn(self) -> Txn {
        self.into_parts().0
    }

    /// Returns the tables whose watches the commit signals. A transaction that has only locked rows frees them for
    /// consumers that have skipped them.
    pub(crate) fn signals_of_commit(&self) -> TableSet {
        let has_only_locked = self.txn.xid().is_some() && self.txn.last_lsn() == Lsn::ZERO;
        if has_only_locked { self.scratch.opened } else { self.scratch.inserted }
    }

    /// Returns the tables whose watches a rollback signals: it may have freed rows in them.
    pub(crate) fn signals_of_rollback(&self) -> TableSet {
        if self.txn.xid().is_some() { self.scratch.opened } else { TableSet::EMPTY }
    }

    /// Whether this transaction has dropped the table, or given it another name.
    pub(crate) fn has_ended(&self, info: &TableInfo) -> bool {
        let is_renamed = self.scratch.renamed.iter().any(|&(naming, _)| naming == info.naming);
        is_renamed || self.has_dropped(info.tree.table())
    }

    /// Whether this transaction has dropped the table.
    pub(crate) fn has_dropped(&self, table: TableId) -> bool {
        self.scratch.dropped.iter().any(|tree| tree.table() == table)
    }

    /// Returns the table `name`, if this transaction has created it or given it that name, and not ended that.
    pub(crate) fn created(&self, name: &str) -> Option<&TableInfo> {
        self.scratch.created.iter().find(|info| *info.name == *name && !self.has_ended(info))
    }

    /// Returns the table with that id, if this transaction has created it or given it a name.
    pub(crate) fn own_table(&self, id: TableId) -> Option<&TableInfo> {
        self.scratch.created.iter().rfind(|info| info.tree.table() == id)
    }
}
