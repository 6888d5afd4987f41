//! The operations of readers, and slots that several readers share.
//!
//! **Operations.** A cancelled reader may be in the middle of an operation, and detects the cancellation at its end.
//! The resources that the operation may still access, such as the pages of a dropped table, are reused only after it.
//!
//! - Reader: counts its operation; light fence; reads if it is not cancelled.
//! - Collector: finds the reader cancelled; heavy fence; reads the count.
//!
//! If the reader's fence is first, the collector sees the count. If the collector's is first, the reader sees its
//! cancellation, which came before that fence. No reader looks at another, so two light fences need no order.
//!
//! The fences for operations are those of a `SparingFence`: a reader makes none, and the collector pays for both. A
//! collector that finds no cancelled reader makes none either. The fences for snapshots are equal, because collectors
//! run as often as readers begin.
//!
//! **Shared slots.** Several readers may have one snapshot, and then one slot, each with a [`Mark`] of its own. Their
//! operations are counted together, by exchanges. The last of them frees the slot. A reader that shares its slot with
//! none writes the count by plain stores, in one thread at a time. That suffices, because an operation has exclusive
//! access to its transaction.

use super::{CANCELLED, Mark, Readers, Slot};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;

impl Readers {
    /// Returns a mark for another reader of the same snapshot. Called outside of the reader's operations, by the owner
    /// of its mark.
    pub(crate) fn share(&self, mark: &Mark) -> Mark {
        let sharers = &self.slot_of(mark).sharers;
        // ORDERING: Relaxed, while it is 0 this reader alone has the slot, and no other makes it 0. The new reader gets
        // its mark with all that came before.
        if sharers.load(Ordering::Relaxed) == 0 {
            // ORDERING: as above.
            sharers.store(2, Ordering::Relaxed);
        } else {
            // ORDERING: as above.
            sharers.fetch_add(1, Ordering::Relaxed);
        }
        Mark { slot: mark.slot, csn: mark.csn, frozen: mark.frozen, hi: mark.hi }
    }

    /// Counts an operation of the reader, and returns whether it may read. In both cases
    /// [`end_operation`](Self::end_operation) ends the operation.
    #[inline]
    pub(crate) fn begin_operation(&self, mark: &Mark) -> bool {
        let slot = self.slot_of(mark);
        if slot.is_shared() {
            // ORDERING: Relaxed, ordered by the fence.
            slot.operations.fetch_add(1, Ordering::Relaxed);
        } else {
            // ORDERING: Relaxed, the reader's own.
            let before = slot.operations.load(Ordering::Relaxed);
            // ORDERING: Relaxed, ordered by the fence.
            slot.operations.store(before + 1, Ordering::Relaxed);
        }
        if !mutant("readers: no fence behind the count of an operation") {
            // Store, fence, look: pairs with the fence of `is_any_cancelled_at_work`.
            self.operations.light();
        }
        !slot.is_cancelled()
    }

    /// Ends an operation of the reader.
    #[inline]
    pub(crate) fn end_operation(&self, mark: &Mark) {
        let slot = self.slot_of(mark);
        let before = if slot.is_shared() {
            // ORDERING: Release, the operation's reads come before; pairs with `is_any_cancelled_at_work`. A later
            // change by another sharer goes on with the release sequence.
            slot.operations.fetch_sub(1, Ordering::Release)
        } else {
            // ORDERING: Relaxed, the reader's own.
            let before = slot.operations.load(Ordering::Relaxed);
            // ORDERING: Release, as above.
            slot.operations.store(before.saturating_sub(1), Ordering::Release);
            before
        };
        assert!(before > 0, "an operation of the reader at {} ends and none has begun", mark.csn);
    }

    /// Returns whether a cancelled reader has an operation in progress. The caller has read the slots before, and has
    /// seen the cancellation.
    pub(crate) fn is_any_cancelled_at_work(&self) -> bool {
        // A reader that was seen as cancelled, and is not any more, has ended, and so have its operations.
        if !self.in_use().any(|(_, slot)| slot.is_cancelled()) {
            return false;
        }
        if !mutant("readers: no fence before the look at operations") {
            // Store, fence, look: pairs with the fence of `begin_operation`.
            self.operations.heavy();
        }
        self.in_use().any(|(_, slot)| {
            // ORDERING: Acquire, pairs with `end_operation`, and with `release` if another reader has the slot by now.
            let state = slot.state.load(Ordering::Acquire);
            // ORDERING: as above.
            state == CANCELLED && slot.operations.load(Ordering::Acquire) > 0
        })
    }
}

impl Slot {
    /// Whether several readers may have the slot.
    #[inline]
    fn is_shared(&self) -> bool {
        // ORDERING: Relaxed, as in `share`.
        self.sharers.load(Ordering::Relaxed) > 0 && !mutant("readers: shared operations are counted by plain stores")
    }
}
