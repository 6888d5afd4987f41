//! The resources that a transaction takes before a change: log space, undo space, and its xid.

use super::Txn;
use crate::format::MARK_LEN;
use crate::manager::TxnManager;
use crate::resource::compensation_cost;
use crate::sessions::Lease;
use crate::undo::{MAX_STRUCTURE, Request, SeveralUndo};
use foreshore_base::{Error, GroupNo, Result, Xid};
use foreshore_wal::{Session, SpaceWait};

impl Txn {
    /// Runs `work`, which frees space. On a full disk it may use log space that is kept for such work.
    pub fn freeing<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.session().set_frees(true);
        let done = work(self);
        self.session().set_frees(before);
        done
    }

    /// Runs `work`. If the disk is full and log may be freed on request, waits for that and retries, for a bounded
    /// time. The caller holds no latch. Earlier reservations are lost.
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

    /// Ensures that records of `log_bytes` together (see [`Session::cost`]) and one undo entry can be added.
    /// `undo_bytes` counts the entry's body and the rest of the value before. The caller holds no latch. Waits by this
    /// transaction keep the reservation.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`, `DiskFull`, `LogSpace`, `Poisoned`. Nothing has changed then.
    pub fn reserve(&mut self, log_bytes: usize, undo_bytes: usize) -> Result<()> {
        self.reserve_undo(undo_bytes)?;
        // The commit record is included, so a commit after changes usually has its space already.
        let bytes = log_bytes + Session::cost(MARK_LEN);
        self.reserve_log(bytes, compensation_cost(undo_bytes) + MAX_STRUCTURE)?;
        self.run_mut().reserved = (bytes, Some(undo_bytes));
        Ok(())
    }

    /// Ensures that a record of `log_bytes` with several changes and their undo entries can be added. Returns false if
    /// that needs a wait for undo space or for the log space of compensations. The caller holds no latch, and does not
    /// wait before it enters the changes.
    ///
    /// # Errors
    /// `DiskFull`, `LogSpace`, `Poisoned`. Nothing has changed then.
    pub fn try_reserve_several(&mut self, log_bytes: usize, several: &SeveralUndo) -> Result<bool> {
        let (manager, Lease { undo, view, .. }) = self.manager_and_lease();
        if !manager.undo.try_reserve_several(undo, view, several) {
            return Ok(false);
        }
        // One record takes as much of a full disk as another. The wait for that comes first: it returns undo log.
        let session = self.session();
        let reserved = session.reserve(log_bytes + Session::cost(MARK_LEN));
        let reserved = reserved.and_then(|()| session.try_reserve_undo_log(several.undo_log()));
        reserved.map_err(|error| self.manager.xids.name_log_holder(error))
    }

    /// Ends an operation. Log space that it reserved and did not use is returned. An idle transaction must not keep it,
    /// because it belongs to the log's buffer and others may wait for it. Undo memory is also returned, if it is short.
    pub fn release(&mut self) {
        self.run_mut().waits.end_operation();
        self.give_back();
    }

    /// Returns what is reserved and was not used.
    fn give_back(&mut self) {
        let lease = self.lease_mut();
        lease.run.reserved = (0, None);
        lease.session.release();
        let has_xid = lease.run.xid.is_some();
        if !has_xid && lease.undo.is_idle() {
            return;
        }
        let may_spill = self.may_spill();
        self.lease_mut().undo.release(may_spill);
        if has_xid {
            let lease = self.lease();
            self.manager.xids.active().note_versions(lease.owner.index(), lease.undo.entries());
        }
    }

    /// Returns whether the transaction can change its undo only by rolling back everything, so that full chunks may be
    /// moved to the spill file.
    pub(super) fn may_spill(&self) -> bool {
        self.manager.undo.arena().can_spill() && !self.run().savepoints.is_any_in_use()
    }

    /// Ensures that one entry of `bytes` fits. If memory is used up, the transaction waits for some (see
    /// [`crate::undo`]), up to its deadline.
    fn reserve_undo(&mut self, bytes: usize) -> Result<()> {
        self.reserve_undo_or_wait(bytes, true)
    }

    /// Does the same as [`reserve_undo`](Self::reserve_undo). `waits` says whether it may wait for other transactions.
    pub(super) fn reserve_undo_or_wait(&mut self, bytes: usize, waits: bool) -> Result<()> {
        let (manager, Lease { undo, view, .. }) = self.manager_and_lease();
        if manager.undo.try_reserve(undo, view, bytes) {
            return Ok(());
        }
        let request = Request { bytes, may_spill: self.may_spill(), waits, max_wait: self.time_left() };
        let (manager, Lease { session, undo, view, .. }) = self.manager_and_lease();
        session.release();
        // WAIT: park - see `UndoSpace::wait`.
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
        // A wait for space returns the reservation of the buffer, so the buffer comes last.
        let reserved = session.reserve_undo_log(undo_log).and_then(|()| session.reserve(log_bytes));
        reserved.map_err(|error| self.manager.xids.name_log_holder(error))
    }

    /// Returns the transaction's xid, and draws one the first time. It may wait for the log, so the caller holds no
    /// latch.
    ///
    /// # Errors
    /// `ReadOnly`; `TooManyTransactions` when more run than the status window has words for; `DiskFull`; `LogSpace`;
    /// `Poisoned`.
    pub fn ensure_xid(&mut self) -> Result<Xid> {
        if let Some(xid) = self.run().xid {
            return Ok(xid);
        }
        let xid = self.draw_xid(None)?;
        self.keep_ahead(xid)?;
        self.reserve_again()?;
        Ok(xid)
    }

    /// Returns the transaction's xid. It is drawn now if that needs no wait; otherwise the result is `None`. The caller
    /// may hold latches, and reservations stay. After it has released the latches it calls
    /// [`after_xid`](Self::after_xid).
    ///
    /// This is for operations that may turn out to change and lock nothing, and then need no xid.
    pub fn try_xid(&mut self) -> Option<Xid> {
        if self.run().xid.is_none() {
            self.enter_xid(None);
            self.run_mut().is_new_xid = self.run().xid.is_some();
        }
        self.run().xid
    }

    /// Completes the draw of an xid by [`try_xid`](Self::try_xid). The caller holds no latch. Reservations are lost.
    ///
    /// # Errors
    /// Those of [`ensure_xid`](Self::ensure_xid).
    pub fn after_xid(&mut self) -> Result<()> {
        let Some(xid) = self.run().xid else { return Ok(()) };
        if std::mem::take(&mut self.run_mut().is_new_xid) { self.keep_ahead(xid) } else { Ok(()) }
    }

    fn keep_ahead(&mut self, xid: Xid) -> Result<()> {
        let (TxnManager { xids, visibility, sessions, .. }, lease) = self.manager_and_lease();
        xids.keep_ahead(visibility, xid, &mut lease.session, || sessions.made())
    }

    /// Draws the xid, and publishes it to checkpoints. `logged` is set for a transaction of the previous run: its xid
    /// in the log, and the group of its first record.
    pub(super) fn draw_xid(&mut self, logged: Option<(Xid, GroupNo)>) -> Result<Xid> {
        self.manager.xids.check_writable()?;
        loop {
            if let Some(xid) = self.enter_xid(logged) {
                return Ok(xid);
            }
            let (TxnManager { xids, visibility, .. }, lease) = self.manager_and_lease();
            xids.raise_limit(visibility, &mut lease.session, logged.is_some())?;
        }
    }

    /// Draws the xid, if one is left below the limit.
    fn enter_xid(&mut self, logged: Option<(Xid, GroupNo)>) -> Option<Xid> {
        assert!(self.run().xid.is_none(), "{:?} draws a second xid", self.run().xid);
        let (TxnManager { xids, visibility, .. }, Lease { owner, .. }) = self.manager_and_lease();
        let xid = xids.draw(visibility, owner.index(), logged)?;
        owner.set_xid(xid);
        self.run_mut().xid = Some(xid);
        self.run().xid
    }
}
