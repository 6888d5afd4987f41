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

/// Returns whether the savepoint of a mark was dropped.
fn is_dropped(mark: &Mark) -> bool {
    Arc::strong_count(&mark.token) == 1
}

/// Number of savepoints whose memory is kept for the next transaction.
const KEPT: usize = 64;

/// The savepoints of a transaction, in the order of their places.
#[derive(Debug, Default)]
pub(crate) struct Savepoints {
    marks: Vec<Mark>,
    /// A token that no savepoint has any more.
    spare: Option<Arc<()>>,
}

impl Savepoints {
    /// Adds a savepoint at `place`. `undo_log` is the log charged for compensations so far.
    pub(crate) fn add(&mut self, place: Place, undo_log: u64) -> Savepoint {
        self.pop_dropped();
        if self.marks.len() == self.marks.capacity() {
            // Dropped savepoints are removed here. The reserve doubles what is left, so this happens rarely.
            self.marks.retain(|mark| !is_dropped(mark));
            self.marks.reserve(self.marks.len().max(4));
        }
        let token = self.spare.take().unwrap_or_default();
        self.marks.push(Mark { token: token.clone(), place, undo_log });
        Savepoint(token)
    }

    /// Removes the newest savepoints if they were dropped, and keeps a token of them.
    fn pop_dropped(&mut self) {
        while let Some(mark) = self.marks.pop_if(|mark| is_dropped(mark)) {
            self.spare = Some(mark.token);
        }
    }

    /// Returns whether there is a savepoint that was not dropped.
    pub(crate) fn is_any_in_use(&self) -> bool {
        self.marks.iter().any(|mark| !is_dropped(mark))
    }

    /// Returns whether `entry` is the newest entry at a savepoint that was not dropped.
    pub(crate) fn is_any_at(&self, entry: UndoPtr) -> bool {
        let mut there = self.marks.iter().rev().take_while(|mark| mark.place.newest == entry);
        there.any(|mark| !is_dropped(mark))
    }

    fn place_of(&self, savepoint: &Savepoint) -> Result<usize> {
        let is_it = |mark: &Mark| Arc::ptr_eq(&mark.token, &savepoint.0);
        self.marks.iter().rposition(is_it).ok_or(Error::NoSavepoint)
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
        self.marks.truncate(at + 1);
        Ok((self.marks[at].place, self.marks[at].undo_log))
    }

    /// Moves the newest savepoint to `place`, which lies behind the entries of the locks that were kept.
    pub(crate) fn move_newest(&mut self, place: Place) {
        self.marks.last_mut().expect("the transaction has gone back to it").place = place;
    }

    pub(crate) fn clear(&mut self) {
        self.pop_dropped();
        self.marks.clear();
        self.marks.shrink_to(KEPT);
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
            assert!(marks.marks.len() < 16, "round {round}: {}", marks.marks.len());
            for (savepoint, bits) in [(&first, 1), (&latest, round)] {
                assert_eq!(marks.marks[marks.place_of(savepoint).expect("not dropped")].place.newest.bits(), bits);
            }
        }
        let many: Vec<Savepoint> = (0..10_000).map(|_| marks.add(null, 0)).collect();
        assert!(many.iter().chain([&first, &latest]).all(|savepoint| marks.place_of(savepoint).is_ok()));
        drop(many);
        (0..20_000).for_each(|_| drop(marks.add(null, 0)));
        marks.marks.retain(|mark| !is_dropped(mark));
        assert_eq!(marks.marks.len(), 2);
    }
}
