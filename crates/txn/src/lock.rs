//! The locks of a transaction, and its waits for those of others.

use crate::status::Status;
use crate::txn::Txn;
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_lock::{Interval, NewRange, NewShare, Owner, Patience, TableMode, Target};
use std::time::Duration;

impl Txn {
    /// Locks a table to the end of the transaction, or strengthens its lock. In a mode that reads the whole table the
    /// newest commit in it counts as observed.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`; and, after a wait, those of [`reserve`](Self::reserve), and `Poisoned` when a rollback
    /// could not be completed.
    pub fn lock_table(&mut self, table: TableId, mode: TableMode) -> Result<()> {
        if self.try_lock_table(table, mode) {
            return Ok(());
        }
        let (manager, timeout) = (self.manager.clone(), self.time_for_a_lock());
        let mut tag = Csn::ZERO;
        let granted = self.waiting(|owner| {
            tag = manager.locks.lock_table(owner, table, mode, timeout)?;
            Ok(())
        });
        // Whatever came after the grant: a lock that is held already comes without its tag.
        self.observe(tag);
        granted
    }

    /// As [`lock_table`](Self::lock_table) if that does not have to wait; otherwise `false`, and nothing has changed.
    pub fn try_lock_table(&mut self, table: TableId, mode: TableMode) -> bool {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        let Some(tag) = self.manager.locks.try_lock_table(&mut lease.owner, table, mode) else { return false };
        self.observe(tag);
        true
    }

    /// See [`LockManager::share`](foreshore_lock::LockManager::share).
    ///
    /// # Errors
    /// As [`lock_table`](Self::lock_table).
    pub fn share(&mut self, target: Target<'_>) -> Result<()> {
        if self.try_share(target) {
            return Ok(());
        }
        let (manager, timeout) = (self.manager.clone(), self.time_for_a_lock());
        self.waiting(|owner| manager.locks.share(owner, target, timeout))
    }

    /// As [`share`](Self::share) if that does not have to wait; otherwise `false`, and nothing has changed. Latches may be
    /// held.
    pub fn try_share(&mut self, target: Target<'_>) -> bool {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.try_share(&mut lease.owner, target)
    }

    /// As [`try_share`](Self::try_share), for a caller that may give up what it has asked for; `None` for its `false`.
    pub fn try_share_anew(&mut self, target: Target<'_>) -> Option<NewShare> {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.try_share_anew(&mut lease.owner, target)
    }

    /// See [`LockManager::unshare`](foreshore_lock::LockManager::unshare).
    pub fn unshare(&mut self, share: NewShare) {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.unshare(&mut lease.owner, share);
    }

    /// See [`LockManager::wait_to_cover`](foreshore_lock::LockManager::wait_to_cover).
    ///
    /// # Errors
    /// As [`lock_table`](Self::lock_table).
    pub fn wait_to_cover(&mut self, table: TableId, interval: &Interval) -> Result<()> {
        let (manager, timeout) = (self.manager.clone(), self.time_for_a_lock());
        self.waiting(|owner| manager.locks.wait_to_cover(owner, table, interval, timeout))
    }

    /// See [`LockManager::try_cover`](foreshore_lock::LockManager::try_cover). Latches may be held.
    pub fn try_cover(&mut self, table: TableId, interval: &Interval) -> bool {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.try_cover(&mut lease.owner, table, interval)
    }

    /// See [`LockManager::try_cover_anew`](foreshore_lock::LockManager::try_cover_anew).
    pub fn try_cover_anew(&mut self, table: TableId, interval: &Interval) -> Option<NewRange> {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.try_cover_anew(&mut lease.owner, table, interval)
    }

    /// See [`LockManager::uncover`](foreshore_lock::LockManager::uncover).
    pub fn uncover(&mut self, range: NewRange) {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.uncover(&mut lease.owner, range);
    }

    /// See [`LockManager::shared_by_other`](foreshore_lock::LockManager::shared_by_other).
    #[must_use]
    pub fn shared_by_other(&self, target: Target<'_>) -> bool {
        self.manager.locks.shared_by_other(&self.lease().owner, target)
    }

    /// See [`LockManager::wait_exclusive`](foreshore_lock::LockManager::wait_exclusive).
    ///
    /// # Errors
    /// As [`lock_table`](Self::lock_table). There is no turn to end then.
    pub fn wait_exclusive(&mut self, target: Target<'_>) -> Result<()> {
        let (manager, timeout) = (self.manager.clone(), self.time_for_a_lock());
        let granted = self.waiting(|owner| manager.locks.wait_exclusive(owner, target, timeout));
        // The wait may have succeeded and the reservation after it failed.
        granted.inspect_err(|_| self.end_exclusive())
    }

    /// See [`LockManager::end_exclusive`](foreshore_lock::LockManager::end_exclusive).
    pub fn end_exclusive(&mut self) {
        let lease = self.lease.as_mut().expect("a running transaction has its lease");
        self.manager.locks.end_exclusive(&mut lease.owner);
    }

    /// The time of the operation that runs for all its waits for locks. [`release`](Self::release) ends the operation.
    fn patience(&mut self) -> Patience {
        let timeout = self.lock_timeout();
        *self.patience.get_or_insert(Patience::new(timeout))
    }

    /// How long a wait for a lock that begins now may last.
    fn time_for_a_lock(&mut self) -> Duration {
        let (now, mut patience) = (self.manager.locks.now(), self.patience());
        let left = patience.left(now);
        self.patience = Some(patience);
        left
    }

    /// Waits for `holder`, whom [`row_holder`](Self::row_holder) named for the row, and returns when there is reason to
    /// look again. Without latches.
    ///
    /// # Errors
    /// `RollbackParked` where the rollback of the holder is parked; as [`lock_table`](Self::lock_table).
    pub fn wait_row(&mut self, table: TableId, key: &[u8], holder: Xid) -> Result<()> {
        let (manager, mut patience) = (self.manager.clone(), self.patience());
        let waited = self.waiting(|owner| {
            if let Status::Committed(csn) = manager.window.get(holder) {
                // WAIT: help - or park behind the leader: the holder has only its durability to wait for. With early release of
                // all locks nobody comes here.
                return manager.log.force(csn.lsn());
            }
            if let Some(refusal) = manager.parked_refusal(holder) {
                return Err(refusal);
            }
            let is_live = || manager.window.get(holder) == Status::Live && !manager.is_halted();
            manager.locks.wait_xid(owner, table, key, holder, &is_live, &mut patience)
        });
        self.patience = Some(patience);
        waited
    }

    /// See [`LockManager::pass_on`](foreshore_lock::LockManager::pass_on).
    pub fn pass_on(&self, table: TableId, key: &[u8]) {
        self.manager.locks.pass_on(table, key);
    }

    /// See [`LockManager::refusal`](foreshore_lock::LockManager::refusal).
    #[must_use]
    pub fn refusal(&self, target: Target<'_>, holder: Option<Xid>) -> Error {
        self.manager.locks.refusal(&self.lease().owner, target, holder)
    }

    /// See [`LockManager::range_refusal`](foreshore_lock::LockManager::range_refusal).
    #[must_use]
    pub fn range_refusal(&self, table: TableId, interval: &Interval) -> Error {
        self.manager.locks.range_refusal(&self.lease().owner, table, interval)
    }

    /// See [`LockManager::table_refusal`](foreshore_lock::LockManager::table_refusal).
    #[must_use]
    pub fn table_refusal(&self, table: TableId, mode: TableMode) -> Error {
        self.manager.locks.table_refusal(&self.lease().owner, table, mode)
    }

    /// Runs a wait for a lock. What is reserved, log space and where it is short memory for undo, goes back before it and is
    /// taken again after it: whoever holds the lock may need it to end.
    ///
    /// A rollback that failed has given up its locks with its rows as they were: who was let on by it must not go on.
    fn waiting<T>(&mut self, wait: impl FnOnce(&mut Owner) -> Result<T>) -> Result<T> {
        let may_agree = self.may_agree();
        let lease = self.lease_mut();
        lease.session.release();
        lease.undo.release(may_agree);
        lease.owner.set_undo_bytes(lease.session.undo_log() + lease.undo.entries());
        let outcome = wait(&mut lease.owner)?;
        if self.manager.is_halted() {
            return Err(self.manager.stop_error().unwrap_or(Error::Closed));
        }
        self.reserve_again()?;
        Ok(outcome)
    }
}
