//! The locks of a transaction, and its waits for those of others.

use super::Txn;
use crate::manager::TxnManager;
use crate::sessions::Lease;
use crate::visibility::status::Status;
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_lock::{Interval, LockManager, Owner, Patience, TableMode, Target};

impl Txn {
    /// Locks a table to the end of the transaction, or strengthens its lock. In a mode that reads the whole table the
    /// newest commit in it counts as observed.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`; and, after a wait, those of [`reserve`](Self::reserve), and `Poisoned` when a
    /// rollback could not be completed.
    pub fn lock_table(&mut self, table: TableId, mode: TableMode) -> Result<()> {
        if self.try_lock_table(table, mode) {
            return Ok(());
        }
        let mut tag = Csn::ZERO;
        let granted = self.waiting(|TxnManager { locks, .. }, owner, patience| {
            tag = locks.lock_table(owner, table, mode, patience.left(locks.waits().now()))?;
            Ok(())
        });
        // Even if the reservation failed after the grant: a lock that is held already comes without its tag.
        self.observe(tag);
        granted
    }

    /// Locks a table as [`lock_table`](Self::lock_table) does, if that needs no wait; otherwise `false`, and nothing
    /// has changed.
    pub fn try_lock_table(&mut self, table: TableId, mode: TableMode) -> bool {
        let (locks, owner) = self.locks();
        let Some(tag) = locks.try_lock_table(owner, table, mode) else { return false };
        self.observe(tag);
        true
    }

    /// Locks `target` shared, after a wait if need be (see [`LockManager::share`]).
    ///
    /// # Errors
    /// As [`lock_table`](Self::lock_table).
    pub fn share(&mut self, target: Target<'_>) -> Result<()> {
        if self.try_share(target) {
            return Ok(());
        }
        self.waiting(|TxnManager { locks, .. }, owner, patience| {
            locks.share(owner, target, patience.left(locks.waits().now()))
        })
    }

    /// Locks `target` as [`share`](Self::share) does, if that needs no wait; otherwise `false`, and nothing has
    /// changed. Latches may be held.
    pub fn try_share(&mut self, target: Target<'_>) -> bool {
        let (locks, owner) = self.locks();
        locks.try_share(owner, target).is_some()
    }

    /// Waits until an interval of keys can be locked (see [`LockManager::wait_to_cover`]).
    ///
    /// # Errors
    /// As [`lock_table`](Self::lock_table).
    pub fn wait_to_cover(&mut self, table: TableId, interval: &Interval) -> Result<()> {
        self.waiting(|TxnManager { locks, .. }, owner, patience| {
            locks.wait_to_cover(owner, table, interval, patience.left(locks.waits().now()))
        })
    }

    /// Waits until no other transaction shares `target` (see [`LockManager::wait_exclusive`]).
    ///
    /// # Errors
    /// As [`lock_table`](Self::lock_table). There is no turn to end then.
    pub fn wait_exclusive(&mut self, target: Target<'_>) -> Result<()> {
        let granted = self.waiting(|TxnManager { locks, .. }, owner, patience| {
            locks.wait_exclusive(owner, target, patience.left(locks.waits().now()))
        });
        // The wait may have succeeded and the reservation after it failed.
        granted.inspect_err(|_| {
            let (locks, owner) = self.locks();
            locks.end_exclusive(owner);
        })
    }

    /// Waits for `holder`, which [`row_holder`](Self::row_holder) named for the row, and returns when there is reason
    /// to look again. Without latches.
    ///
    /// # Errors
    /// `RollbackParked` where the rollback of the holder is parked; as [`lock_table`](Self::lock_table).
    pub fn wait_row(&mut self, table: TableId, key: &[u8], holder: Xid) -> Result<()> {
        self.waiting(|TxnManager { visibility, locks, log, parked, halt, .. }, owner, patience| {
            if let Status::Committed(csn) = visibility.status(holder) {
                // WAIT: help - or park behind the leader: the holder has only its durability to wait for. With early
                // release of all locks no transaction comes here.
                return log.force(csn.lsn());
            }
            if let Some(refusal) = parked.refusal(holder) {
                return Err(refusal);
            }
            let is_live = || visibility.status(holder) == Status::Live && !halt.is_set();
            locks.wait_xid(owner, table, key, holder, &is_live, patience)
        })
    }

    /// Returns the lock manager and the transaction's owner there, for what needs no wait.
    pub fn locks(&mut self) -> (&LockManager, &mut Owner) {
        let (manager, lease) = self.manager_and_lease();
        (&manager.locks, &mut lease.owner)
    }

    /// Runs a wait for a lock, in what is left of the time of the operation. Log space that is reserved, and undo space
    /// where it is short, is returned before the wait and reserved again after it. The holder of the lock may need it
    /// to end.
    ///
    /// A rollback that failed has released its locks with its rows as they were: a transaction that is let on by it
    /// ends.
    fn waiting<T>(&mut self, wait: impl FnOnce(&TxnManager, &mut Owner, &mut Patience) -> Result<T>) -> Result<T> {
        let may_spill = self.may_spill();
        let (manager, Lease { session, undo, owner, run, .. }) = self.manager_and_lease();
        let patience = run.waits.patience(manager.now());
        session.release();
        undo.release(may_spill);
        owner.set_undo_bytes(session.undo_log() + undo.entries());
        let outcome = wait(manager, owner, patience)?;
        if manager.halt.is_set() {
            return Err(manager.halt.check().err().unwrap_or(Error::Closed));
        }
        self.reserve_again()?;
        Ok(outcome)
    }
}
