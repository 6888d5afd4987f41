//! Counters of shared row locks. A writer detects readers with one load, and a reader detects a writer by the tuple
//! header.
//!
//! **Contract.** A counter is the number of shared row entries whose hash maps to its slot. It is larger between an
//! entry's removal and its decrement. It is smaller between an entry's insertion and its increment.
//!
//! 1. A reader enters its entry, **announces** it, and only then reads the tuple header.
//! 2. A writer stores its xid in the header, and only then **checks** the counter. Either it sees the count, or the
//!    reader sees the xid.
//! 3. A reader removes its entry, and only then **retires** it, when its commit record is appended. So a writer that
//!    finds zero comes after the reader's commit. A reader may remove an entry earlier if it has returned nothing that
//!    it read under the entry. It may also do so if an interval of its own covers the key.
//! 4. Each slot has one counter, never a sum over several. A sum that is read piece by piece may be zero although the
//!    true sum never was. [`crate::range`] says why its counts of stripes may be read so.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering, fence};
use foreshore_sync::rmw;

/// Counters of shared row entries, by slot of the row's hash.
#[derive(Debug)]
pub(crate) struct ShareCounts {
    slots: Box<[AtomicU32]>,
}

impl ShareCounts {
    /// Returns `slots` counters; `slots` is a power of two.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "slots are found by a mask");
        Self { slots: (0..slots).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Counts an entry. The caller reads the header afterwards.
    pub(crate) fn announce(&self, hash: u64) {
        rmw::contended(1);
        // ORDERING: store, fence, look; pairs with the fence in `is_zero`.
        self.slot(hash).fetch_add(1, Ordering::Relaxed);
        if !mutant("share count: no fence after announcing") {
            fence(Ordering::SeqCst);
        }
    }

    /// Uncounts an entry that was removed from the table before.
    pub(crate) fn retire(&self, hash: u64) {
        // ORDERING: count down, Release: a writer that reads zero sees this transaction's commit; pairs with `is_zero`.
        let order = if mutant("share count: relaxed retirement") { Ordering::Relaxed } else { Ordering::Release };
        rmw::contended(1);
        let before = self.slot(hash).fetch_sub(1, order);
        assert!(before > 0, "an entry is retired once");
    }

    /// Returns whether the slot counts no entry. The caller has stored its xid in the header before.
    pub(crate) fn is_zero(&self, hash: u64) -> bool {
        // ORDERING: store, fence, look; pairs with the fence in `announce`. Acquire, pairs with `retire`.
        if !mutant("share count: no fence before looking") {
            fence(Ordering::SeqCst);
        }
        self.slot(hash).load(Ordering::Acquire) == 0
    }

    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }
}
