//! The pool: frames, their bytes, the page table and the hand.

use super::frame::Frame;
use super::table::{Entry, PageTable};
use crate::replacement::Weights;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, InvalidOption, Lsn, PageId, Place, Result};
use foreshore_buffer::format::verify_page;
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{ByteArena, CachePadded, EventCount, ShardedCounter, Word};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Words of a page, each of eight bytes.
const PAGE_WORDS: usize = PAGE_SIZE / size_of::<Word>();
/// Frames that a sweep takes from the hand at once.
const BATCH: usize = 8;
/// How long a thread waits if every page is fixed.
const BUSY_WAIT: Duration = Duration::from_millis(5);
/// After so many such waits, a second in all, every frame counts as permanently in use.
const BUSY_TRIES: usize = 200;

/// A buffer pool over a file whose pages do not change.
#[derive(Debug)]
pub struct Pool {
    frames: Box<[Frame]>,
    arena: ByteArena,
    table: PageTable,
    /// A counter, so that concurrent sweeps share a lap and age no page twice.
    hand: CachePadded<AtomicUsize>,
    /// Notified when a page comes in.
    entered: EventCount,
    weights: Weights,
    data: Arc<dyn File>,
    counters: Counters,
}

#[derive(Debug)]
struct Counters {
    pages_read: ShardedCounter,
    pages_entered: ShardedCounter,
    reads_redundant: ShardedCounter,
}

/// Counters of a pool since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Pages read from the file.
    pub pages_read: u64,
    /// Pages entered into a frame.
    pub pages_entered: u64,
    /// Pages read although another thread had read them meanwhile.
    pub reads_redundant: u64,
}

impl Pool {
    /// Opens a pool of `frames` empty frames over `data`.
    ///
    /// # Errors
    /// `InvalidOption` for no frames or too many; `Io` if there is no memory for them.
    pub fn open(data: Arc<dyn File>, weights: Weights, frames: usize) -> Result<Self> {
        if !(1..u32::MAX as usize).contains(&frames) {
            let expected = format!("1 to {}", u32::MAX - 1);
            return Err(InvalidOption { name: "frames", value: frames.to_string(), expected }.into());
        }
        let out_of_memory = |e| Error::io("map memory for", data.path(), e);
        Ok(Self {
            arena: ByteArena::in_large_pages(frames * PAGE_SIZE).map_err(out_of_memory)?,
            frames: (0..frames).map(|_| Frame::new()).collect(),
            table: PageTable::new(),
            hand: CachePadded::new(AtomicUsize::new(0)),
            entered: EventCount::new(),
            weights,
            data,
            counters: Counters {
                pages_read: ShardedCounter::new(),
                pages_entered: ShardedCounter::new(),
                reads_redundant: ShardedCounter::new(),
            },
        })
    }

    /// Fixes a page, and reads it from the file if necessary.
    ///
    /// # Errors
    /// `Io`; `Corrupted` for an id out of range and for a page that is not sound; `OutOfFrames` if every page stays
    /// fixed.
    #[inline]
    pub fn fix(&self, pid: PageId) -> Result<Guard<'_>> {
        let guard = match self.try_fix(pid) {
            Some(guard) => guard,
            None => self.fix_missing(pid)?,
        };
        if guard.frame.is_loading() {
            self.load(&guard)?;
        }
        Ok(guard)
    }

    /// Fixes a page that has a frame, loaded or not.
    #[inline]
    fn try_fix(&self, pid: PageId) -> Option<Guard<'_>> {
        let entry = self.table.get(pid)?;
        let frame = &self.frames[entry.no as usize];
        if frame.fix(entry, self.weights.cap()) {
            return Some(self.guard(frame, entry.no));
        }
        // WAIT: help - completes the work of the thread that evicts the page.
        self.table.remove(pid, entry);
        None
    }

    fn guard<'a>(&'a self, frame: &'a Frame, no: u32) -> Guard<'a> {
        Guard { frame, words: self.arena.words(no as usize * PAGE_SIZE, PAGE_WORDS) }
    }

    /// Fixes a page that this thread or another has given a frame, loaded or not.
    #[cold]
    fn fix_missing(&self, pid: PageId) -> Result<Guard<'_>> {
        if !PageTable::in_range(pid) {
            return Err(Error::corrupted(self.data.path(), Place::Page(pid), "a page id out of range is referred to"));
        }
        self.table.make_room(pid).map_err(|error| Error::io("map memory for", self.data.path(), error))?;
        let mut tries = 0;
        loop {
            if let Some(guard) = self.try_fix(pid) {
                return Ok(guard);
            }
            if self.table.get(pid).is_some() {
                // Another thread has entered the page in between.
                continue;
            }
            match self.sweep() {
                Some(no) => {
                    if let Some(guard) = self.enter(pid, no) {
                        return Ok(guard);
                    }
                }
                None if tries == BUSY_TRIES => return Err(Error::OutOfFrames { frames: self.frames.len() }),
                None => {
                    tries += 1;
                    // WAIT: window - a guard is dropped without a signal; a page that comes in may be the one.
                    self.entered.wait(self.entered.prepare(), Some(BUSY_WAIT));
                }
            }
        }
    }

    /// Gives a page the frame `no`, which belongs to the caller; returns `None` if another thread has given it
    /// another.
    fn enter(&self, pid: PageId, no: u32) -> Option<Guard<'_>> {
        let frame = &self.frames[no as usize];
        let entry = Entry { no, turn: frame.enter(pid, self.weights.initial()) };
        let guard = self.guard(frame, no);
        if !self.table.insert(pid, entry) {
            frame.withdraw();
            if mutant("nbgclock: a withdrawn frame stays fixed") {
                std::mem::forget(guard);
            }
            return None;
        }
        self.counters.pages_entered.add(1);
        self.entered.notify_all();
        Some(guard)
    }

    /// Reads a fixed page, unless another thread finishes first. Threads that finish at the same time write the same
    /// bytes into the frame.
    #[cold]
    fn load(&self, guard: &Guard<'_>) -> Result<()> {
        let pid = guard.frame.page();
        let mut page = AlignedBuf::new(PAGE_SIZE);
        self.counters.pages_read.add(1);
        let len = self.data.read_at(&mut page, pid.offset())?;
        verify_page(&page[..len], pid, Lsn(u64::MAX))
            .map_err(|flaw| Error::corrupted(self.data.path(), Place::Page(pid), flaw.why()))?;
        let is_first = guard.frame.is_loading() && {
            let (bytes, _) = page.as_chunks();
            for (word, bytes) in guard.words.iter().zip(bytes) {
                // ORDERING: Relaxed, published by `loaded`.
                word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
            guard.frame.loaded()
        };
        self.counters.reads_redundant.add((!is_first).into());
        Ok(())
    }

    /// Evicts a page, in as many laps as its uses may need. Its frame then belongs to the caller.
    fn sweep(&self) -> Option<u32> {
        let looks = (usize::from(self.weights.cap()) + 1) * self.frames.len();
        for _ in 0..looks.div_ceil(BATCH) {
            // ORDERING: Relaxed, the hand guards nothing.
            let first = self.hand.fetch_add(BATCH, Ordering::Relaxed);
            for place in first..first + BATCH {
                let no = place % self.frames.len();
                if !self.frames[no].age() && self.frames[no].try_evict() {
                    // Unvisited frames are given back, unless another sweep has moved on.
                    // ORDERING: as above.
                    let order = Ordering::Relaxed;
                    let _ = self.hand.compare_exchange(first + BATCH, place + 1, order, order);
                    let (no, frame) = (no as u32, &self.frames[no]);
                    self.table.remove(frame.page(), Entry { no, turn: frame.turn() });
                    return Some(no);
                }
            }
        }
        None
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let Counters { pages_read, pages_entered, reads_redundant } = &self.counters;
        PoolStats {
            pages_read: pages_read.sum(),
            pages_entered: pages_entered.sum(),
            reads_redundant: reads_redundant.sum(),
        }
    }
}

/// A page that stays in memory, as it is in the file.
pub struct Guard<'a> {
    frame: &'a Frame,
    words: &'a [Word],
}

impl Guard<'_> {
    /// Returns the id of the page.
    #[must_use]
    pub fn pid(&self) -> PageId {
        self.frame.page()
    }

    /// Returns the eight bytes at `offset`, a multiple of eight, little-endian.
    ///
    /// # Panics
    /// If they are not all in the page.
    #[must_use]
    #[inline]
    pub fn read_u64(&self, offset: usize) -> u64 {
        debug_assert!(offset.is_multiple_of(8), "a word at {offset}");
        // ORDERING: Relaxed, the fix has acquired the bytes.
        self.words[offset / 8].load(Ordering::Relaxed)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame.unfix();
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({})", self.pid())
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
