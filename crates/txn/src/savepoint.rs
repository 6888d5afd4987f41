//! Rollback of part of a transaction.
//!
//! A savepoint is a place among the undo entries. To go back to it is to undo the newer ones as a rollback does, with a
//! compensation record for each change, so a restart finds them compensated and takes back only what stands.
//!
//! **Locks stay.** What the transaction has read, found absent or been told since the savepoint it may still act on. The lock of
//! a row is in its tuple header, so the entry of the first change of a row is not dropped: it becomes that of a lock, the
//! header keeps the xid and leads to it, and the version before the transaction stays where readers look for it. A row that
//! was inserted stays as a ghost. None of this takes memory or can be refused.

use crate::finish::HaltOnPanic;
use crate::manager::{Lease, TxnManager};
use crate::parked::Stop;
use crate::resource::UndoContext;
use crate::txn::Txn;
use crate::undo::{Place, Undo, UndoEntry, UndoPtr};
use foreshore_base::{Error, Lsn, Result, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use std::sync::Arc;

/// A place in a transaction that it can be rolled back to, more than once.
#[derive(Debug)]
pub struct Savepoint(Arc<()>);

/// A savepoint as its transaction keeps it.
#[derive(Debug)]
pub(crate) struct Mark {
    /// The same as in the savepoint, which tells it from all others.
    token: Arc<()>,
    /// What is newer than this among the undo entries goes.
    place: Place,
    /// Log that was charged for compensations.
    undo_log: u64,
}

/// The savepoints of a transaction, in the order of their places.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<Mark>);

impl Marks {
    fn add(&mut self, place: Place, undo_log: u64) -> Savepoint {
        if self.0.len() == self.0.capacity() {
            // Nobody can go back to one that has been dropped. With room for as many again as are left, it is not done often.
            self.0.retain(|mark| Arc::strong_count(&mark.token) > 1);
            self.0.reserve(self.0.len().max(4));
        }
        let token = Arc::new(());
        self.0.push(Mark { token: token.clone(), place, undo_log });
        Savepoint(token)
    }

    /// Whether there is one that can be gone back to.
    pub(crate) fn is_any_in_use(&self) -> bool {
        self.0.iter().any(|mark| Arc::strong_count(&mark.token) > 1)
    }

    /// Whether one that can be gone back to has `entry` as its newest one.
    pub(crate) fn is_any_at(&self, entry: UndoPtr) -> bool {
        let mut there = self.0.iter().rev().take_while(|mark| mark.place.newest == entry);
        there.any(|mark| Arc::strong_count(&mark.token) > 1)
    }

    fn place_of(&self, savepoint: &Savepoint) -> Result<usize> {
        let is_it = |mark: &Mark| Arc::ptr_eq(&mark.token, &savepoint.0);
        self.0.iter().rposition(is_it).ok_or(Error::NoSavepoint)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Txn {
    /// Marks the place that the transaction has reached.
    pub fn savepoint(&mut self) -> Savepoint {
        if self.may_agree() {
            // What is behind this place stays as it is.
            self.lease_mut().undo.agree_to_move();
        }
        let (place, undo_log) = (self.lease().undo.place(), self.lease().session.undo_log());
        self.savepoints.add(place, undo_log)
    }

    /// Whether [`rollback_to`](Self::rollback_to) can go back to `savepoint`.
    ///
    /// # Errors
    /// `NoSavepoint`: it is of another transaction, or was taken after one that the transaction has gone back to.
    pub fn check_savepoint(&self, savepoint: &Savepoint) -> Result<()> {
        self.savepoints.place_of(savepoint).map(drop)
    }

    /// Takes back what was changed since `savepoint`. All locks stay, but for those in tables that `is_new` says were
    /// created since, and are gone.
    ///
    /// # Errors
    /// `NoSavepoint`, and nothing has changed. `DiskFull`, `Corrupted` or `OutOfFrames`: it could not be completed, and
    /// the transaction can only be rolled back as a whole from here on. `Poisoned`: as those, and the log has stopped.
    pub fn rollback_to(&mut self, savepoint: &Savepoint, is_new: impl Fn(TableId) -> bool) -> Result<()> {
        let place = self.savepoints.place_of(savepoint)?;
        self.savepoints.0.truncate(place + 1);
        let Mark { place: until, undo_log, .. } = &self.savepoints.0[place];
        let (until, undo_log) = (*until, *undo_log);
        if let Some(xid) = self.xid.filter(|_| self.lease().undo.newest() != until.newest) {
            let manager = self.manager.clone();
            let unwinds = HaltOnPanic(&manager);
            let last_lsn = self.last_lsn;
            let Lease { session, undo, .. } = self.lease_mut();
            let mut context = UndoContext::new(session, xid, last_lsn).among(&manager);
            let undone = match manager.log.poisoned() {
                Some(error) => Err(Stop::Ends(error)),
                None => manager.undo_back_to(&mut context, undo, until.newest, |entry| !is_new(entry.table)),
            };
            std::mem::forget(unwinds);
            assert!(last_lsn <= context.last_lsn(), "{xid} goes back from {last_lsn} to {}", context.last_lsn());
            self.last_lsn = context.last_lsn();
            self.is_broken |= undone.is_err();
            match undone {
                Ok(()) => {}
                Err(Stop::Waits(cause)) => return Err(cause),
                Err(Stop::Ends(cause)) => {
                    manager.halt(&cause);
                    return Err(cause);
                }
            }
            self.lease_mut().undo.give_back(&until);
            self.session().lower_undo_log(undo_log);
        }
        // The locks that were kept lie before it from now on.
        self.savepoints.0[place].place = self.lease().undo.place();
        Ok(())
    }
}

impl TxnManager {
    /// Undoes what is newer than the entry `until`. `keeps` says whether the lock of a row stays.
    pub(crate) fn undo_back_to(
        &self,
        context: &mut UndoContext<'_>,
        undo: &mut Undo,
        until: UndoPtr,
        keeps: impl Fn(&UndoEntry<'_>) -> bool,
    ) -> Result<(), Stop> {
        let mut back = undo.back();
        // With the defect a rollback to a savepoint leaves the oldest change behind it.
        let leaves = until != UndoPtr::NULL && mutant("sabotage: a rollback to a savepoint leaves a change");
        while back.at != until {
            pause::point("txn: a change is to be taken back");
            let at = back.at;
            let (mut entry, holder) = undo.entry(&back)?;
            if leaves {
                undo.drop_at(&mut back);
                continue;
            }
            // A row that the transaction had already stays locked by an older entry.
            entry.keep = (holder != context.xid() && keeps(&entry)).then_some(at);
            let is_kept_lock = entry.lsn == Lsn::ZERO && entry.keep.is_some();
            if is_kept_lock || self.resources().undo(context, &entry).map_err(Stop::at_change)? {
                undo.keep_at(&mut back);
            } else {
                undo.drop_at(&mut back);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_replaces_a_savepoint_again_and_again_keeps_few() {
        let mut marks = Marks::default();
        let null = Place::at(UndoPtr::NULL);
        let first = marks.add(Place::at(UndoPtr::from_bits(1)), 0);
        let mut latest = marks.add(null, 0);
        for round in 2..10_000 {
            latest = marks.add(Place::at(UndoPtr::from_bits(round)), 0);
            assert!(marks.0.len() < 16, "round {round}: {}", marks.0.len());
            for (savepoint, bits) in [(&first, 1), (&latest, round)] {
                assert_eq!(marks.0[marks.place_of(savepoint).expect("not dropped")].place.newest.bits(), bits);
            }
        }
        let many: Vec<Savepoint> = (0..10_000).map(|_| marks.add(null, 0)).collect();
        assert!(many.iter().chain([&first, &latest]).all(|savepoint| marks.place_of(savepoint).is_ok()));
        drop(many);
        (0..20_000).for_each(|_| drop(marks.add(null, 0)));
        marks.0.retain(|mark| Arc::strong_count(&mark.token) > 1);
        assert_eq!(marks.0.len(), 2);
    }
}
