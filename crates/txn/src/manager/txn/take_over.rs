//! Transactions that a restart takes over from the previous run: prepared ones, and those that it could not roll back
//! completely.

use super::prepared::{InDoubt, Prepared};
use super::{RowHolder, Txn, TxnOptions};
use crate::logged::LoggedChange;
use crate::manager::TxnManager;
use crate::parked::Rollback;
use crate::resource::{TakeOver, compensation_cost};
use crate::undo::{UndoPtr, Undoable};
use foreshore_base::{Error, GroupNo, Lsn, Result, TableId, Xid};
use foreshore_lock::TableMode;
use foreshore_sync::model::mutant;
use foreshore_wal::Session;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Label of a transaction that a restart could not roll back.
pub(super) const RESTART: &str = "rollback at restart";

/// A transaction that a restart could not roll back completely.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The xid in the log.
    pub xid: Xid,
    /// A group such that no record of the transaction lies in an earlier one.
    pub first_group: GroupNo,
    /// LSN of its last record, compensations included.
    pub last_lsn: Lsn,
    /// Its changes that are not compensated, in log order.
    pub changes: Vec<LoggedChange>,
    /// The reason why they could not be undone.
    pub cause: Error,
}

/// A prepared transaction that a restart has begun to restore, before it becomes a [`Prepared`].
#[derive(Debug)]
pub struct TakenOver {
    txn: Txn,
    in_doubt: InDoubt,
}

impl TxnManager {
    /// Takes over a prepared transaction from the previous run, with its shared locks of keys. Called before any other
    /// transaction begins.
    ///
    /// # Errors
    /// `TooManyTransactions` if the options allow fewer sessions than in the previous run; `Poisoned`.
    pub fn take_over(self: &Arc<Self>, in_doubt: InDoubt, label: &'static str) -> Result<TakenOver> {
        let mut txn = self.begin(TxnOptions { label, ..TxnOptions::default() })?;
        txn.run_mut().trail.prepared_as = Some(in_doubt.xid);
        if !mutant("sabotage: a restart forgets the shared locks of a prepared one") {
            self.locks.take_ranges(&mut txn.lease_mut().owner, &in_doubt.body.ranges);
        }
        Ok(TakenOver { txn, in_doubt })
    }

    /// Takes over a transaction that a restart has undone in part, and parks its rollback. Its rows get a new xid and
    /// are locked, as those of a prepared transaction are. A change on a damaged page is left to the next restart, so
    /// the transaction stays in the log.
    ///
    /// Called after everything that can be undone has been undone, and before any other transaction begins.
    ///
    /// # Errors
    /// Those of [`ResourceManager::take_over`](crate::ResourceManager::take_over) but for `Corrupted` pages, and of
    /// drawing an xid.
    pub fn park(self: &Arc<Self>, unfinished: Unfinished) -> Result<()> {
        let Unfinished { xid: was, first_group, last_lsn, changes, cause } = unfinished;
        let mut txn = self.begin(TxnOptions { label: RESTART, ..TxnOptions::default() })?;
        let xid = txn.draw_xid(Some((was, first_group)))?;
        // From here on dropping it does not roll it back. It goes to the list of parked rollbacks, or stays for the
        // next restart.
        txn.run_mut().trail.prepared_as = Some(was);
        self.visibility.prepare_table(xid)?;
        txn.run_mut().trail.last_lsn = last_lsn;
        let mut retaken = Retaken { txn: &mut txn, was, may_lose: true, lost: None };
        self.resources().take_over(&mut retaken, &changes)?;
        let lost = retaken.lost;
        let tables: BTreeSet<TableId> = changes.iter().map(|change| change.table).collect();
        for table in tables {
            // This cannot conflict: a prepared transaction that excludes it cannot have run beside it. A table that it
            // excludes others from is locked already.
            txn.try_lock_table(table, TableMode::IntentExclusive);
        }
        txn.release();
        let lease = txn.lease.take().expect("a running transaction has its lease");
        let rollback = Rollback {
            lease,
            xid,
            logged_as: was,
            last_lsn,
            label: RESTART,
            is_prepared: false,
            lost,
            copy_cost: None,
        };
        let _ = self.park_rollback(rollback, cause);
        self.parked.signal();
        Ok(())
    }
}

impl TakenOver {
    /// Returns what the restart found of the transaction.
    #[must_use]
    pub const fn in_doubt(&self) -> &InDoubt {
        &self.in_doubt
    }

    /// Locks its rows again, under a new xid, and adds its undo entries. `changes` are its changes that were not
    /// compensated, in log order.
    ///
    /// # Errors
    /// Those of [`ResourceManager::take_over`](crate::ResourceManager::take_over), and of drawing an xid.
    pub fn hold_rows(&mut self, changes: Vec<LoggedChange>) -> Result<()> {
        let Self { txn, in_doubt } = self;
        let (was, first_group) = (in_doubt.xid, in_doubt.first_group);
        let xid = txn.draw_xid(Some((was, first_group)))?;
        txn.manager.visibility.prepare_table(xid)?;
        txn.run_mut().trail.last_lsn = in_doubt.last_lsn;
        let mut all = std::mem::take(&mut in_doubt.body.rows);
        if mutant("sabotage: a restart forgets the locked rows of a prepared one") {
            all.clear();
        }
        all.extend(changes);
        let manager = txn.manager.clone();
        manager.resources().take_over(&mut Retaken { txn, was, may_lose: false, lost: None }, &all)?;
        txn.release();
        Ok(())
    }

    /// Locks its tables, after which the transaction is restored.
    ///
    /// # Errors
    /// A description of the conflict, if its locks exclude those of another transaction.
    pub fn hold_tables(mut self) -> Result<Prepared, &'static str> {
        let manager = self.txn.manager.clone();
        let owner = &mut self.txn.lease_mut().owner;
        let is_lost = mutant("sabotage: a restart forgets the table locks of a prepared one");
        for &(table, mode) in self.in_doubt.body.tables.iter().filter(|_| !is_lost) {
            manager.locks.try_lock_table(owner, table, mode).ok_or("two prepared transactions exclude each other")?;
        }
        owner.set_thread(None);
        Ok(Prepared { txn: self.txn })
    }
}

/// A transaction whose rows are being locked again.
struct Retaken<'a> {
    txn: &'a mut Txn,
    was: Xid,
    /// Whether changes on damaged pages may be left out.
    may_lose: bool,
    /// The error of the first change that was left out.
    lost: Option<Error>,
}

impl TakeOver for Retaken<'_> {
    fn is_loser(&self) -> bool {
        self.may_lose
    }

    fn leave_out(&mut self, cause: Error) -> Result<()> {
        if !self.may_lose || !matches!(cause, Error::Corrupted { .. }) {
            return Err(cause);
        }
        self.lost.get_or_insert(cause);
        Ok(())
    }

    fn exclude_others(&mut self, table: TableId) {
        self.txn.run_mut().trail.syncs_before_release = true;
        // Those of a prepared transaction are locked later. No other one has changed the table since.
        if self.may_lose {
            self.txn.try_lock_table(table, TableMode::Exclusive);
        }
    }

    fn xid(&self) -> Xid {
        self.txn.run().xid.expect("drawn before")
    }

    fn was(&self) -> Xid {
        self.was
    }

    fn may_change_row_of(&mut self, xid: Xid) -> bool {
        !matches!(self.txn.row_holder(xid), RowHolder::Other(_) | RowHolder::Unknown)
    }

    fn session(&mut self) -> &mut Session {
        self.txn.session()
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.txn.reserve_undo_or_wait(bytes, false)
    }

    fn enter(&mut self, change: &Undoable<'_>, lsn: Lsn) -> UndoPtr {
        let pointer = self.txn.push_undo(change);
        if lsn > Lsn::ZERO {
            let lease = self.txn.lease_mut();
            let body = lease.undo.stamp_newest(lsn);
            // The previous run had reserved this log, and its prepared segments still exist.
            lease.session.charge_undo_log(compensation_cost(body));
        }
        pointer
    }
}
