//! The begin of a transaction: the lease that it has for its time, and the way of that lease back.

use crate::last_row::LastRow;
use crate::manager::{Lease, TxnManager};
use crate::txn::{Txn, TxnOptions};
use crate::undo::Undo;
use foreshore_base::{Csn, Result};
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::sync::Arc;

impl TxnManager {
    /// Begins a transaction. Where all sessions are in use it waits in line for one, as long as
    /// [`session_timeout`](TxnOptions::session_timeout) says.
    ///
    /// # Errors
    /// `TooManyTransactions` when all sessions are in use; `Poisoned`.
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Result<Txn> {
        self.begin_with(options, false)
    }

    /// Begins a transaction of the engine's own. It takes no session away from the others, and does not wait for one.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_own(self: &Arc<Self>, options: TxnOptions) -> Result<Txn> {
        self.begin_with(options, true)
    }

    fn begin_with(self: &Arc<Self>, options: TxnOptions, is_own: bool) -> Result<Txn> {
        let leases = self.leases(is_own);
        // Behind those that wait for one.
        let idle = if is_own || !self.line.is_any() { leases.take() } else { None };
        // After it was taken: the lease of a rollback that failed comes back when the log has stopped, and is not used again.
        if let Some(error) = self.log.poisoned() {
            idle.into_iter().for_each(|lease| leases.give_back(lease));
            return Err(error);
        }
        let mut lease = match idle {
            Some(lease) => lease,
            None => self.new_lease(&options, is_own)?,
        };
        lease.owner.begin_attempt(options.label, options.attempt);
        let mut txn = Txn::new(self.clone(), lease, options);
        txn.limit_log_waits();
        txn.take_first_snapshot();
        Ok(txn)
    }

    fn new_lease(&self, options: &TxnOptions, is_own: bool) -> Result<Box<Lease>> {
        let is_first = is_own || !self.line.is_any();
        match if is_first { self.free_lease(is_own)? } else { None } {
            Some(lease) => Ok(lease),
            None if is_own => Err(self.no_session()),
            None => self.lease_in_line(options),
        }
    }

    /// A lease that is idle or new; `None` if running transactions have all.
    pub(crate) fn free_lease(&self, is_own: bool) -> Result<Option<Box<Lease>>> {
        let leases = self.leases(is_own);
        let idle = match leases.take_elsewhere() {
            None if leases.may_make_one() => {
                let failed = |_: &_| {
                    leases.not_made();
                    // ORDERING: store, fence, look: a waiter announces itself, fences and looks for a lease.
                    fence(Ordering::SeqCst);
                    self.tell_line();
                };
                return self.make_lease(is_own).inspect_err(failed).map(Some);
            }
            None => self.returned_lease(leases)?,
            found => found,
        };
        // As in `begin_with`: the one that is taken here may be that of a failed rollback, and one that is missing may be lost.
        if let Some(error) = self.log.poisoned() {
            idle.into_iter().for_each(|lease| leases.give_back(lease));
            return Err(error);
        }
        Ok(idle)
    }

    fn make_lease(&self, is_own: bool) -> Result<Box<Lease>> {
        let owner = self.locks.lease("")?;
        let session = self.log.session()?;
        let undo = Undo::new(self.undo.clone());
        undo.set_owner(owner.index());
        let (view, home) = (self.views.newest(), self.leases(is_own).home());
        let (last_row, buffer) = (LastRow::default(), Vec::new());
        Ok(Box::new(Lease { session, owner, undo, view, is_own, last_row, buffer, home }))
    }

    /// Takes the lease of a transaction that has ended with commit number `csn`; zero if it was taken back.
    pub(crate) fn give_back(&self, mut lease: Box<Lease>, csn: Csn) {
        let entries = lease.undo.entries();
        assert!(
            csn > Csn::ZERO || entries == 0,
            "a transaction ends without a commit and keeps {entries} undo entries"
        );
        lease.undo.end(csn);
        lease.session.end_undo_log();
        lease.session.release();
        lease.session.set_frees(false);
        lease.undo.put_on_shelf();
        self.leases(lease.is_own).give_back(lease);
        // Passes a full fence, for both.
        self.undo.tell();
        self.tell_line();
    }
}
