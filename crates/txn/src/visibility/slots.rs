//! An array of slots that grows: a fixed part, which its owner claims from without a lock, and chunks for what goes
//! beyond it.
//!
//! Slots have numbers, those of the fixed part first. A chunk is made when all before it are full, and stays. The list
//! of free slots of the chunks is kept under a lock; looks at the slots in use take none.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// More slots than there is memory for.
const CHUNKS: usize = 40;

/// The slots.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    fixed: Box<[CachePadded<T>]>,
    /// Chunk `k` has the length of the fixed part times two to the power of `k`.
    chunks: [OnceLock<Box<[CachePadded<T>]>>; CHUNKS],
    /// No slot of the chunks from here on is in use. It falls, too, so that looks do not pass over many free slots for
    /// ever. Written under `extra`.
    extra_used: AtomicUsize,
    extra: Mutex<Extra>,
    make: fn() -> T,
}

/// Which slots of the chunks are in use: those below `end` that are not free.
#[derive(Debug, Default)]
struct Extra {
    end: usize,
    free: BTreeSet<usize>,
}

impl Extra {
    /// The lowest free slot.
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
    /// With a fixed part of `count` slots, at least one.
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

    /// The fixed part.
    pub(crate) fn fixed(&self) -> &[CachePadded<T>] {
        &self.fixed
    }

    /// The slot with this number; `None` if its chunk was not made yet.
    pub(crate) fn slot(&self, at: usize) -> Option<&T> {
        match at.checked_sub(self.fixed.len()) {
            None => Some(&self.fixed[at]),
            Some(extra) => {
                let (chunk, place) = self.chunk_of(extra);
                self.chunks[chunk].get().map(|slots| &*slots[place])
            }
        }
    }

    /// Slots of the chunks that may be in use, with their numbers.
    pub(crate) fn extra_in_use(&self) -> impl Iterator<Item = (usize, &T)> {
        // ORDERING: Relaxed, ordered by the caller's fence, if it has one.
        let used = self.extra_used.load(Ordering::Relaxed);
        let first = self.fixed.len();
        (first..first + used).filter_map(|at| self.slot(at).map(|slot| (at, slot)))
    }

    /// Claims a slot of the chunks, which `show` makes that of the caller. The claim comes before a fence that the
    /// caller makes next.
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

    /// Gives a slot of the chunks back. One of the fixed part is its owner's affair.
    pub(crate) fn release(&self, at: usize) {
        if let Some(at) = at.checked_sub(self.fixed.len()) {
            let mut extra = self.extra.lock();
            extra.give_back(at);
            // ORDERING: Relaxed, as in `claim_extra`.
            self.extra_used.store(extra.end, Ordering::Relaxed);
        }
    }

    /// The chunk of extra slot `at`, and the place in it.
    fn chunk_of(&self, at: usize) -> (usize, usize) {
        let chunk = (at / self.fixed.len() + 1).ilog2() as usize;
        (chunk, at - self.fixed.len() * ((1 << chunk) - 1))
    }
}

fn slots<T>(count: usize, make: fn() -> T) -> Box<[CachePadded<T>]> {
    (0..count).map(|_| CachePadded::new(make())).collect()
}
