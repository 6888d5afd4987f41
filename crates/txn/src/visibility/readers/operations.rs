//! The operations of readers, and snapshots that several readers share.
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
//! A count is written by plain stores, in one thread at a time. That suffices, because an operation has exclusive
//! access to its transaction.
//!
//! **Sharers.** Further readers may read by the snapshot of the first one, on other threads. They have its slot, which
//! the last of them all frees. So a collector finds the snapshot as long as any of them reads. Each counts its
//! operations in a place of its own, so that no two write the same cache line.

use super::{CANCELLED, Mark, Readers, Slot};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};

impl Readers {
    /// Returns a mark for another reader of the same snapshot. The reader of `mark` stays in use during the call, and
    /// may run an operation.
    #[cold]
    pub(crate) fn share(&self, mark: &Mark) -> Mark {
        // ORDERING: Relaxed, the slot stays taken during the call, and the new reader gets its mark with all that came
        // before.
        self.slot_of(mark).sharers.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed, ordered by the fence of an operation. A collector that reads a late one finds no count.
        let (at, _) = self.sharers.claim_extra(|sharer| sharer.slot.store(mark.slot, Ordering::Relaxed));
        Mark { sharer: Some(at), ..*mark }
    }

    /// Ends a reader whose snapshot was shared. Returns whether it was the last.
    #[cold]
    pub(super) fn end_sharer(&self, mark: &Mark) -> bool {
        mark.sharer.iter().for_each(|&at| self.sharers.release(at));
        let sharers = &self.slot_of(mark).sharers;
        if mutant("readers: each reader frees a shared slot") {
            return true;
        }
        if mutant("readers: looks for sharers and ends in two steps") {
            // ORDERING: as below.
            return sharers.load(Ordering::Acquire) == 0 || sharers.fetch_sub(1, Ordering::AcqRel) == 0;
        }
        // ORDERING: AcqRel, what the others have read was read before the slot is free. Acquire, as above: the last
        // reader subtracts nothing.
        sharers.fetch_update(Ordering::AcqRel, Ordering::Acquire, |others| others.checked_sub(1)).is_err()
    }

    /// Returns where the reader counts its operations.
    #[inline]
    fn operations_of(&self, mark: &Mark) -> &AtomicUsize {
        match mark.sharer {
            Some(at) if !mutant("readers: sharers count their operations in one place") => {
                &self.sharers.slot(at).expect("a sharer has its place").operations
            }
            _ => &self.slot_of(mark).operations,
        }
    }

    /// Counts an operation of the reader, and returns whether it may read. In both cases
    /// [`end_operation`](Self::end_operation) ends the operation.
    #[inline]
    pub(crate) fn begin_operation(&self, mark: &Mark) -> bool {
        let operations = self.operations_of(mark);
        // ORDERING: Relaxed, the reader's own.
        let before = operations.load(Ordering::Relaxed);
        // ORDERING: Relaxed, ordered by the fence.
        operations.store(before + 1, Ordering::Relaxed);
        if !mutant("readers: no fence behind the count of an operation") {
            // Store, fence, look: pairs with the fence of `is_any_cancelled_at_work`.
            self.operations.light();
        }
        !self.is_cancelled(mark)
    }

    /// Ends an operation of the reader.
    #[inline]
    pub(crate) fn end_operation(&self, mark: &Mark) {
        let operations = self.operations_of(mark);
        // ORDERING: Relaxed, the reader's own.
        let before = operations.load(Ordering::Relaxed);
        // ORDERING: Release, the operation's reads come before; pairs with `is_any_cancelled_at_work`.
        operations.store(before.saturating_sub(1), Ordering::Release);
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
        let first = self.in_use().any(|(_, slot)| {
            // ORDERING: Acquire, pairs with `end_operation`, and with `release` if another reader has the slot by now.
            let state = slot.state.load(Ordering::Acquire);
            // ORDERING: as above.
            state == CANCELLED && slot.operations.load(Ordering::Acquire) > 0
        });
        if first || mutant("readers: operations of sharers are not looked for") {
            return first;
        }
        self.sharers.extra_in_use().any(|(_, sharer)| {
            // ORDERING: Acquire, pairs with `end_operation`. The slot is that of the count, or of a later sharer.
            let is_at_work = sharer.operations.load(Ordering::Acquire) > 0;
            // ORDERING: Relaxed, as above.
            let slot = self.slots.slot(sharer.slot.load(Ordering::Relaxed));
            is_at_work && slot.is_some_and(Slot::is_cancelled)
        })
    }
}
