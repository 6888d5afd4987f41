//! Savepoints: places to which a transaction can be rolled back.

use crate::undo::{Place, UndoPtr};
use foreshore_base::{Error, Result};
use std::sync::Arc;

/// A place to which a transaction can be rolled back, more than once.
#[derive(Debug)]
pub struct Savepoint(Arc<()>);

/// The transaction's own record of a savepoint.
#[derive(Debug)]
struct Mark {
    /// A token shared with the savepoint. It identifies the savepoint.
    token: Arc<()>,
    /// Undo entries newer than this place are undone.
    place: Place,
    /// Bytes of log that were charged for compensations at this place.
    undo_log: u64,
}

/// Number of savepoints whose memory is kept for the next transaction.
const KEPT: usize = 64;

/// The savepoints of a transaction, in the order of their places.
#[derive(Debug, Default)]
pub(crate) struct Savepoints(Vec<Mark>);

impl Savepoints {
    /// Adds a savepoint at `place`. `undo_log` is the log charged for compensations so far.
    pub(crate) fn add(&mut self, place: Place, undo_log: u64) -> Savepoint {
        if self.0.len() == self.0.capacity() {
            // Dropped savepoints are removed here. The reserve doubles what is left, so this happens rarely.
            self.0.retain(|mark| Arc::strong_count(&mark.token) > 1);
            self.0.reserve(self.0.len().max(4));
        }
        let token = Arc::new(());
        self.0.push(Mark { token: token.clone(), place, undo_log });
        Savepoint(token)
    }

    /// Returns whether there is a savepoint that was not dropped.
    pub(crate) fn is_any_in_use(&self) -> bool {
        self.0.iter().any(|mark| Arc::strong_count(&mark.token) > 1)
    }

    /// Returns whether `entry` is the newest entry at a savepoint that was not dropped.
    pub(crate) fn is_any_at(&self, entry: UndoPtr) -> bool {
        let mut there = self.0.iter().rev().take_while(|mark| mark.place.newest == entry);
        there.any(|mark| Arc::strong_count(&mark.token) > 1)
    }

    fn place_of(&self, savepoint: &Savepoint) -> Result<usize> {
        let is_it = |mark: &Mark| Arc::ptr_eq(&mark.token, &savepoint.0);
        self.0.iter().rposition(is_it).ok_or(Error::NoSavepoint)
    }

    /// Checks that the transaction can go back to `savepoint`.
    ///
    /// # Errors
    /// `NoSavepoint`: the savepoint belongs to another transaction, or was taken after one that was rolled back to.
    pub(crate) fn check(&self, savepoint: &Savepoint) -> Result<()> {
        self.place_of(savepoint).map(drop)
    }

    /// Removes the savepoints after `savepoint`. Returns its place and the log charged there.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub(crate) fn go_back(&mut self, savepoint: &Savepoint) -> Result<(Place, u64)> {
        let at = self.place_of(savepoint)?;
        self.0.truncate(at + 1);
        Ok((self.0[at].place, self.0[at].undo_log))
    }

    /// Moves the newest savepoint to `place`, which lies behind the entries of the locks that were kept.
    pub(crate) fn move_newest(&mut self, place: Place) {
        self.0.last_mut().expect("the transaction has gone back to it").place = place;
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_replaces_a_savepoint_again_and_again_keeps_few() {
        let mut marks = Savepoints::default();
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
