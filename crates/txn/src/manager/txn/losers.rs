//! Losers of a restart that are undone beside new transactions.
//!
//! Analysis and redo are over, and the losers are transactions of the previous run that still hold their rows: the
//! headers name their xids ([`EarlierXids`]). One transaction of this run stands for all of them until they have ended:
//!
//! - It locks the tables that they have changed, so that no transaction drops one.
//! - Writers and readers that meet a row of a loser wait for it, as for any holder of a row. It waits for no lock.
//! - Its session logs the compensations. The log that they take is charged to it from the start, as in the last run.
//! - Checkpoints list each loser that has not ended, with the group where this restart began to read. So the log is
//!   kept from there, and the next restart finds the losers that are left.
//!
//! A loser of which nothing is left is ended in the log, and checkpoints list it no more. Its rows are free when all
//! losers are undone ([`crate::visibility`]). Then the waiters are woken.
//!
//! The undo may be stuck before a change that cannot be undone now: no page is free, or one is damaged. It tries again
//! from time to time. Until it gets on, waiters are refused, as for a parked rollback ([`crate::parked`]): the cause is
//! set, and then the owner is hidden. It is shown again before the cause is cleared.

use super::take_over::RESTART;
use super::{Txn, TxnOptions};
use crate::manager::TxnManager;
use crate::visibility::EarlierXids;
use crate::xids::HelpUndo;
use foreshore_base::{Error, GroupNo, Result, TableId, Xid};
use foreshore_lock::TableMode;
use foreshore_wal::Session;
use std::sync::Arc;

/// What the losers of a restart hold.
#[derive(Clone, Debug)]
pub struct LosersHold {
    /// The xids of the previous run that may be live, the losers among them.
    pub xids: EarlierXids,
    /// The losers.
    pub losers: Vec<Xid>,
    /// A group such that no record of a loser lies in an earlier one.
    pub first_group: GroupNo,
    /// The tables that they have changed.
    pub tables: Vec<TableId>,
    /// Bytes of log that their compensations take.
    pub undo_log: u64,
}

/// The transaction that stands for the losers. Dropped before the end, it leaves them live: checkpoints list them, and
/// the next restart undoes them. It is dropped only when no transaction runs any more.
#[derive(Debug)]
pub struct Losers {
    txn: Option<Txn>,
}

impl TxnManager {
    /// Holds what the losers of a restart hold. Called before any other transaction begins.
    ///
    /// # Errors
    /// `TooManyTransactions`; `Poisoned`.
    pub fn hold_losers(self: &Arc<Self>, hold: LosersHold) -> Result<Losers> {
        let mut txn = self.begin_system(TxnOptions { label: RESTART, ..TxnOptions::default() })?;
        for &table in &hold.tables {
            assert!(txn.try_lock_table(table, TableMode::IntentExclusive), "no other transaction has begun");
        }
        let lease = txn.lease_mut();
        lease.session.charge_undo_log(hold.undo_log);
        lease.owner.set_xid(self.xids.losers().shown(Xid::ZERO));
        // Any thread may undo.
        lease.owner.set_thread(None);
        self.xids.active().hold_losers(lease.owner.index(), hold.first_group, hold.losers);
        self.visibility.window().hold_earlier(hold.xids);
        Ok(Losers { txn: Some(txn) })
    }

    /// Sets what a waiter for a loser does first. Called once, before any other transaction begins.
    ///
    /// # Panics
    /// The second time.
    pub fn help_losers(&self, help: HelpUndo) {
        assert!(self.xids.losers().set_help(help), "the help of losers is wired once");
    }
}

impl Losers {
    fn txn(&mut self) -> &mut Txn {
        self.txn.as_mut().expect("losers are left")
    }

    /// Returns the session that logs the compensations.
    pub fn session(&mut self) -> &mut Session {
        self.txn().session()
    }

    /// Returns the first xid of this run.
    pub fn first_xid(&mut self) -> Xid {
        self.txn().manager.visibility.window().first()
    }

    /// Ends a loser in the log: nothing of it is left, and its END record was appended.
    pub fn end(&mut self, loser: Xid) {
        self.txn().manager.xids.active().end_loser(loser);
    }

    /// Refuses waiters from here on: the next change cannot be undone now, because of `cause`.
    pub fn refuse(&mut self, cause: Error) {
        let (manager, lease) = self.txn().manager_and_lease();
        manager.xids.losers().refuse(Error::RollbackParked { label: RESTART, cause: Arc::new(cause) });
        manager.locks.hide(lease.owner.index());
    }

    /// Lets waiters wait again: the undo gets on.
    pub fn wait_again(&mut self) {
        let (manager, lease) = self.txn().manager_and_lease();
        lease.owner.set_xid(manager.xids.losers().shown(Xid::ZERO));
        manager.xids.losers().wait_again();
    }

    /// Ends the whole: nothing is left of any loser. All transactions of the previous run have ended.
    ///
    /// # Errors
    /// Those of [`Txn::rollback`].
    pub fn finish(&mut self) -> Result<()> {
        let txn = self.txn.take().expect("losers are left");
        txn.manager.visibility.window().end_earlier();
        // Its locks and its log are returned, and the waiters are woken.
        txn.rollback().map(drop)
    }
}
