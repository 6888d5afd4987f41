//! Reads of one row under a lock, at any isolation level.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::GHOST;
use crate::intent::Intent;
use crate::lookup::copy_row;
use crate::node::{Goal, NO_WRITER};
use crate::tree::{Structure, Tree};
use foreshore_base::{Result, Xid};
use foreshore_lock::{LockWait, Locked, NewShare, RowLock, Strength, TableMode, Target};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread;
use foreshore_txn::{RowHolder, Txn};

impl Tree {
    /// Locks the row of `key`, copies its newest value to `out`, and returns whether it exists. The row stays
    /// unchanged to the end of the transaction. For a serializable transaction, a missing row stays missing too.
    ///
    /// # Errors
    /// `RowLocked` if it does not wait. `Conflict` if the transaction has a snapshot and the row has changed since.
    /// Otherwise as [`get`](Self::get), or as [`put`](Self::put) for an update.
    pub fn get_locked(&self, txn: &mut Txn, key: &[u8], lock: RowLock, out: &mut Vec<u8>) -> Result<Locked<()>> {
        match lock.strength() {
            Strength::Update => self.lock_row(txn, key, Intent::Lock, lock.on_conflict(), out),
            Strength::Share => {
                let (found, xid) = self.get_shared(txn, key, lock.on_conflict(), out)?;
                if found != Locked::Skipped {
                    txn.check_conflict(self.table(), key, xid)?;
                }
                Ok(match found {
                    Locked::Row(flags) => Locked::Row(self.load_by(flags, out)?),
                    Locked::Absent => Locked::Absent,
                    Locked::Skipped => Locked::Skipped,
                })
            }
        }
    }

    /// Locks the row of `key` for a change, copies its value to `out`, and returns whether it exists. If it does not
    /// exist, no other transaction inserts it before this one ends, if this one is serializable.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn get_for_update(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.get_locked(txn, key, RowLock::update(), out)? == Locked::Row(()))
    }

    /// Locks the whole table against writes of other transactions. Later reads by this transaction take no more locks.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `TableDropped`.
    pub fn lock_against_writes(&self, txn: &mut Txn) -> Result<()> {
        self.lock(txn, TableMode::Shared)
    }

    /// Locks the table for a request of rows. A `no_wait` request does not wait for the table either.
    pub(crate) fn lock_by(&self, txn: &mut Txn, mode: TableMode, wait: LockWait) -> Result<()> {
        if wait == LockWait::NoWait && !txn.try_lock_table(self.table(), mode) {
            let (locks, owner) = txn.locks();
            return Err(locks.table_refusal(owner, self.table(), mode));
        }
        self.lock(txn, mode)
    }

    /// Copies the value of `key` to `out` and returns whether there is one, at any isolation level. The answer holds
    /// to the end of the transaction: the key is locked shared, whether it exists or not.
    ///
    /// # Errors
    /// `KeyTooLarge`, `Deadlock`, `LockTimeout`, `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn get_newest(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let (Locked::Row(flags), _) = self.get_shared(txn, key, LockWait::Wait, out)? else { return Ok(false) };
        self.load_by(flags, out).map(|()| true)
    }

    /// Locks `key` as [`get_newest`](Self::get_newest) does, and copies what the row holds, a value or a stub. Returns
    /// the flags of the row: [`GHOST`] if there is none.
    pub(crate) fn find_newest(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<u16> {
        let (found, _) = self.get_shared(txn, key, LockWait::Wait, out)?;
        Ok(if let Locked::Row(flags) = found { flags } else { GHOST })
    }

    /// Locks a key shared, also for a request that may not wait. Copies what its row holds to `out`. Returns the flags
    /// of the row, and the xid in its header.
    fn get_shared(&self, txn: &mut Txn, key: &[u8], wait: LockWait, out: &mut Vec<u8>) -> Result<(Locked<u16>, Xid)> {
        self.check_key(key)?;
        self.lock_by(txn, TableMode::IntentShared, wait)?;
        let target = Target::row(self.table(), key);
        let waits = wait == LockWait::Wait;
        if waits {
            txn.share(target)?;
        }
        let mut entered = None;
        let mut restarts = Restarts::default();
        loop {
            // From here on a writer finds this reader's lock, or this reader finds the writer in the header.
            let leaf: ReadGuard<'_> = self.find_again(&mut Structure::of(txn), Goal::At(key), 0, 0, &mut restarts)?;
            let row = copy_row(&leaf, key, out);
            // The holder is checked before the validation. If the version still holds, no writer has rolled this row
            // back meanwhile. So a writer that has ended has committed.
            let early = mutant("btree: validate before the holder is asked for") && leaf.holds() && {
                // The writer needs the time of a whole rollback.
                thread::yield_now();
                true
            };
            let row = row.map(|row| row.map(|(header, _)| (txn.row_holder(header.xid), header.flags, header.xid)));
            // A request that does not wait yields to a holder and enters no lock. If the row gets a holder in between,
            // the next read of the header shows it, and the entered lock is released.
            let shares =
                waits || !matches!(row, Ok(Some((RowHolder::Other(_), ..)))) && self.enter(txn, target, &mut entered);
            if !early && !leaf.holds() {
                self.restart(&mut restarts);
                continue;
            }
            let damage = |why| self.corrupted(leaf.pid(), why);
            let (flags, xid) = match row.map_err(damage)? {
                Some((RowHolder::Unknown, ..)) => return Err(damage(NO_WRITER)),
                Some((RowHolder::Other(holder), _, xid)) => {
                    drop(leaf);
                    if !waits {
                        let (locks, owner) = txn.locks();
                        entered.into_iter().for_each(|share| locks.unshare(owner, share));
                        return self.refuse(txn, target, Some(holder), wait).map(|()| (Locked::Skipped, xid));
                    }
                    txn.wait_row(self.table(), key, holder)?;
                    continue;
                }
                Some((RowHolder::None | RowHolder::Me, flags, xid)) => (flags, xid),
                None => (GHOST, Xid::ZERO),
            };
            if !shares {
                return self.refuse(txn, target, None, wait).map(|()| (Locked::Skipped, xid));
            }
            if flags & GHOST == 0 {
                return Ok((Locked::Row(flags), xid));
            }
            out.clear();
            return Ok((Locked::Absent, xid));
        }
    }

    /// Locks a key shared if that needs no wait. Stores the new lock in `entered`, so that it can be released if the
    /// request is refused after all.
    fn enter(&self, txn: &mut Txn, target: Target<'_>, entered: &mut Option<NewShare>) -> bool {
        let (locks, owner) = txn.locks();
        let share = locks.try_share(owner, target);
        // A later try of the same request finds its own lock and enters no other.
        *entered = entered.or(share);
        share.is_some()
    }

    /// Locks a key shared. Returns false if the key is skipped. `entered` works as for [`enter`](Self::enter).
    pub(crate) fn share_by(
        &self,
        txn: &mut Txn,
        target: Target<'_>,
        wait: LockWait,
        entered: &mut Option<NewShare>,
    ) -> Result<bool> {
        if wait == LockWait::Wait {
            return txn.share(target).map(|()| true);
        }
        if self.enter(txn, target, entered) {
            return Ok(true);
        }
        self.refuse(txn, target, None, wait).map(|()| false)
    }

    /// Returns the outcome of a request that does not wait for `target`: `Ok` if the row is skipped, otherwise an
    /// error.
    pub(crate) fn refuse(&self, txn: &mut Txn, target: Target<'_>, holder: Option<Xid>, wait: LockWait) -> Result<()> {
        match wait {
            LockWait::SkipLocked => Ok(()),
            LockWait::Wait | LockWait::NoWait => {
                let holder = holder.map(|xid| txn.shown_holder(xid));
                let (locks, owner) = txn.locks();
                Err(locks.refusal(owner, target, holder))
            }
        }
    }
}
