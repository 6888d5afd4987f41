//! Guards that hold the latch of a page, and keep the page in its frame, until they are dropped.

use crate::format::{AT_LSN, AT_PID, PAGE_HEADER, page_lsn};
use crate::memory::{Memory, Slot};
use crate::optimistic::OptimisticGuard;
use crate::page::PageMut;
use crate::position::PagePosition;
use crate::words;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{GroupNo, Lsn, PageId};
use std::ops::{Deref, Range};

/// A guard that holds a latch, in either mode.
pub(crate) trait LatchGuard<'a>: Sized {
    /// Latches the page in the frame if that needs no wait.
    fn try_latch(slot: Slot<'a>) -> Option<Self>;

    /// Latches the page in the frame, and waits for other holders. A latch is held for a few hundred instructions, or
    /// during the read of that very page.
    fn latch(slot: Slot<'a>) -> Self;

    /// Returns the frame.
    fn slot(&self) -> Slot<'a>;
}

/// Shared access to a page.
#[derive(Debug)]
#[must_use = "the page is unlatched when the guard is dropped"]
pub struct SharedGuard<'a> {
    slot: Slot<'a>,
}

impl<'a> LatchGuard<'a> for SharedGuard<'a> {
    #[inline]
    fn try_latch(slot: Slot<'a>) -> Option<Self> {
        slot.frame().latch().try_lock_shared().then(|| Self { slot })
    }

    #[inline]
    fn latch(slot: Slot<'a>) -> Self {
        slot.frame().latch().lock_shared(slot.parks());
        Self { slot }
    }

    #[inline]
    fn slot(&self) -> Slot<'a> {
        self.slot
    }
}

impl<'a> SharedGuard<'a> {
    /// Returns the id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.slot.frame().pid()
    }

    /// Returns the stamp of the last logged change.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        page_lsn(self)
    }

    /// Returns the version of the page in memory. As long as the page stays in memory, equal versions mean equal bytes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.slot.frame().latch().optimistic_version().expect("a shared latch excludes an exclusive one")
    }

    /// Returns an optimistic guard of the page. It may outlive this guard; reads before the end of this guard validate.
    pub fn as_optimistic(&self) -> OptimisticGuard<'a> {
        OptimisticGuard::new(self.slot, self.pid(), self.version())
    }
}

impl Deref for SharedGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the shared latch is held until the guard is dropped, and the slice does not outlive the guard.
        unsafe { self.slot.bytes() }
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.slot.frame().latch().unlock_shared(self.slot.parks());
    }
}

/// Exclusive access to a page: reads by slice, writes through [`PageMut`].
///
/// A logged change goes through [`crate::change()`], which marks the page dirty, appends the record and sets the LSN.
#[derive(Debug)]
#[must_use = "the page is unlatched when the guard is dropped"]
pub struct ExclusiveGuard<'a> {
    slot: Slot<'a>,
    /// Whether the release must make optimistic reads fail.
    changed: bool,
    /// Whether another thread held the latch when this one asked for it.
    waited: bool,
}

impl<'a> LatchGuard<'a> for ExclusiveGuard<'a> {
    #[inline]
    fn try_latch(slot: Slot<'a>) -> Option<Self> {
        slot.frame().latch().try_lock_exclusive().then(|| Self::adopt(slot))
    }

    #[inline]
    fn latch(slot: Slot<'a>) -> Self {
        let latch = slot.frame().latch();
        let waited = !latch.try_lock_exclusive();
        if waited {
            latch.lock_exclusive(slot.parks());
        }
        Self { slot, changed: false, waited }
    }

    #[inline]
    fn slot(&self) -> Slot<'a> {
        self.slot
    }
}

impl<'a> ExclusiveGuard<'a> {
    /// Takes over the exclusive hold of the latch.
    pub(crate) fn adopt(slot: Slot<'a>) -> Self {
        Self { slot, changed: false, waited: false }
    }

    /// Latches the page at `position`, if it has not changed since and no other thread holds the latch.
    pub(crate) fn at(memory: &'a Memory, position: PagePosition) -> Option<Self> {
        Self::at_version(memory.slot(position.no), position.version)
    }

    /// Latches the page in the frame if its version is `version` and no other thread holds the latch.
    fn at_version(slot: Slot<'a>, version: u64) -> Option<Self> {
        slot.frame().latch().try_upgrade(version).then(|| Self::adopt(slot))
    }

    /// Returns the id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.slot.frame().pid()
    }

    /// Returns the stamp of the last logged change.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        page_lsn(self)
    }

    /// Returns whether another thread held the latch when this guard was asked for.
    #[must_use]
    pub const fn has_waited(&self) -> bool {
        self.waited
    }

    /// Returns whether the page differs from its home on disk.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.slot.frame().is_dirty()
    }

    /// Marks the page dirty, **before** the record of a change is appended. A dirty page is written home before it is
    /// evicted, and checkpoints keep the log that it needs.
    pub fn mark_dirty(&mut self) {
        self.changed = true;
        self.slot.set_dirty();
    }

    /// Marks the page dirty like [`ExclusiveGuard::mark_dirty`], for redo of a record in `group`.
    pub fn set_rec_group_for_redo(&mut self, group: GroupNo) {
        self.changed = true;
        self.slot.set_redone(group);
    }

    /// Sets the LSN to that of the change just logged. The page is dirty, and LSNs only grow.
    pub fn set_lsn(&mut self, lsn: Lsn) {
        let before = self.lsn();
        assert!(lsn > before, "page {} goes from lsn {before} to {lsn}", self.pid());
        assert!(self.is_dirty(), "page {} gets lsn {lsn} while clean", self.pid());
        self.write(AT_LSN, &lsn.0.to_le_bytes());
    }

    /// Makes optimistic reads of the page fail although its bytes stay, because the page leaves its structure.
    pub fn expire_reads(&mut self) {
        self.changed = true;
    }

    /// Returns the position of the page after this guard is dropped, if the guard does not change the page any more.
    #[must_use]
    pub fn position(&self) -> PagePosition {
        PagePosition { no: self.slot.no(), version: self.slot.frame().latch().version_after(self.changed) }
    }

    /// Converts to shared access, without a gap for another writer.
    pub fn downgrade(self) -> SharedGuard<'a> {
        let slot = self.slot;
        // The shared guard takes the latch over.
        std::mem::forget(self);
        slot.frame().latch().downgrade(slot.parks());
        SharedGuard { slot }
    }

    /// Fills the page with zeros, except for its id and LSN. The LSN stays, so that the LSNs of the page keep growing
    /// when its id is reused.
    pub(crate) fn blank(&mut self) {
        let pid = self.pid();
        self.fill(0..AT_PID, 0);
        self.write(AT_PID, &pid.0.to_le_bytes());
        self.fill(AT_LSN + 8..PAGE_SIZE, 0);
    }

    /// Puts a whole page as read from disk, or a blank one, into a frame that was just taken.
    pub(crate) fn put(&mut self, page: &[u8]) {
        assert_eq!(page.len(), PAGE_SIZE, "a whole page");
        self.write(0, page);
    }
}

const _: () = assert!(AT_PID + 8 == AT_LSN && AT_LSN + 8 < PAGE_HEADER);

impl Deref for ExclusiveGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: only this guard stores to the page, through `&mut self`, and the slice borrows `self`.
        unsafe { self.slot.bytes() }
    }
}

impl PageMut for ExclusiveGuard<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    #[inline]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.changed = true;
        words::store(self.slot.words(), offset, bytes);
    }

    fn copy_within(&mut self, src: Range<usize>, dst: usize) {
        self.changed = true;
        words::shift(self.slot.words(), src, dst);
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) {
        self.changed = true;
        words::fill(self.slot.words(), range, byte);
    }
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        let (latch, parks) = (self.slot.frame().latch(), self.slot.parks());
        if self.changed {
            latch.unlock_exclusive(parks);
        } else {
            latch.unlock_exclusive_unchanged(parks);
        }
    }
}

impl<'a> OptimisticGuard<'a> {
    /// Converts to exclusive access if the reads validate and no other thread holds the latch.
    #[must_use]
    pub fn try_upgrade(self) -> Option<ExclusiveGuard<'a>> {
        ExclusiveGuard::at_version(self.slot(), self.version())
    }
}
