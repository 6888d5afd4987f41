//! Optimistic access: reads of a page without its latch.

use crate::format::AT_LSN;
use crate::memory::{Memory, Slot};
use crate::page::PageRead;
use crate::position::PagePosition;
use crate::words::{self, PageWords};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Lsn, PageId};
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

/// Access without a latch: no thread waits for the reader. Its reads count only if [`OptimisticGuard::validate`]
/// returns true afterwards.
///
/// Until then any value may be inconsistent. Reads outside the page return zeros and do not panic, because an offset
/// may be inconsistent too. A loop must not depend on a value that was not validated.
pub struct OptimisticGuard<'a> {
    slot: Slot<'a>,
    words: &'a PageWords,
    pid: PageId,
    version: u64,
}

impl<'a> OptimisticGuard<'a> {
    /// Creates a guard of page `pid`, which was in the frame when its latch had that version.
    #[inline]
    pub(crate) fn new(slot: Slot<'a>, pid: PageId, version: u64) -> Self {
        Self { slot, words: slot.words(), pid, version }
    }

    /// Reads the page at `position` again, if it has not changed since.
    #[inline]
    pub(crate) fn at(memory: &'a Memory, position: PagePosition) -> Option<Self> {
        let slot = memory.slot(position.no);
        // The id is read before the version is compared, so it is that of the page.
        let guard = Self::new(slot, slot.frame().pid(), position.version);
        guard.validate().then_some(guard)
    }

    pub(crate) fn slot(&self) -> Slot<'a> {
        self.slot
    }

    /// Returns the frame and the version of the page, for [`Pool::optimistic_at`](crate::Pool::optimistic_at).
    #[must_use]
    pub fn position(&self) -> PagePosition {
        PagePosition { no: self.slot.no(), version: self.version }
    }

    /// Returns the id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.pid
    }

    /// Returns the version that the reads are validated against.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the stamp of the last logged change.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.read_u64(AT_LSN))
    }

    /// Copies the bytes of `range` to `out`, which has its length.
    pub fn copy_to(&self, range: Range<usize>, out: &mut [u8]) {
        assert_eq!(range.len(), out.len(), "the range and its copy");
        if range.start <= PAGE_SIZE && out.len() <= PAGE_SIZE - range.start {
            words::load(self.words, range.start, out);
        } else {
            out.fill(0);
        }
    }

    /// Returns the eight bytes at `offset`, little-endian.
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

    /// Prefetches the cache lines that a search of the page needs first.
    #[inline(always)]
    pub fn prefetch_first(&self) {
        self.slot.prefetch();
    }

    /// Prefetches the cache lines of `range`. Any range will do.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        self.slot.prefetch_lines(range);
    }

    /// Returns whether everything read so far was one state of the page.
    #[must_use]
    #[inline]
    pub fn validate(&self) -> bool {
        self.slot.frame().latch().validate(self.version)
    }
}

impl PageRead for &OptimisticGuard<'_> {
    #[inline]
    fn word(self, offset: usize) -> u64 {
        self.read_u64(offset)
    }

    #[inline]
    fn compare(self, range: Range<usize>, bytes: &[u8]) -> Ordering {
        OptimisticGuard::compare(self, range, bytes)
    }

    fn append_to(self, range: Range<usize>, out: &mut Vec<u8>) {
        if range.start <= range.end && range.end <= PAGE_SIZE {
            words::append(self.words, range, out);
        } else {
            out.resize(out.len() + range.len(), 0);
        }
    }
}

impl fmt::Debug for OptimisticGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OptimisticGuard({:?})", self.slot)
    }
}
