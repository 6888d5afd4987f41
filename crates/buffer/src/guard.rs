//! Guards: access to the bytes of a page for as long as they live.

use crate::format::{AT_LSN, AT_PID, PAGE_HEADER, page_lsn};
use crate::frame::{Frame, FrameNo};
use crate::page::PageMut;
use crate::pinned::Pinned;
use crate::pool::Core;
use crate::words::{self, PageWords};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{GroupNo, Lsn, PageId};
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Deref, Range};

/// A frame of a pool. Copies are free; a guard is a slot plus the right to use it.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub(crate) core: &'a Core,
    frame: &'a Frame,
    // Its number, a whole word wide: a guard is then put together without reading what is in its place.
    index: usize,
}

impl<'a> Slot<'a> {
    #[inline]
    pub(crate) fn new(core: &'a Core, no: FrameNo) -> Option<Self> {
        Some(Self { core, frame: core.frames.get(no as usize)?, index: no as usize })
    }

    #[inline]
    pub(crate) fn no(self) -> FrameNo {
        self.index as FrameNo
    }

    #[inline]
    pub(crate) fn frame(self) -> &'a Frame {
        self.frame
    }

    #[inline]
    fn offset(self) -> usize {
        self.index * PAGE_SIZE
    }

    /// Asks for the lines of the page that its reader comes to first, while that of its latch is on its way: the header, what
    /// lies some way behind it, and the end, from which contents grow.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        for at in [0, 256, PAGE_SIZE - 64] {
            self.core.arena.prefetch(self.offset() + at);
        }
    }

    #[inline]
    pub(crate) fn words(self) -> &'a PageWords {
        // SAFETY: the arena has a page for every frame, and `index` is that of a frame.
        let words = unsafe { self.core.arena.words_unchecked(self.offset(), words::PAGE_WORDS) };
        words.try_into().expect("a page of words")
    }

    /// The page as plain bytes.
    ///
    /// # Safety
    /// For as long as the slice lives, nobody stores to the page: the caller holds a shared latch, or the exclusive latch
    /// and does not store itself.
    #[inline]
    pub(crate) unsafe fn bytes(self) -> &'a [u8] {
        // SAFETY: the caller keeps stores away; concurrent optimistic loads do not matter to a reader. The range is inside
        // the arena, which has a page for every frame and lives as long as the pool.
        unsafe { self.core.arena.bytes(self.offset()..self.offset() + PAGE_SIZE) }
    }
}

/// Shared access to a page.
#[must_use = "the page is unlatched when the guard is dropped"]
pub struct SharedGuard<'a> {
    slot: Slot<'a>,
}

impl<'a> SharedGuard<'a> {
    /// Takes over one shared hold of the latch.
    pub(crate) fn adopt(slot: Slot<'a>) -> Self {
        Self { slot }
    }

    pub(crate) fn slot(&self) -> Slot<'a> {
        self.slot
    }

    /// Id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.slot.frame().pid()
    }

    /// Stamp of the last logged change.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        page_lsn(self)
    }

    /// Version of the page in memory: equal versions mean equal bytes, for as long as the page stays in memory.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.slot.frame().latch.optimistic_version().expect("a shared latch excludes an exclusive one")
    }

    /// Goes on without the latch.
    pub(crate) fn into_optimistic(self) -> OptimisticGuard<'a> {
        self.as_optimistic()
    }

    /// The page as a reader without a latch has it. It may outlive this guard; until then what is read validates.
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
        self.slot.frame().latch.unlock_shared(&self.slot.core.parks);
    }
}

/// Exclusive access to a page: reads by slice, writes through [`PageMut`].
///
/// A logged change goes through [`crate::change()`], which marks the page dirty, appends the record and sets the LSN.
#[must_use = "the page is unlatched when the guard is dropped"]
pub struct ExclusiveGuard<'a> {
    pub(crate) slot: Slot<'a>,
    /// Whether the release must make optimistic reads fail.
    pub(crate) changed: bool,
}

impl<'a> ExclusiveGuard<'a> {
    /// Takes over the exclusive hold of the latch. `changed` if the frame has changed under it already.
    pub(crate) fn adopt(slot: Slot<'a>, changed: bool) -> Self {
        Self { slot, changed }
    }

    /// Id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.slot.frame().pid()
    }

    /// Stamp of the last logged change.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        page_lsn(self)
    }

    /// Whether the page differs from its home on disk.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.slot.frame().is_dirty()
    }

    /// Announces a change: from here on the page is written home before its frame is given up, and checkpoints keep the
    /// log that the change needs. Comes **before** the record is appended.
    pub fn mark_dirty(&mut self) {
        self.changed = true;
        let frame = self.slot.frame();
        if !frame.is_dirty() {
            frame.set_dirty(self.slot.core.log.next_group());
            self.slot.core.counters.dirtied.add(1);
        }
    }

    /// [`ExclusiveGuard::mark_dirty`] for redo, where the record stands in `group` already.
    pub fn set_rec_group_for_redo(&mut self, group: GroupNo) {
        self.changed = true;
        if self.slot.frame().set_redone(group) {
            self.slot.core.counters.dirtied.add(1);
        }
    }

    /// Sets the stamp of the change just logged. The page is dirty, and stamps only grow.
    pub fn set_lsn(&mut self, lsn: Lsn) {
        let before = self.lsn();
        assert!(lsn > before, "page {} goes from lsn {before} to {lsn}", self.pid());
        assert!(self.is_dirty(), "page {} gets lsn {lsn} while clean", self.pid());
        self.write(AT_LSN, &lsn.0.to_le_bytes());
    }

    /// Makes what readers without a latch have read of the page count no more, although its bytes stay: the page leaves the
    /// structure that led to it.
    pub fn expire_reads(&mut self) {
        self.changed = true;
    }

    /// Keeps the page in memory until the pin is dropped, beyond the guard.
    pub fn pin(&self) -> Pinned<'a> {
        self.slot.frame().pin();
        Pinned::adopt(self.slot, self.pid())
    }

    /// Goes on with shared access; no writer comes in between.
    pub fn downgrade(self) -> SharedGuard<'a> {
        let slot = self.slot;
        // The shared guard takes the latch over.
        std::mem::forget(self);
        slot.frame().latch.downgrade(&slot.core.parks);
        SharedGuard { slot }
    }

    /// Makes the page one of zeros with its id. Its LSN stays, so that stamps of the page keep growing when its id is used
    /// again.
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
        let (latch, parks) = (&self.slot.frame().latch, &self.slot.core.parks);
        if self.changed {
            latch.unlock_exclusive(parks);
        } else {
            latch.unlock_exclusive_unchanged(parks);
        }
    }
}

/// Access without a latch: nobody waits for the reader, and what it read counts only if [`OptimisticGuard::validate`]
/// says so afterwards.
///
/// Until then any value may be nonsense. Reads outside the page answer zeros instead of a panic, because an offset may be
/// nonsense too; a loop must not depend on a value that was not validated.
pub struct OptimisticGuard<'a> {
    slot: Slot<'a>,
    words: &'a PageWords,
    pid: PageId,
    version: u64,
}

impl<'a> OptimisticGuard<'a> {
    #[inline]
    pub(crate) fn new(slot: Slot<'a>, pid: PageId, version: u64) -> Self {
        Self { slot, words: slot.words(), pid, version }
    }

    /// Id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.pid
    }

    /// The version that the reads are validated against.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Stamp of the last logged change.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.read_u64(AT_LSN))
    }

    /// Copies the bytes of `range` to `out`, which has its length.
    pub fn copy_to(&self, range: Range<usize>, out: &mut [u8]) {
        assert_eq!(range.len(), out.len(), "the range and its copy");
        self.copy_from(range.start, out);
    }

    fn copy_from(&self, offset: usize, out: &mut [u8]) {
        if offset <= PAGE_SIZE && out.len() <= PAGE_SIZE - offset {
            words::load(self.words, offset, out);
        } else {
            out.fill(0);
        }
    }

    /// The eight bytes at `offset`, little-endian.
    #[must_use]
    #[inline]
    pub fn read_u64(&self, offset: usize) -> u64 {
        words::load_u64(self.words, offset)
    }

    /// Compares the bytes of `range` with `bytes`, as slices compare.
    #[must_use]
    pub fn compare(&self, range: Range<usize>, bytes: &[u8]) -> Ordering {
        if range.start <= range.end && range.end <= PAGE_SIZE {
            words::compare(self.words, range, bytes)
        } else {
            [].as_slice().cmp(bytes)
        }
    }

    /// Whether everything read so far was one state of the page.
    #[must_use]
    #[inline]
    pub fn validate(&self) -> bool {
        self.slot.frame().latch.validate(self.version)
    }

    /// Goes on with exclusive access if what was read still holds and nobody is in the way.
    #[must_use]
    pub fn try_upgrade(self) -> Option<ExclusiveGuard<'a>> {
        let Self { slot, version, .. } = self;
        slot.frame().latch.try_upgrade(version).then(|| ExclusiveGuard::adopt(slot, false))
    }
}

macro_rules! debug_by_page {
    ($($guard:ident),+) => {$(
        impl fmt::Debug for $guard<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($guard), "({})"), self.pid())
            }
        }
    )+};
}

debug_by_page!(SharedGuard, ExclusiveGuard, OptimisticGuard, Pinned);
