//! The end of a table, as seen by operations that have its tree open.
//!
//! Writers and locking readers hold a lock of the table, for which a transaction that drops it waits. Snapshot readers
//! hold none. A table dropped by a commit above their snapshot still exists for them, by this protocol:
//!
//! 1. *Drop.* The dropper stores its xid in the tree before its commit record, and its commit number afterwards. A
//!    reader checks the stored value against its snapshot. A reader whose snapshot is at or above the commit finds one
//!    of the two values. The reason is that the clock of its snapshot was raised after the store.
//! 2. *Read.* Each operation registers in the slot of its snapshot ([`Txn::begin_read`]), then reads the stored value.
//!    It changes nothing in the tree, and does not even finish an open split.
//! 3. *Free.* Pages are freed when [`foreshore_txn::Visibility::passed`] has reached the commit. Then no snapshot is
//!    below it, and no operation of a cancelled reader is running.
//!
//! **Invariant:** no page of a table is freed during an operation that reads the table by a snapshot.
//!
//! If such an operation finds damage, [`Tree::judge`] checks the snapshot again first. Pages are validated by the id
//! of the table in them, so no reader mistakes a page of another table for its own.

use crate::stage::Stage;
use crate::tree::Tree;
use foreshore_base::{Csn, Error, Result, Xid};
use foreshore_lock::TableMode;
use foreshore_sync::pause;
use foreshore_txn::{ReadOperation, Snapshot, Txn};

impl Tree {
    /// Marks the table as dropped by transaction `by`, which holds it exclusively and whose commit can no longer fail.
    /// Locks of the table then fail with `TableDropped`, and so do readers whose snapshot sees the commit.
    pub fn retire(&self, by: Xid) {
        self.end().set(Stage::Dropping(by));
    }

    /// Stores the number of the commit that dropped a table which was [retired](Self::retire).
    pub fn dropped_by(&self, csn: Csn) {
        self.end().set(Stage::Dropped(csn));
    }

    /// Marks a table as never created. The transaction that created it and has rolled that back calls this.
    pub fn withdraw(&self) {
        self.end().set(Stage::Withdrawn);
    }

    /// Returns whether the table was dropped, or its creation rolled back.
    #[must_use]
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.end().stage() != Stage::InUse
    }

    /// Returns whether the commit of the transaction that retires the table is in progress.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        matches!(self.end().stage(), Stage::Dropping(_))
    }

    /// Returns the commit that dropped the table, if `snapshot` sees it; zero if no commit has to become durable for
    /// that.
    #[must_use]
    pub fn gone_at(&self, snapshot: &Snapshot) -> Option<Csn> {
        match self.end().stage() {
            Stage::InUse => None,
            Stage::Dropping(xid) => snapshot.sees(xid),
            Stage::Dropped(csn) => (csn <= snapshot.csn()).then_some(csn),
            Stage::Withdrawn => Some(Csn::ZERO),
        }
    }

    /// Locks the table, which may have been dropped since the caller opened it.
    #[inline]
    pub(crate) fn lock(&self, txn: &mut Txn, mode: TableMode) -> Result<()> {
        txn.lock_table(self.table(), mode)?;
        if self.is_retired() { Err(self.dropped_under(txn)) } else { Ok(()) }
    }

    /// Returns the error for a transaction that was granted a lock of a dropped table. The error depends on the commit
    /// that dropped it.
    #[cold]
    fn dropped_under(&self, txn: &mut Txn) -> Error {
        txn.observe_ended();
        Error::TableDropped { table: self.table().into() }
    }

    /// Begins an operation that reads the table by `snapshot`, without a lock of it.
    pub(crate) fn begin_read<'s>(&self, txn: &mut Txn, snapshot: &'s Snapshot) -> Result<ReadOperation<'s>> {
        let operation = txn.begin_read(snapshot)?;
        self.check_there(txn, snapshot)?;
        pause::point("btree: a reader by a snapshot is on its way");
        Ok(operation)
    }

    fn check_there(&self, txn: &mut Txn, snapshot: &Snapshot) -> Result<()> {
        let Some(csn) = self.gone_at(snapshot) else { return Ok(()) };
        // A cancelled snapshot may see too much.
        txn.check_snapshot(snapshot)?;
        txn.observe(csn);
        Err(Error::TableDropped { table: self.table().into() })
    }

    /// Checks an error of a snapshot read again: damage counts only if the snapshot was not cancelled and still sees
    /// the table.
    #[cold]
    pub(crate) fn judge(&self, txn: &mut Txn, snapshot: &Snapshot, error: Error) -> Error {
        if !matches!(error, Error::Corrupted { .. }) {
            return error;
        }
        let judged = txn.check_snapshot(snapshot).and_then(|()| self.check_there(txn, snapshot));
        judged.err().unwrap_or(error)
    }
}
