//! Owners: the lease of a slot by a transaction, from its start to the release of its locks.

use super::LockManager;
use crate::held::Held;
use crate::interval::Interval;
use crate::mode::TableMode;
use crate::slot::Slot;
use crate::victim::Attempt;
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_sync::{Nanos, thread_index};
use std::sync::Arc;
use std::time::Duration;

/// A transaction's lease of a slot, with the locks that it holds. Dropping it releases everything.
#[derive(Debug)]
pub struct Owner {
    manager: Arc<LockManager>,
    pub(super) held: Held,
    began: Nanos,
    /// A copy of the thread that the slot publishes, until the transaction ends.
    thread: Option<usize>,
}

/// Keys of a table that an owner has locked shared. A point lock is the interval of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRange {
    /// The table.
    pub table: TableId,
    /// The keys.
    pub keys: Interval,
}

impl Owner {
    /// Returns the number of the slot, which is below [`LockOptions::max_owners`](crate::LockOptions::max_owners). No
    /// other owner has this slot now.
    #[must_use]
    pub fn index(&self) -> usize {
        self.held.owner() as usize
    }

    /// Starts a transaction in this slot under `label`, by which errors of other transactions name it. The calling
    /// thread works for it.
    ///
    /// # Panics
    /// When locks of an earlier transaction are still held.
    pub fn begin(&mut self, label: &'static str) {
        self.begin_attempt(label, Attempt::default());
    }

    /// Starts a transaction that is retried, as [`begin`](Self::begin) does.
    ///
    /// # Panics
    /// Those of [`begin`](Self::begin).
    pub fn begin_attempt(&mut self, label: &'static str, attempt: Attempt) {
        assert!(self.held.is_empty(), "a transaction begins without locks");
        // Transactions that begin within one tick of that clock, in different slots, still differ in age.
        self.began = self.manager.waits.recent() + Duration::from_nanos(u64::from(self.held.owner()));
        self.slot().begin(label, self.began, attempt);
        self.thread = None;
        self.set_thread(Some(thread_index()));
    }

    /// Returns when the transaction began, by [`Waits::now`](crate::Waits::now), to some milliseconds.
    #[must_use]
    pub const fn began(&self) -> Nanos {
        self.began
    }

    /// Sets the thread that works for the transaction, without which the transaction cannot end. `None` means that any
    /// thread can end it.
    pub fn set_thread(&mut self, thread: Option<usize>) {
        if self.thread != thread {
            self.thread = thread;
            self.slot().set_thread(thread);
        }
    }

    /// Sets how much the transaction has to undo, by which victims of deadlocks are chosen.
    pub fn set_undo_bytes(&mut self, bytes: u64) {
        self.slot().set_undo_bytes(bytes);
    }

    /// Publishes the xid to the waiters for it. The caller does this before it writes the xid to a tuple header.
    pub fn set_xid(&mut self, xid: Xid) {
        self.slot().show(xid);
    }

    /// Returns the tables that the owner has locked, with their modes.
    #[must_use]
    pub fn held_tables(&self) -> &[(TableId, TableMode)] {
        self.held.tables()
    }

    /// Returns the keys that the owner has locked shared.
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
    /// Leases a slot for one transaction, or for several in turn (see [`Owner::begin`]).
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

    /// Releases everything that `owner` holds, and wakes the waiters for it. The slot is then ready for the next
    /// transaction.
    ///
    /// A committer calls it with its commit number, after its commit record is appended and its status is set. The
    /// tables in which it wrote are tagged with that number. From here on no thread may see the transaction as live.
    pub fn finish(&self, owner: &mut Owner, csn: Option<Csn>) {
        // A transaction that has only read by snapshot has none.
        if !owner.held.is_untouched(self.keys.memory()) {
            self.end_exclusive(owner);
            self.release_tables(&mut owner.held, csn, |_| true);
            self.keys.release(&self.slots, &mut owner.held);
        }
        // The status is final before the obligations are taken out. So a waiter that registers later finds the term
        // over or the holder dead.
        owner.slot().end().into_iter().for_each(|row| self.slots.wake_row(row));
        debug_assert!(owner.held.is_empty(), "an owner has finished with locks: {owner:?}");
    }

    /// Releases the shared locks of `owner` before the others, at its commit: all locks of keys, and those of tables in
    /// which it wrote nothing.
    pub fn release_shared(&self, owner: &mut Owner) {
        self.release_tables(&mut owner.held, None, |mode| !mode.writes());
        self.keys.release(&self.slots, &mut owner.held);
    }

    fn release_tables(&self, held: &mut Held, csn: Option<Csn>, goes: fn(TableMode) -> bool) {
        let owner = held.owner();
        held.take_tables(goes).for_each(|lock| self.tables.release(&self.slots, owner, lock, csn));
    }

    /// Locks the keys that were held in the previous run. It is called before any other owner requests a lock.
    pub fn take_ranges(&self, owner: &mut Owner, held: &[HeldRange]) {
        held.iter().for_each(|HeldRange { table, keys }| self.keys.restore(&self.slots, &mut owner.held, *table, keys));
    }
}
