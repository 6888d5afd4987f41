//! Pins: pages that stay in memory without a latch.

use crate::guard::{ExclusiveGuard, SharedGuard, Slot};
use foreshore_base::PageId;

/// A page that stays in its frame. Latching it neither reads nor fails, so a structure change pins all its pages first.
#[must_use = "the page may be evicted when the pin is dropped"]
pub struct Pinned<'a> {
    slot: Slot<'a>,
    pid: PageId,
}

impl<'a> Pinned<'a> {
    /// Takes over a pin.
    pub(crate) fn adopt(slot: Slot<'a>, pid: PageId) -> Self {
        Self { slot, pid }
    }

    /// Id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.pid
    }

    /// Latches the page shared.
    pub fn shared(&self) -> SharedGuard<'a> {
        // WAIT: park - for the holder of the exclusive latch; latches are held for a few hundred instructions.
        self.slot.frame().latch.lock_shared(&self.slot.core.parks);
        debug_assert_eq!(self.slot.frame().pid(), self.pid, "a pinned page stays");
        SharedGuard::adopt(self.slot)
    }

    /// Latches the page exclusively.
    pub fn exclusive(&self) -> ExclusiveGuard<'a> {
        // WAIT: park - for the holders of the latch, as above.
        self.slot.frame().latch.lock_exclusive(&self.slot.core.parks);
        debug_assert_eq!(self.slot.frame().pid(), self.pid, "a pinned page stays");
        ExclusiveGuard::adopt(self.slot, false)
    }

    /// Latches the page exclusively if that needs no wait.
    #[must_use]
    pub fn try_exclusive(&self) -> Option<ExclusiveGuard<'a>> {
        let guard = || ExclusiveGuard::adopt(self.slot, false);
        self.slot.frame().latch.try_lock_exclusive().then(guard)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.slot.frame().unpin();
    }
}
