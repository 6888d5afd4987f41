//! Owners: the lease of a slot by a transaction, from its begin to the release of its locks.

use super::LockManager;
use crate::held::Held;
use crate::interval::Interval;
use crate::mode::TableMode;
use crate::slot::Slot;
use crate::victim::Attempt;
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_sync::{Nanos, thread_index};
use std::sync::Arc;

/// A transaction's lease of a slot, with what it holds. Dropped: releases everything.
#[derive(Debug)]
pub struct Owner {
    manager: Arc<LockManager>,
    pub(super) held: Held,
    began: Nanos,
    /// As the slot has it, which others read, until its transaction ends.
    thread: Option<usize>,
}

/// Keys of a table that are locked shared. A point lock is the interval of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRange {
    /// The table.
    pub table: TableId,
    /// The keys.
    pub keys: Interval,
}

impl Owner {
    /// Returns the number of the slot, below [`LockOptions::max_owners`](crate::LockOptions::max_owners). No other
    /// owner has it now.
    #[must_use]
    pub fn index(&self) -> usize {
        self.held.owner() as usize
    }

    /// Starts a transaction in this slot under `label`, which errors of others will name. The calling thread works for
    /// it.
    ///
    /// # Panics
    /// When locks of an earlier one are still held.
    pub fn begin(&mut self, label: &'static str) {
        self.begin_attempt(label, Attempt::default());
    }

    /// Starts a transaction that is run again, as [`begin`](Self::begin) does.
    ///
    /// # Panics
    /// As [`begin`](Self::begin).
    pub fn begin_attempt(&mut self, label: &'static str, attempt: Attempt) {
        assert!(self.held.is_empty(), "a transaction begins without locks");
        self.began = self.manager.waits.now();
        self.slot().begin(label, self.began, attempt);
        self.thread = None;
        self.set_thread(Some(thread_index()));
    }

    /// Returns when the transaction began, by [`Waits::now`](crate::Waits::now).
    #[must_use]
    pub const fn began(&self) -> Nanos {
        self.began
    }

    /// Names the thread that works for the transaction: the one without which it does not end. `None` where another
    /// can end it, too.
    pub fn set_thread(&mut self, thread: Option<usize>) {
        if self.thread != thread {
            self.thread = thread;
            self.slot().set_thread(thread);
        }
    }

    /// Sets what the transaction has to undo, by which victims of deadlocks are chosen.
    pub fn set_undo_bytes(&mut self, bytes: u64) {
        self.slot().set_undo_bytes(bytes);
    }

    /// Shows the xid to the waiters for it. Called before the xid is written to a tuple header.
    pub fn set_xid(&mut self, xid: Xid) {
        self.slot().show(xid);
    }

    /// Returns the tables that it has locked.
    #[must_use]
    pub fn held_tables(&self) -> &[(TableId, TableMode)] {
        self.held.tables()
    }

    /// Returns the keys that it has locked shared.
    #[must_use]
    pub fn held_ranges(&self) -> Vec<HeldRange> {
        let point = |(table, key)| HeldRange { table, keys: Interval::of_key(key) };
        let mut all: Vec<HeldRange> = self.held.points().map(point).collect();
        for table in self.held.range_tables() {
            let ranges = self.manager.keys.ranges().of(self.held.owner(), table);
            all.extend(ranges.iter().map(|keys| HeldRange { table, keys: keys.clone() }));
        }
        all
    }

    fn slot(&self) -> &Slot {
        self.manager.slots.get(self.held.owner())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let manager = self.manager.clone();
        manager.finish(self, None);
        manager.slots.give_back(self.held.owner());
    }
}

impl LockManager {
    /// Leases a slot for a transaction, or for one after another (see [`Owner::begin`]).
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`] when all slots are leased.
    pub fn lease(self: &Arc<Self>, label: &'static str) -> Result<Owner> {
        let Some(index) = self.slots.lease() else {
            let oldest = self.slots.oldest().map_or("", |(label, _)| label);
            return Err(Error::TooManyTransactions { max: self.slots.len(), oldest });
        };
        let held = Held::new(index, self.keys.memory().own());
        let mut owner = Owner { manager: self.clone(), held, began: Nanos::ZERO, thread: None };
        owner.begin(label);
        Ok(owner)
    }

    /// Releases everything that `owner` holds and wakes the waiters for it. The slot is ready for the next transaction.
    ///
    /// A committer calls it after its commit record is appended and its status is set, with its commit number: tables
    /// in which it wrote are tagged with it. From here on no thread may see it as live.
    pub fn finish(&self, owner: &mut Owner, csn: Option<Csn>) {
        self.end_exclusive(owner);
        self.release_tables(&mut owner.held, csn, |_| true);
        self.keys.release(&self.slots, &mut owner.held);
        // The status is final before the obligations come out, so that a waiter that registers later finds the term
        // over or the holder dead.
        owner.slot().end().into_iter().for_each(|row| self.slots.wake_row(row));
        debug_assert!(owner.held.is_empty(), "an owner has finished with locks: {owner:?}");
    }

    /// Releases the shared locks of `owner` before the others, at its commit: those of keys, and those of tables in
    /// which it wrote nothing.
    pub fn release_shared(&self, owner: &mut Owner) {
        self.release_tables(&mut owner.held, None, |mode| !mode.writes());
        self.keys.release(&self.slots, &mut owner.held);
    }

    fn release_tables(&self, held: &mut Held, csn: Option<Csn>, goes: fn(TableMode) -> bool) {
        let owner = held.owner();
        held.take_tables(goes).for_each(|lock| self.tables.release(&self.slots, owner, lock, csn));
    }

    /// Takes keys that were held when the manager before ended. Before any other owner asks for a lock.
    pub fn take_ranges(&self, owner: &mut Owner, held: &[HeldRange]) {
        held.iter().for_each(|HeldRange { table, keys }| self.keys.restore(&self.slots, &mut owner.held, *table, keys));
    }
}
