//! Pins: pages that stay in memory without a latch.

use crate::guard::{ExclusiveGuard, LatchGuard, SharedGuard};
use crate::memory::Slot;
use foreshore_base::PageId;

/// A page that stays in its frame. Its latch needs no read and cannot fail, so a structure change pins all its pages
/// first.
#[derive(Debug)]
#[must_use = "the page may be evicted when the pin is dropped"]
pub struct Pinned<'a> {
    slot: Slot<'a>,
    pid: PageId,
}

impl<'a> Pinned<'a> {
    /// Pins the page that is latched by `guard`.
    pub(crate) fn by(guard: &impl LatchGuard<'a>) -> Self {
        let slot = guard.slot();
        slot.frame().pin();
        Self { slot, pid: slot.frame().pid() }
    }

    /// Adds a pin to page `pid` without a latch, if the page is in the frame and already pinned.
    pub(crate) fn again(slot: Slot<'a>, pid: PageId) -> Option<Self> {
        let pin = slot.frame().pin_again().then(|| Self { slot, pid })?;
        (slot.frame().pid() == pid).then_some(pin)
    }

    /// Returns the id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.pid
    }

    /// Latches the page shared. Waits for the holder of the exclusive latch.
    pub fn shared(&self) -> SharedGuard<'a> {
        self.latch()
    }

    /// Latches the page exclusively. Waits for the holders of the latch.
    pub fn exclusive(&self) -> ExclusiveGuard<'a> {
        self.latch()
    }

    /// Latches the page exclusively if that needs no wait.
    #[must_use]
    pub fn try_exclusive(&self) -> Option<ExclusiveGuard<'a>> {
        ExclusiveGuard::try_latch(self.slot)
    }

    fn latch<G: LatchGuard<'a>>(&self) -> G {
        let guard = G::latch(self.slot);
        debug_assert_eq!(self.slot.frame().pid(), self.pid, "a pinned page stays");
        guard
    }
}

impl<'a> ExclusiveGuard<'a> {
    /// Pins the page, which then stays in memory after this guard is dropped.
    pub fn pin(&self) -> Pinned<'a> {
        Pinned::by(self)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.slot.frame().unpin();
    }
}
