//! An array of slots that grows.
//!
//! | part | slots | claimed |
//! |---|---|---|
//! | fixed | the first numbers | by the owner of the array, without a lock |
//! | chunks | all other numbers | under a lock |
//!
//! A chunk is allocated when all slots before it are in use, and is never freed. Searches for slots in use take no
//! lock.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The number of chunks. They have more slots than any memory has space for.
const CHUNKS: usize = 40;

/// An array of slots that grows.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    fixed: Box<[CachePadded<T>]>,
    /// Chunk `k` has `2^k` times the length of the fixed part.
    chunks: [OnceLock<Box<[CachePadded<T>]>>; CHUNKS],
    /// No slot of the chunks at or above this index is in use. It also falls, so that searches do not pass over many
    /// free slots for ever. Written under `extra`.
    extra_used: AtomicUsize,
    extra: Mutex<Extra>,
    make: fn() -> T,
}

/// The slots of the chunks that are in use: those below `end` that are not in `free`.
#[derive(Debug, Default)]
struct Extra {
    end: usize,
    free: BTreeSet<usize>,
}

impl Extra {
    /// Returns the lowest free slot, and marks it as used.
    fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    fn give_back(&mut self, at: usize) {
        assert!(at < self.end, "extra slot {at} is released, those from {} on are not in use", self.end);
        let is_new = self.free.insert(at);
        assert!(is_new, "extra slot {at} is released twice");
        while self.end > 0 && self.free.remove(&(self.end - 1)) {
            self.end -= 1;
        }
    }
}

impl<T> Slots<T> {
    /// Returns an array with a fixed part of `count` slots, at least one.
    pub(crate) fn new(count: usize, make: fn() -> T) -> Self {
        assert!(count > 0, "chunks are multiples of the fixed part");
        Self {
            fixed: slots(count, make),
            chunks: [const { OnceLock::new() }; CHUNKS],
            extra_used: AtomicUsize::new(0),
            extra: Mutex::new(LockRank::Leaf, Extra::default()),
            make,
        }
    }

    /// Returns the fixed part.
    pub(crate) fn fixed(&self) -> &[CachePadded<T>] {
        &self.fixed
    }

    /// Returns the slot with this number; `None` if its chunk is not allocated yet.
    pub(crate) fn slot(&self, at: usize) -> Option<&T> {
        match at.checked_sub(self.fixed.len()) {
            None => Some(&self.fixed[at]),
            Some(extra) => {
                let (chunk, place) = self.chunk_of(extra);
                self.chunks[chunk].get().map(|slots| &*slots[place])
            }
        }
    }

    /// Returns the slots of the chunks that may be in use, with their numbers.
    pub(crate) fn extra_in_use(&self) -> impl Iterator<Item = (usize, &T)> {
        // ORDERING: Relaxed, ordered by the caller's fence, if it has one.
        let used = self.extra_used.load(Ordering::Relaxed);
        let first = self.fixed.len();
        (first..first + used).filter_map(|at| self.slot(at).map(|slot| (at, slot)))
    }

    /// Claims a slot of the chunks. `show` stores in it that it is the caller's. The caller makes a fence next, which
    /// orders the claim.
    #[cold]
    pub(crate) fn claim_extra(&self, show: impl FnOnce(&T)) -> (usize, &T) {
        let mut extra = self.extra.lock();
        let at = extra.take();
        let (chunk, place) = self.chunk_of(at);
        let slots = self.chunks[chunk].get_or_init(|| slots(self.fixed.len() << chunk, self.make));
        if !mutant("readers: an extra slot is not counted") {
            // ORDERING: Relaxed, ordered by the caller's fence. Each later value counts this slot, too, until it is
            // released.
            self.extra_used.store(extra.end, Ordering::Relaxed);
        }
        show(&slots[place]);
        (self.fixed.len() + at, &*slots[place])
    }

    /// Releases a slot of the chunks. Does nothing for a slot of the fixed part, which the owner of the array releases.
    pub(crate) fn release(&self, at: usize) {
        if let Some(at) = at.checked_sub(self.fixed.len()) {
            let mut extra = self.extra.lock();
            extra.give_back(at);
            // ORDERING: Relaxed, as in `claim_extra`.
            self.extra_used.store(extra.end, Ordering::Relaxed);
        }
    }

    /// Returns the chunk of extra slot `at`, and the place in that chunk.
    fn chunk_of(&self, at: usize) -> (usize, usize) {
        let chunk = (at / self.fixed.len() + 1).ilog2() as usize;
        (chunk, at - self.fixed.len() * ((1 << chunk) - 1))
    }
}

fn slots<T>(count: usize, make: fn() -> T) -> Box<[CachePadded<T>]> {
    (0..count).map(|_| CachePadded::new(make())).collect()
}
