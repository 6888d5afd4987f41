//! Savepoints: rollback of part of a transaction.
//!
//! A savepoint is a place among the undo entries. A rollback to it undoes the newer entries as any rollback does, with
//! a compensation record for each change. So a restart finds those changes compensated and undoes only the others.
//!
//! **Locks stay.** The transaction may still act on what it has read or found absent since the savepoint. The lock of a
//! row is in its tuple header, so the entry of the first change of a row is not dropped. It becomes the entry of a
//! lock, and the header keeps the xid and points to it. Readers still find the version from before the transaction
//! through it. An inserted row stays as a ghost. None of this takes memory or can be refused.

use super::Txn;
use crate::halt::HaltOnPanic;
use crate::parked::Stop;
use crate::resource::UndoContext;
use crate::savepoints::Savepoint;
use crate::sessions::Lease;
use foreshore_base::{Result, TableId};

impl Txn {
    /// Marks the place that the transaction has reached.
    pub fn savepoint(&mut self) -> Savepoint {
        if self.may_spill() {
            // The entries before this place stay as they are, so they may be spilled.
            self.lease_mut().undo.let_spill();
        }
        let (place, undo_log) = (self.lease().undo.place(), self.lease().session.undo_log());
        self.run_mut().savepoints.add(place, undo_log)
    }

    /// Returns whether [`rollback_to`](Self::rollback_to) can go back to `savepoint`.
    ///
    /// # Errors
    /// `NoSavepoint`: the savepoint belongs to another transaction, or was taken after one that was rolled back to.
    pub fn check_savepoint(&self, savepoint: &Savepoint) -> Result<()> {
        self.run().savepoints.check(savepoint)
    }

    /// Undoes the changes since `savepoint`. All locks stay, except those in tables for which `is_new` returns true.
    /// Such tables were created since and are gone.
    ///
    /// # Errors
    /// `NoSavepoint`: nothing has changed. `DiskFull`, `Corrupted` or `OutOfFrames`: the rollback stopped half-way, and
    /// from here on only the whole transaction can be rolled back. `Poisoned`: the same, and the log has stopped.
    pub fn rollback_to(&mut self, savepoint: &Savepoint, is_new: impl Fn(TableId) -> bool) -> Result<()> {
        let (until, undo_log) = self.run_mut().savepoints.go_back(savepoint)?;
        if let Some(xid) = self.run().xid.filter(|_| self.lease().undo.newest() != until.newest) {
            let manager = self.manager.clone();
            let unwinds = HaltOnPanic::new(&manager.halt);
            let last_lsn = self.run().trail.last_lsn;
            let Lease { session, undo, .. } = self.lease_mut();
            let mut context = UndoContext::new(session, xid, last_lsn).among(&manager.visibility);
            let undone = match manager.log.poisoned() {
                Some(error) => Err(Stop::Ends(error)),
                None => manager.undo_back_to(&mut context, undo, until.newest, |entry| !is_new(entry.table)),
            };
            unwinds.disarm();
            assert!(last_lsn <= context.last_lsn(), "{xid} goes back from {last_lsn} to {}", context.last_lsn());
            self.run_mut().trail.last_lsn = context.last_lsn();
            self.run_mut().is_broken |= undone.is_err();
            match undone {
                Ok(()) => {}
                Err(Stop::Waits(cause)) => return Err(cause),
                Err(Stop::Ends(cause)) => {
                    manager.halt.halt(&cause);
                    return Err(cause);
                }
            }
            self.lease_mut().undo.give_back(&until);
            self.session().lower_undo_log(undo_log);
        }
        let place = self.lease().undo.place();
        self.run_mut().savepoints.move_newest(place);
        Ok(())
    }
}
