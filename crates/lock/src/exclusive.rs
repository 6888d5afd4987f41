//! Turns of writers that met readers.

use crate::hash::RowHash;
use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use crate::target::Target;
use foreshore_base::{Result, TableId};
use std::time::Duration;

impl LockManager {
    /// Waits until no other transaction has the key shared, by a point lock or by an interval. On return new readers of
    /// it, and new intervals with it, wait for this writer.
    ///
    /// A writer that has the key shared itself (an upgrade) goes ahead of those that have not, because they wait for
    /// its lock too. Two upgrades are a deadlock.
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
        let row = self.hash(target);
        let what = What::Row(target);
        self.enter_turn(owner, row, target);
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            if self.is_turn(owner.index, row, target) {
                break Ok(());
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Turn(row, target.table), seen, &what) {
                break Err(error);
            }
        };
        wait.end(owner);
        match outcome {
            Ok(()) => owner.turn = Some((row, target.table)),
            Err(_) => self.leave_turn(owner.index, row, target.table),
        }
        outcome
    }

    /// Ends the turn that [`wait_exclusive`](Self::wait_exclusive) gave, if there is one: the next writer or the readers go
    /// on.
    pub fn end_exclusive(&self, owner: &mut Owner) {
        if let Some((row, table)) = owner.turn.take() {
            self.leave_turn(owner.index, row, table);
        }
    }

    /// Keeps new readers out from here on, in the key's entry and in the list of its table.
    fn enter_turn(&self, owner: &Owner, row: RowHash, target: Target<'_>) {
        let covers = self.covers_itself(owner, target);
        self.enter_range_queue(owner.index, row, target);
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        let turns = &entry.turns;
        assert!(!turns.contains(&owner.index), "writer {} enters its turn twice: {turns:?}", owner.index);
        if covers || entry.sharers.has(owner.index) {
            // A turn may be running, if this owner's locks were widened over the key meanwhile. Then both look again,
            // and find each other's work.
            entry.turns.insert(0, owner.index);
        } else {
            entry.turns.push(owner.index);
        }
    }

    /// Whether nothing keeps the writer from the key. The looks at the entry and at the list need not be one: while the
    /// writer stands in both, foreign locks of the key only go, but for widened ones, which the writer meets under its
    /// latch.
    fn is_turn(&self, owner: u32, row: RowHash, target: Target<'_>) -> bool {
        let is_first = self.entries(row).get(&row.0).is_some_and(|entry| entry.is_turn_of(owner));
        is_first && !self.is_covered(owner, target)
    }

    fn leave_turn(&self, owner: u32, row: RowHash, table: TableId) {
        self.leave_range_queue(owner, table);
        self.change_entry(row, |entry| {
            let at = entry.turns.iter().position(|&writer| writer == owner);
            assert!(at.is_some(), "writer {owner} leaves the turns {:?}, which it has not entered", entry.turns);
            at.map(|at| entry.turns.remove(at));
        });
    }
}
