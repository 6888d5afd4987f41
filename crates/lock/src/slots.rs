//! The slots of all owners, and the park table in which the threads of waiting owners sleep.

use crate::hash::RowHash;
use crate::slot::{Edge, Slot};
use foreshore_base::Xid;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, Nanos, ParkTable};

/// The slots of all owners, with a park table. An owner that waits in the queue of a lock parks at the number of its
/// slot. An owner that waits for the holder of a row parks at the row's hash.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    free: Mutex<Vec<u32>>,
    /// One above the highest slot number that was ever leased. Scans over the slots end there.
    used: AtomicU32,
    park: ParkTable,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        let count = u32::try_from(count).expect("owners are numbered in 32 bits");
        Self {
            slots: (0..count).map(|index| CachePadded::new(Slot::new(index))).collect(),
            free: Mutex::new(LockRank::Leaf, (0..count).rev().collect()),
            used: AtomicU32::new(0),
            park: ParkTable::new(),
        }
    }

    pub(crate) fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// Returns the slots up to the highest one that was ever leased. Later ones have no owner.
    pub(crate) fn used(&self) -> &[CachePadded<Slot>] {
        // ORDERING: Acquire, pairs with `lease`: if the caller has read an xid, the slot of its owner is included.
        &self.slots[..self.used.load(Ordering::Acquire) as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn lease(&self) -> Option<u32> {
        let index = self.free.lock().pop()?;
        debug_assert!(self.get(index).running().is_none(), "owner {index} is leased while its transaction runs");
        // ORDERING: raise; pairs with `used`.
        self.used.fetch_max(index + 1, Ordering::AcqRel);
        Some(index)
    }

    pub(crate) fn give_back(&self, index: u32) {
        let mut free = self.free.lock();
        debug_assert!(!free.contains(&index), "owner {index} is given back twice");
        free.push(index);
    }

    /// Returns the slot that publishes `xid`; `None` if the transaction has ended or is hidden. Takes no slot's lock.
    /// The search misses no published xid that the caller read in a tuple header: it was published before the header
    /// was written.
    fn find(&self, xid: Xid) -> Option<(u32, &Slot)> {
        (0..).zip(self.used()).find(|(_, slot)| slot.shows(xid)).map(|(index, slot)| (index, &**slot))
    }

    /// Adds the row to the wake-up obligations of `holder`: when the holder ends, it wakes a waiter of the row. Returns
    /// the holder's slot and the wait-graph edge to it; `None` if the holder has ended or is hidden.
    pub(crate) fn oblige(&self, holder: Xid, row: RowHash) -> Option<(&Slot, Edge)> {
        let (index, slot) = self.find(holder)?;
        slot.oblige_as(holder, row).map(|term| (slot, Edge::Holder { index, term, row }))
    }

    /// Returns the label of the transaction with `xid`; `None` if it has ended or is hidden.
    pub(crate) fn label_of(&self, xid: Xid) -> Option<&'static str> {
        self.find(xid).and_then(|(_, slot)| slot.label_as(xid))
    }

    /// Returns the label and the start time of the transaction that has run longest.
    pub(crate) fn oldest(&self) -> Option<(&'static str, Nanos)> {
        self.used().iter().filter_map(|slot| slot.running()).min_by_key(|&(_, began)| began)
    }

    /// Returns whether the calling thread works for a transaction other than that of slot `index`.
    pub(crate) fn has_another_of_this_thread(&self, index: u32) -> bool {
        (0..).zip(self.used()).any(|(other, slot)| other != index && slot.is_of_this_thread())
    }

    pub(crate) fn parking(&self) -> &ParkTable {
        &self.park
    }

    /// Wakes owners that wait in queues, so that they check again. The wake-up is spurious for an owner that has left
    /// its queue.
    pub(crate) fn wake(&self, owners: &[u32]) {
        for &index in owners {
            self.get(index).raise_signal();
            self.park.unpark_one(u64::from(index), 0);
        }
    }

    /// Wakes one waiter of a row.
    pub(crate) fn wake_row(&self, row: RowHash) {
        self.park.unpark_one(row.park_key(), 0);
    }

    /// Wakes owner `index` if it is parked at the row, so that it checks the row again. Other waiters stay parked.
    pub(crate) fn wake_at_row(&self, row: RowHash, index: u32) {
        self.park.unpark_role(row.park_key(), index, 0);
    }
}
