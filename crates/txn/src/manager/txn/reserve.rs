//! What a transaction takes before it changes something: log space, undo space, and its xid.

use super::Txn;
use crate::format::MARK_LEN;
use crate::manager::TxnManager;
use crate::resource::compensation_cost;
use crate::sessions::Lease;
use crate::undo::{MAX_STRUCTURE, Request};
use foreshore_base::{Error, GroupNo, Result, Xid};
use foreshore_wal::{Session, SpaceWait};

impl Txn {
    /// Runs `work` of this transaction that frees space: it may use log space that is kept back on a full disk.
    pub fn freeing<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.session().set_frees(true);
        let done = work(self);
        self.session().set_frees(before);
        done
    }

    /// Runs `work`, and again where the disk has refused it space and log is given up on request, for a bounded time.
    /// Without latches. What was reserved before is not reserved any more.
    ///
    /// # Errors
    /// Those of `work`; `Poisoned`.
    pub fn with_space<T>(&mut self, mut work: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let (mut wait, mut freed) = (None, true);
        loop {
            let done = work(self);
            if !matches!(done, Err(Error::DiskFull { .. })) || !freed {
                return done.map_err(|error| self.manager.xids.name_log_holder(error));
            }
            self.give_back();
            let most = self.time_left();
            freed = self.session().wait_for_space(wait.get_or_insert_with(|| SpaceWait::within(most)))?;
        }
    }

    /// Makes sure that records of `log_bytes` together (see [`Session::cost`]) and one undo entry, of `undo_bytes` in
    /// its body and the rest of the value before, can be entered. Without latches; waits by this transaction keep it.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`, `DiskFull`, `LogSpace`, `Poisoned`. Nothing has changed then.
    pub fn reserve(&mut self, log_bytes: usize, undo_bytes: usize) -> Result<()> {
        self.reserve_undo(undo_bytes)?;
        // The commit record goes with it, so that a commit after changes has it already as a rule.
        let bytes = log_bytes + Session::cost(MARK_LEN);
        self.reserve_log(bytes, compensation_cost(undo_bytes) + MAX_STRUCTURE)?;
        self.run_mut().reserved = (bytes, Some(undo_bytes));
        Ok(())
    }

    /// Ends an operation: log space that it reserved and did not use goes back. A transaction that is idle must not sit
    /// on it, because the space is that of the log's buffer and others may wait for it. So does memory for undo where
    /// it is short.
    pub fn release(&mut self) {
        self.run_mut().waits.end_operation();
        self.give_back();
    }

    /// Gives back what is reserved and was not used.
    fn give_back(&mut self) {
        self.run_mut().reserved = (0, None);
        let may_spill = self.may_spill();
        let has_xid = self.run().xid.is_some();
        let lease = self.lease_mut();
        lease.session.release();
        lease.undo.release(may_spill);
        if has_xid {
            let lease = self.lease();
            self.manager.xids.active().note_versions(lease.owner.index(), lease.undo.entries());
        }
    }

    /// Returns whether it changes nothing of its undo before it rolls back all, so that full chunks may be moved.
    pub(super) fn may_spill(&self) -> bool {
        self.manager.undo.arena().can_spill() && !self.run().savepoints.is_any_in_use()
    }

    /// Makes sure that one entry of `bytes` fits. Where memory is spent, the transaction waits for some (see
    /// [`crate::undo`]), up to its deadline.
    fn reserve_undo(&mut self, bytes: usize) -> Result<()> {
        self.reserve_undo_or_wait(bytes, true)
    }

    /// Does the same as [`reserve_undo`](Self::reserve_undo). `waits` says whether to wait for other transactions.
    pub(super) fn reserve_undo_or_wait(&mut self, bytes: usize, waits: bool) -> Result<()> {
        let (manager, Lease { undo, view, .. }) = self.manager_and_lease();
        if manager.undo.try_reserve(undo, view, bytes).is_ok() {
            return Ok(());
        }
        let request = Request { bytes, may_spill: self.may_spill(), waits, most: self.time_left() };
        let (manager, Lease { session, undo, view, .. }) = self.manager_and_lease();
        session.release();
        // WAIT: park - see there.
        manager.undo.wait(request, undo, view, manager)
    }

    pub(super) fn reserve_again(&mut self) -> Result<()> {
        let (log_bytes, undo_bytes) = self.run().reserved;
        undo_bytes.map_or(Ok(()), |bytes| self.reserve_undo(bytes))?;
        let undo_log = undo_bytes.map_or(0, |bytes| compensation_cost(bytes) + MAX_STRUCTURE);
        self.reserve_log(log_bytes, undo_log)
    }

    fn reserve_log(&mut self, log_bytes: usize, undo_log: u64) -> Result<()> {
        let session = self.session();
        // A wait for space gives the reservation of the buffer back, so that comes last.
        let reserved = session.reserve_undo_log(undo_log).and_then(|()| session.reserve(log_bytes));
        reserved.map_err(|error| self.manager.xids.name_log_holder(error))
    }

    /// Returns the transaction's xid; draws one the first time. Without latches: it may wait for the log.
    ///
    /// # Errors
    /// `TooManyTransactions` when more run than the status window has words for; `DiskFull`; `LogSpace`; `Poisoned`.
    pub fn ensure_xid(&mut self) -> Result<Xid> {
        if let Some(xid) = self.run().xid {
            return Ok(xid);
        }
        let xid = self.draw_xid(None)?;
        self.keep_ahead(xid)?;
        self.reserve_again()?;
        Ok(xid)
    }

    /// Returns the transaction's xid, which is drawn if that needs no wait; otherwise `None`. Latches may be held, and
    /// what is reserved stays. When they are free again the caller calls [`after_xid`](Self::after_xid).
    ///
    /// For operations that may find that they change and lock nothing: they need no xid then.
    pub fn try_xid(&mut self) -> Option<Xid> {
        if self.run().xid.is_none() {
            self.enter_xid(None);
            self.run_mut().is_new_xid = self.run().xid.is_some();
        }
        self.run().xid
    }

    /// Completes the draw of an xid by [`try_xid`](Self::try_xid). Without latches. Reservations end.
    ///
    /// # Errors
    /// As [`ensure_xid`](Self::ensure_xid).
    pub fn after_xid(&mut self) -> Result<()> {
        let Some(xid) = self.run().xid else { return Ok(()) };
        if std::mem::take(&mut self.run_mut().is_new_xid) { self.keep_ahead(xid) } else { Ok(()) }
    }

    fn keep_ahead(&mut self, xid: Xid) -> Result<()> {
        let (TxnManager { xids, visibility, sessions, .. }, lease) = self.manager_and_lease();
        xids.keep_ahead(visibility, xid, &mut lease.session, || sessions.made())
    }

    /// Draws the xid, and shows it to checkpoints. `logged`: the xid that the log has a transaction of the run before
    /// under, and the group of its first record.
    pub(super) fn draw_xid(&mut self, logged: Option<(Xid, GroupNo)>) -> Result<Xid> {
        loop {
            if let Some(xid) = self.enter_xid(logged) {
                return Ok(xid);
            }
            let (TxnManager { xids, visibility, .. }, lease) = self.manager_and_lease();
            xids.raise_limit(visibility, &mut lease.session, logged.is_some())?;
        }
    }

    /// Draws the xid if one is left.
    fn enter_xid(&mut self, logged: Option<(Xid, GroupNo)>) -> Option<Xid> {
        assert!(self.run().xid.is_none(), "{:?} draws a second xid", self.run().xid);
        let (TxnManager { xids, visibility, .. }, Lease { owner, .. }) = self.manager_and_lease();
        let xid = xids.draw(visibility, owner.index(), logged)?;
        owner.set_xid(xid);
        self.run_mut().xid = Some(xid);
        self.run().xid
    }
}
