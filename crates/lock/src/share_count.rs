//! How a writer learns of readers with one load, and a reader of a writer with none in any table.
//!
//! Contract of a counter: it is the number of shared row entries whose hash falls into its slot. It is more between an
//! entry's removal and its decrement, and less between an entry and its increment.
//!
//! 1. A reader enters its entry, **announces** it, and only then reads the tuple header.
//! 2. A writer stores its xid in the header, and only then **looks**. Either it sees the count, or the reader sees the
//!    xid.
//! 3. A reader leaves its entry, and only then **retires** it, when its commit record is appended: a writer that finds
//!    the count zero comes after it. A reader that has handed out nothing that it read under its entry, or that an
//!    interval of its own covers, may leave it at any time.
//! 4. It is one counter a slot, never a sum over several: a sum read piece by piece may be zero while it never was.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering, fence};
use foreshore_sync::rmw;

/// Counters of shared row entries by slot of the row's hash.
#[derive(Debug)]
pub(crate) struct ShareCounts {
    slots: Box<[AtomicU32]>,
}

impl ShareCounts {
    /// `slots` counters, a power of two.
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

    /// Ends an entry that is out of the table already.
    pub(crate) fn retire(&self, hash: u64) {
        // ORDERING: count down, Release: a writer that reads zero sees this transaction's commit; pairs with `is_zero`.
        let order = if mutant("share count: relaxed retirement") { Ordering::Relaxed } else { Ordering::Release };
        rmw::contended(1);
        let before = self.slot(hash).fetch_sub(1, order);
        assert!(before > 0, "an entry is retired once");
    }

    /// Whether no entry falls into the slot. The caller has stored its xid in the header before.
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
