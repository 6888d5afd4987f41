//! The memory of a pool: its frames, the bytes of their pages, and the threads that wait for their latches.
//!
//! The system gives memory when it is first touched. To clear a large page takes milliseconds in a virtual machine, and
//! the thread that touches it may hold latches and locks meanwhile. So a background thread commits the memory of frames
//! ahead of their first use, but for the first block: a small database needs no more.

use crate::frame::{Frame, FrameNo};
use crate::replacement::Frames;
use crate::words::{self, PageWords};
use foreshore_base::GroupNo;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{ByteArena, CachePadded, ParkTable, ShardedCounter};
use foreshore_wal::Log;
use std::fmt;
use std::io;
use std::ops::Range;

/// Frames whose memory is committed at once: as much as a large page.
const BLOCK: usize = 2 * 1024 * 1024 / PAGE_SIZE;
/// The fewest committed frames ahead of those in use.
const AHEAD: usize = BLOCK / 2;

#[derive(Debug)]
pub(crate) struct Memory {
    frames: Box<[Frame]>,
    /// A page for each frame.
    arena: ByteArena,
    /// Frames from the lowest on that have been used, at most. A hint.
    used: CachePadded<AtomicUsize>,
    /// Frames from the lowest on whose memory is committed, or of the first block. A hint.
    committed: AtomicUsize,
    /// Threads that wait for latches of frames.
    parks: ParkTable,
    /// The log, whose next group is the first that a newly dirty page needs.
    log: Log,
    /// Times that a clean frame became dirty.
    dirtied: ShardedCounter,
    /// Times that a dirty frame became clean.
    cleaned: ShardedCounter,
}

impl Memory {
    /// Returns `frames` frames without pages.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub(crate) fn new(frames: usize, log: Log) -> io::Result<Self> {
        Ok(Self {
            frames: (0..frames).map(|_| Frame::new()).collect(),
            arena: ByteArena::in_large_pages(frames * PAGE_SIZE)?,
            used: CachePadded::default(),
            committed: AtomicUsize::new(BLOCK.min(frames)),
            parks: ParkTable::new(),
            log,
            dirtied: ShardedCounter::new(),
            cleaned: ShardedCounter::new(),
        })
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Notes that a frame is about to be used. Returns whether memory should be committed for those behind it.
    pub(crate) fn note_use(&self, no: FrameNo) -> bool {
        let end = no as usize + 1;
        // ORDERING: hints, here and below.
        if end <= self.used.load(Ordering::Relaxed) {
            return false;
        }
        // ORDERING: as above.
        self.used.fetch_max(end, Ordering::Relaxed);
        (end + AHEAD).min(self.frames.len()) > self.committed.load(Ordering::Relaxed)
    }

    /// Commits memory ahead of the frames that have been used. One thread at a time.
    pub(crate) fn commit_ahead(&self) {
        // ORDERING: hints, as in `note_use`.
        let (used, committed) = (self.used.load(Ordering::Relaxed), self.committed.load(Ordering::Relaxed));
        let end = (used + AHEAD).next_multiple_of(BLOCK).min(self.frames.len());
        if committed < end {
            // The threads that use the last block are committing it.
            let from = used.next_multiple_of(BLOCK).clamp(committed, end);
            self.arena.commit(from * PAGE_SIZE..end * PAGE_SIZE);
            // ORDERING: as above.
            self.committed.store(end, Ordering::Relaxed);
        }
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the frames as replacement policies see them.
    pub(crate) fn view(&self) -> Frames<'_> {
        Frames::new(&self.frames)
    }

    /// Returns the number of dirty frames.
    pub(crate) fn dirty(&self) -> u64 {
        // `cleaned` first: a frame that turns dirty in between makes the difference too large, never negative.
        let cleaned = self.cleaned.sum();
        self.dirtied.sum().saturating_sub(cleaned)
    }

    /// Returns a frame, if there is one of that number.
    #[inline]
    pub(crate) fn find(&self, no: FrameNo) -> Option<Slot<'_>> {
        Some(Slot { memory: self, frame: self.frames.get(no as usize)?, index: no as usize })
    }

    /// Returns a frame of this pool.
    #[inline]
    pub(crate) fn slot(&self, no: FrameNo) -> Slot<'_> {
        self.find(no).expect("a frame of this pool")
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes at the beginning of a page that are prefetched: nearly all slots of a leaf of rows of a hundred bytes.
const FIRST: usize = 9 * LINE;

/// A frame of a pool. Copies are free; a guard is a slot plus the right to use it.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    memory: &'a Memory,
    frame: &'a Frame,
    // The number of the frame, a whole word wide, so that a guard is built by whole stores.
    index: usize,
}

impl fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} in frame {}", self.frame.pid(), self.index)
    }
}

impl<'a> Slot<'a> {
    pub(crate) fn memory(self) -> &'a Memory {
        self.memory
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
    pub(crate) fn parks(self) -> &'a ParkTable {
        &self.memory.parks
    }

    #[inline]
    fn offset(self) -> usize {
        self.index * PAGE_SIZE
    }

    /// Prefetches the cache lines of the page that its reader needs first: the beginning, where a search goes, and the
    /// end, from which contents grow. The transfers overlap with each other and with that of the latch.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        self.prefetch_lines(0..FIRST);
        self.memory.arena.prefetch(self.offset() + PAGE_SIZE - LINE);
    }

    /// Prefetches the cache lines of `range` of the page, as far as they are in it.
    #[inline(always)]
    pub(crate) fn prefetch_lines(self, range: Range<usize>) {
        let inside = range.start.min(PAGE_SIZE)..range.end.min(PAGE_SIZE);
        inside.step_by(LINE).for_each(|at| self.memory.arena.prefetch(self.offset() + at));
    }

    #[inline]
    pub(crate) fn words(self) -> &'a PageWords {
        // SAFETY: the arena has a page for every frame, and `index` is that of a frame.
        let words = unsafe { self.memory.arena.words_unchecked(self.offset(), words::PAGE_WORDS) };
        words.try_into().expect("a page of words")
    }

    /// Returns the page as plain bytes.
    ///
    /// # Safety
    /// For as long as the slice lives, no thread stores to the page: the caller holds a shared latch, or the exclusive
    /// latch and does not store itself.
    #[inline]
    pub(crate) unsafe fn bytes(self) -> &'a [u8] {
        // SAFETY: the caller keeps stores away; concurrent optimistic loads do not matter to a reader. The range is
        // inside the arena, which has a page for every frame and lives as long as the pool.
        unsafe { self.memory.arena.bytes(self.offset()..self.offset() + PAGE_SIZE) }
    }

    /// Marks the page dirty, from the next log group on if it is clean. The caller holds the exclusive latch and
    /// appends later.
    pub(crate) fn set_dirty(self) {
        if !self.frame.is_dirty() {
            self.frame.set_dirty(self.memory.log.next_group());
            self.memory.dirtied.add(1);
        }
    }

    /// Marks the page dirty by redo of a record in `group`. The caller holds the exclusive latch.
    pub(crate) fn set_redone(self, group: GroupNo) {
        if self.frame.set_redone(group) {
            self.memory.dirtied.add(1);
        }
    }

    /// Marks the page clean. The caller is that of [`Frame::set_clean`].
    pub(crate) fn set_clean(self) {
        self.frame.set_clean();
        self.memory.cleaned.add(1);
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use foreshore_wal::LogOptions;

    #[test]
    fn memory_is_committed_ahead_of_use() {
        let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
        let memory = Memory::new(3 * BLOCK + 7, log).expect("memory");
        // ORDERING: one thread.
        let committed = || memory.committed.load(Ordering::Relaxed);
        memory.commit_ahead();
        assert_eq!(committed(), BLOCK, "nothing is used");
        let mut ends = Vec::new();
        for no in 0..memory.frames().len() as FrameNo {
            if memory.note_use(no) {
                memory.commit_ahead();
                ends.push((no as usize, committed()));
            }
            assert!(!memory.note_use(no), "frame {no} was used before");
        }
        let at = |block| block * BLOCK + AHEAD;
        assert_eq!(ends, [(at(0), 2 * BLOCK), (at(1), 3 * BLOCK), (at(2), 3 * BLOCK + 7)]);
    }
}
