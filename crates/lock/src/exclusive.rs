//! Turns of writers that met readers.

use crate::hash::RowHash;
use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use crate::target::{Part, Target};
use foreshore_base::Result;
use std::time::Duration;

impl LockManager {
    /// Waits until no other transaction has that part of the key shared. On return new readers of it wait for this writer.
    ///
    /// A writer that has it shared itself (an upgrade) goes ahead of those that have not, because they wait for its lock
    /// too. Two upgrades are a deadlock.
    ///
    /// The caller latches the page, looks again and, **whatever it finds**, calls [`end_exclusive`](Self::end_exclusive)
    /// before it waits for anything else: the turn keeps out readers, among them the transaction that a header may name by
    /// then.
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout). There is no turn
    /// to end then.
    pub fn wait_exclusive(&self, owner: &mut Owner, target: Target<'_>, timeout: Duration) -> Result<()> {
        assert!(owner.turn.is_none(), "one turn at a time");
        let (row, part) = (self.hash(target), target.part);
        let what = What::Below(target);
        self.enter_turn(owner.index, row, part);
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            if self.entries(row).get(&row.0).is_some_and(|entry| entry.is_turn_of(owner.index, part)) {
                break Ok(());
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Row(row, part), seen, &what) {
                break Err(error);
            }
        };
        wait.end(owner);
        match outcome {
            Ok(()) => owner.turn = Some(row),
            Err(_) => self.leave_turn(owner.index, row),
        }
        outcome
    }

    /// Ends the turn that [`wait_exclusive`](Self::wait_exclusive) gave, if there is one: the next writer or the readers go
    /// on.
    pub fn end_exclusive(&self, owner: &mut Owner) {
        if let Some(row) = owner.turn.take() {
            self.leave_turn(owner.index, row);
        }
    }

    fn enter_turn(&self, owner: u32, row: RowHash, part: Part) {
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        if entry.sharers.has(owner, part) {
            // No turn of this part is running: it would need this owner's shared lock gone. One may if the lock was inherited;
            // both then look again and find each other's work.
            entry.turns.push_front((owner, part));
        } else {
            entry.turns.push_back((owner, part));
        }
    }

    pub(crate) fn leave_turn(&self, owner: u32, row: RowHash) {
        self.change_entry(row, |entry| entry.turns.retain(|&(writer, _)| writer != owner));
    }
}
