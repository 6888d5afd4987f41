//! The locks of a transaction, and its waits for the locks of others.

use super::Txn;
use crate::manager::TxnManager;
use crate::sessions::Lease;
use crate::visibility::Snapshot;
use crate::visibility::status::Status;
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_lock::{Interval, LockManager, Owner, Patience, TableMode, Target};

impl Txn {
    /// Locks a table to the end of the transaction, or strengthens its lock. If the mode reads the whole table, the
    /// newest commit in the table counts as observed.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`. After a wait also those of [`reserve`](Self::reserve), and `Poisoned` if a rollback
    /// could not be completed.
    pub fn lock_table(&mut self, table: TableId, mode: TableMode) -> Result<()> {
        if self.try_lock_table(table, mode) {
            return Ok(());
        }
        let mut tag = Csn::ZERO;
        let granted = self.waiting(|TxnManager { locks, .. }, owner, patience| {
            tag = locks.lock_table(owner, table, mode, patience.left(locks.waits().now()))?;
            Ok(())
        });
        // Also if the reservation failed after the grant, because a later request for a held lock returns no tag.
        self.observe(tag);
        granted
    }

    /// Locks a table exclusively to the end of the transaction, and until the commit is durable. So while a restart
    /// may have to undo the transaction, no other one has changed the table since.
    ///
    /// # Errors
    /// Those of [`lock_table`](Self::lock_table).
    pub fn exclude_others(&mut self, table: TableId) -> Result<()> {
        self.lock_table(table, TableMode::Exclusive)?;
        self.run_mut().trail.syncs_before_release = true;
        Ok(())
    }

    /// Locks a table as [`lock_table`](Self::lock_table) does, if that needs no wait. Otherwise returns false, and
    /// nothing has changed.
    pub fn try_lock_table(&mut self, table: TableId, mode: TableMode) -> bool {
        let (locks, owner) = self.locks();
        let Some(tag) = locks.try_lock_table(owner, table, mode) else { return false };
        self.observe(tag);
        true
    }

    /// Locks `target` shared, after a wait if need be (see [`LockManager::share`]).
    ///
    /// # Errors
    /// Those of [`lock_table`](Self::lock_table).
    pub fn share(&mut self, target: Target<'_>) -> Result<()> {
        if self.try_share(target) {
            return Ok(());
        }
        self.waiting(|TxnManager { locks, .. }, owner, patience| {
            locks.share(owner, target, patience.left(locks.waits().now()))
        })
    }

    /// Locks `target` as [`share`](Self::share) does, if that needs no wait. Otherwise returns false, and nothing has
    /// changed. The caller may hold latches.
    pub fn try_share(&mut self, target: Target<'_>) -> bool {
        let (locks, owner) = self.locks();
        locks.try_share(owner, target).is_some()
    }

    /// Waits until an interval of keys can be locked (see [`LockManager::wait_to_cover`]).
    ///
    /// # Errors
    /// Those of [`lock_table`](Self::lock_table).
    pub fn wait_to_cover(&mut self, table: TableId, interval: &Interval) -> Result<()> {
        self.waiting(|TxnManager { locks, .. }, owner, patience| {
            locks.wait_to_cover(owner, table, interval, patience.left(locks.waits().now()))
        })
    }

    /// Waits until no other transaction shares `target` (see [`LockManager::wait_exclusive`]).
    ///
    /// # Errors
    /// Those of [`lock_table`](Self::lock_table). There is no turn to end then.
    pub fn wait_exclusive(&mut self, target: Target<'_>) -> Result<()> {
        let granted = self.waiting(|TxnManager { locks, .. }, owner, patience| {
            locks.wait_exclusive(owner, target, patience.left(locks.waits().now()))
        });
        // The wait may have succeeded before the reservation failed.
        granted.inspect_err(|_| {
            let (locks, owner) = self.locks();
            locks.end_exclusive(owner);
        })
    }

    /// Waits for `holder`, which [`row_holder`](Self::row_holder) returned for the row. Returns when there is reason to
    /// check again. The caller holds no latch.
    ///
    /// # Errors
    /// `RollbackParked` if the rollback of the holder is parked, or cannot go on after a restart; those of
    /// [`lock_table`](Self::lock_table).
    pub fn wait_row(&mut self, table: TableId, key: &[u8], holder: Xid) -> Result<()> {
        // WAIT: park - until the holder ends.
        self.wait_while(table, key, holder, &|| true)
    }

    /// Waits for the holder of a row while `may_wait` returns true.
    fn wait_while(&mut self, table: TableId, key: &[u8], holder: Xid, may_wait: &dyn Fn() -> bool) -> Result<()> {
        self.waiting(|TxnManager { visibility, locks, log, parked, halt, xids, .. }, owner, patience| {
            if let Status::Committed(csn) = visibility.status(holder) {
                // WAIT: help - or park behind the leader: the holder is only not durable yet. With early release of all
                // locks no transaction comes here.
                return log.force(csn.lsn());
            }
            if let Some(refusal) = parked.refusal(holder) {
                return Err(refusal);
            }
            let is_live = || visibility.status(holder) == Status::Live && !halt.is_set() && may_wait();
            if let Some(refusal) = xids.losers().refusal(holder).filter(|_| is_live()) {
                return Err(refusal);
            }
            xids.losers().help_while(&is_live);
            locks.wait_xid(owner, table, key, xids.losers().shown(holder), &is_live, patience)
        })
    }

    /// Waits for a transaction of the previous run, which a read by `snapshot` has met in the row of `key`
    /// ([`Seen::Earlier`](crate::Seen::Earlier)). The caller holds no latch, and then reads the row again.
    ///
    /// # Errors
    /// Those of [`wait_row`](Self::wait_row). `SnapshotTooOld`: nothing wakes the waiter when the snapshot is
    /// cancelled, so it checks that from time to time.
    pub fn wait_earlier(&mut self, snapshot: &Snapshot, table: TableId, key: &[u8], holder: Xid) -> Result<()> {
        let now = self.manager.now();
        self.run_mut().waits.patience(now).look_around();
        // WAIT: park - until the holder ends, or a check finds the snapshot cancelled.
        let waited = self.wait_while(table, key, holder, &|| !snapshot.is_cancelled());
        let checked = waited.and_then(|()| self.check_snapshot(snapshot));
        // This reader takes no row, so another waiter of the row is woken at once, if there is no reason to wait.
        if checked.is_err() || self.manager.visibility.status(holder) != Status::Live {
            self.manager.locks.pass_on(table, key);
        }
        checked
    }

    /// Returns the xid under which the holder of a row is known to the lock manager.
    #[must_use]
    pub fn shown_holder(&self, holder: Xid) -> Xid {
        self.manager.xids.losers().shown(holder)
    }

    /// Returns the lock manager and the transaction's owner there, for calls that need no wait.
    pub fn locks(&mut self) -> (&LockManager, &mut Owner) {
        let (manager, lease) = self.manager_and_lease();
        (&manager.locks, &mut lease.owner)
    }

    /// Runs a wait for a lock, limited by the operation's remaining time. Reserved log space is returned before the
    /// wait and reserved again after it. So is undo space, if it is short. The holder of the lock may need that space
    /// to end.
    ///
    /// A failed rollback releases its locks although its rows are not restored. A transaction that is granted such a
    /// lock fails.
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
