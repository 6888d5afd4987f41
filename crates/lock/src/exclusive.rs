//! Turns of writers that met readers.

use crate::hash::RowHash;
use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use foreshore_base::{Result, TableId};
use std::time::Duration;

impl LockManager {
    /// Waits until no other transaction has a shared lock of the row. On return new readers wait for this writer.
    ///
    /// A writer that has a shared lock of the row itself (an upgrade) goes ahead of those that have none, because they wait
    /// for its lock too. Two upgrades of one row are a deadlock.
    ///
    /// The caller latches the page, looks at the header again and, **whatever it finds**, calls
    /// [`end_exclusive`](Self::end_exclusive) before it waits for anything else: the turn keeps out readers, among them the
    /// transaction that the header may name by then.
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout). There is no turn
    /// to end then.
    pub fn wait_exclusive(&self, owner: &mut Owner, table: TableId, key: &[u8], timeout: Duration) -> Result<()> {
        assert!(owner.turn.is_none(), "one turn at a time");
        let row = self.hash(table, key);
        let what = What { table, key: Some(key) };
        self.enter_turn(owner.index, row);
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            if self.entries(row).get(&row.0).is_some_and(|entry| entry.is_turn_of(owner.index)) {
                break Ok(());
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Row(row), seen, &what) {
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

    /// Ends the turn that [`wait_exclusive`](Self::wait_exclusive) gave: the next writer or the readers go on.
    pub fn end_exclusive(&self, owner: &mut Owner, table: TableId, key: &[u8]) {
        let row = self.hash(table, key);
        assert!(owner.turn.take() == Some(row), "the turn that ends is the one that was given");
        self.leave_turn(owner.index, row);
    }

    /// Ends whatever turn `owner` has: it goes on to roll back.
    pub fn forget_turn(&self, owner: &mut Owner) {
        if let Some(row) = owner.turn.take() {
            self.leave_turn(owner.index, row);
        }
    }

    fn enter_turn(&self, owner: u32, row: RowHash) {
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        if entry.sharers.contains(owner) {
            // No turn is running: it would need this owner's shared lock gone.
            entry.turns.push_front(owner);
        } else {
            entry.turns.push_back(owner);
        }
    }

    pub(crate) fn leave_turn(&self, owner: u32, row: RowHash) {
        self.change_entry(row, |entry| entry.turns.retain(|&writer| writer != owner));
    }
}
