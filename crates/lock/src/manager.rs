//! The lock manager, assembled from its parts: slots, table locks, key locks and waits.

pub(crate) mod owner;
pub(crate) mod requests;
pub(crate) mod row_wait;

use crate::graph::WaitGraph;
use crate::keys::KeyLocks;
use crate::lock_memory::LockMemory;
use crate::slot::Edge;
use crate::slots::Slots;
use crate::table::TableLocks;
use crate::table_head::QueueOrder;
use crate::waits::Waits;
use foreshore_base::Error;
use foreshore_sync::model::mutant;
use std::time::Duration;

/// Sizes of a lock manager.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// Most transactions that run at once.
    pub max_owners: usize,
    /// Counters of shared row locks, 4 bytes each; a power of two. With more counters, fewer writers search a table
    /// because of a reader of another row.
    pub share_slots: usize,
    /// Memory for point locks and intervals, in units of [`UNIT_BYTES`](crate::UNIT_BYTES). A point lock of a short key
    /// takes one unit. When the memory is used up, locks are merged.
    pub memory_units: usize,
    /// Whether intents on tables are entered in words of the owner. If false, all intents go to the lock table.
    pub fast_intents: bool,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self { max_owners: 1024, share_slots: 1 << 14, memory_units: 1 << 18, fast_intents: true }
    }
}

/// Counters of the lock manager since its start, and the memory in use now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Requests that had to wait.
    pub waits: u64,
    /// Waits that were refused to break a deadlock.
    pub deadlocks: u64,
    /// Waits that reached their timeout.
    pub timeouts: u64,
    /// Common memory that transactions have borrowed for point locks and intervals, in units of
    /// [`UNIT_BYTES`](crate::UNIT_BYTES).
    pub units_borrowed: u64,
}

/// Locks of tables and rows, and the waits for them.
///
/// Every wait parks its thread. It ends by a grant, or by an error after which the owner rolls its transaction back:
///
/// - [`Error::Deadlock`]: the owner was chosen as the victim of a cycle.
/// - [`Error::OwnThreadLock`]: the wait is for a transaction that this same thread was the last to use.
/// - [`Error::LockTimeout`]: the timeout has passed. A timeout of [`Duration::MAX`] means no limit.
#[derive(Debug)]
pub struct LockManager {
    slots: Slots,
    tables: TableLocks,
    keys: KeyLocks,
    waits: Waits,
}

impl LockManager {
    /// Returns a lock manager in which nothing is locked.
    ///
    /// # Panics
    /// When `max_owners` does not fit 32 bits or `share_slots` is not a power of two.
    #[must_use]
    pub fn new(options: LockOptions) -> Self {
        let LockOptions { max_owners, share_slots, memory_units, fast_intents } = options;
        Self {
            slots: Slots::new(max_owners),
            tables: TableLocks::new(max_owners, fast_intents),
            keys: KeyLocks::new(share_slots, LockMemory::new(memory_units, max_owners)),
            waits: Waits::new(),
        }
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> LockStats {
        let [waits, deadlocks, timeouts] = self.waits.counts();
        LockStats { waits, deadlocks, timeouts, units_borrowed: self.keys.memory().borrowed() as u64 }
    }

    /// Returns the waits for locks, with their clock and the locks waited for longest.
    #[must_use]
    pub const fn waits(&self) -> &Waits {
        &self.waits
    }

    fn graph(&self) -> WaitGraph<'_> {
        WaitGraph { slots: &self.slots, tables: &self.tables, keys: &self.keys, order: QueueOrder::Counts }
    }

    /// Returns label and age of the transaction that has run longest.
    #[must_use]
    pub fn oldest(&self) -> Option<(&'static str, Duration)> {
        self.slots.oldest().map(|(label, began)| (label, self.waits.now().since(began)))
    }

    /// Returns label and age of the transaction in slot `index`; `None` when it has ended.
    #[must_use]
    pub fn running(&self, index: usize) -> Option<(&'static str, Duration)> {
        let (label, began) = self.slots.used().get(index)?.running()?;
        Some((label, self.waits.now().since(began)))
    }

    /// Returns whether a wait for memory that running transactions hold may end. It may end if one of `holders` is not
    /// in `waiters`, and waits, by way of locks, for none of them. Owners are given by their indices.
    ///
    /// Such a wait ends when *any* holder frees memory. So it has no edge to one owner, and the search for cycles of
    /// locks does not include it. The manager of the memory knows the holders and the waiters. It calls this method
    /// whenever a wait of either kind begins (see [`Waits::watch`]).
    #[must_use]
    pub fn any_goes_on(&self, holders: &[usize], waiters: &[usize]) -> bool {
        let waits = |owner: u32| waiters.contains(&(owner as usize));
        holders.iter().any(|&holder| !self.graph().leads_to(holder as u32, waits))
    }

    /// Ends all waits for locks, including those that begin later. Waits in queues end with `cause`. Waits for holders
    /// of rows return normally, and the caller checks why. If it is called twice, the first cause stays.
    pub fn stop(&self, cause: &Error) {
        self.waits.set_stopped(cause);
        for index in 0..self.slots.used().len() as u32 {
            if let Edge::Holder { row, .. } = self.slots.get(index).edge()
                && !mutant("lock: a stop wakes no waiter of a row")
            {
                self.slots.parking().unpark_all(row.park_key(), 0);
            }
            if !mutant("lock: a stop wakes no waiter of a queue") {
                self.slots.wake(&[index]);
            }
        }
    }
}
