//! Counters that many threads raise and few read.

use crate::primitive::MODEL;
use crate::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::{CachePadded, available_parallelism};

/// Most shards of a counter.
const MOST_SHARDS: usize = 64;

/// A `u64` counter split over cache lines, so that raising it is not a shared write.
#[derive(Debug)]
pub struct ShardedCounter {
    shards: Box<[CachePadded<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// One more than the number of the thread that raises `own`; zero if there is none yet. It never changes after.
    owner: AtomicUsize,
    /// Raised by the owner alone, which needs no read-modify-write.
    own: AtomicU64,
    /// Raised by all other threads with this shard.
    shared: AtomicU64,
}

impl Default for ShardedCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl ShardedCounter {
    /// A counter at zero, with a shard for each processor.
    pub fn new() -> Self {
        Self::of(available_parallelism().next_power_of_two().min(MOST_SHARDS))
    }

    /// A counter at zero with more shards than the threads that run at once on most machines, for what happens in each
    /// transaction. It takes 8 KiB.
    #[must_use]
    pub fn wide() -> Self {
        Self::of(MOST_SHARDS)
    }

    fn of(shards: usize) -> Self {
        let count = if MODEL { 1 } else { shards };
        Self { shards: (0..count).map(|_| CachePadded::default()).collect() }
    }

    /// Adds `n`; wraps at 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        let thread = thread_index();
        let shard = &self.shards[thread & (self.shards.len() - 1)];
        // ORDERING: Relaxed on both loads: a thread sees what it has stored itself.
        if shard.owner.load(Ordering::Relaxed) == thread + 1 && !MODEL {
            // ORDERING: Release, pairs with `sum`.
            shard.own.store(shard.own.load(Ordering::Relaxed).wrapping_add(n), Ordering::Release);
        } else {
            shard.add_shared(thread, n);
        }
    }

    /// Returns the sum of the shards, each read once: exact if no thread adds meanwhile. If it counts an addition, then
    /// a sum of another counter that is taken later counts what the same thread has added to that one before.
    pub fn sum(&self) -> u64 {
        // ORDERING: Acquire, pairs with `add`.
        let read = |shard: &Shard| [&shard.own, &shard.shared].map(|part| part.load(Ordering::Acquire));
        self.shards.iter().flat_map(|shard| read(shard)).fold(0u64, u64::wrapping_add)
    }
}

impl Shard {
    /// Adds `n` for a thread that does not own the shard. From now on it does, if there was no owner.
    #[cold]
    fn add_shared(&self, thread: usize, n: u64) {
        // ORDERING: Release, as `add`.
        self.shared.fetch_add(n, Ordering::Release);
        // ORDERING: Relaxed, the number alone matters.
        let _ = self.owner.compare_exchange(0, thread + 1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Returns a small number of the calling thread, unique among all threads, in the order of first calls. While a thread
/// ends and its thread-locals are gone, each call returns a new number.
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
pub fn thread_index() -> usize {
    #[cfg(foreshore_sim)]
    if let Some(task) = crate::schedule::index() {
        return task;
    }
    thread_number()
}

/// Does the same in a build with a scheduler, too, where it counts all threads of the process.
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
pub(crate) fn thread_number() -> usize {
    std::thread_local! {
        static INDEX: usize = number_of(None);
    }
    number_of(INDEX.try_with(|index| *index).ok())
}

/// Returns the number `kept` in a thread's memory, or a new one.
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
fn number_of(kept: Option<usize>) -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    // ORDERING: Relaxed, only the number itself matters.
    kept.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Under a model checker there is one shard, and a model must not depend on process-wide state.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub fn thread_index() -> usize {
    0
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;

    /// A thread whose thread-locals are gone shares no number with other threads.
    #[test]
    fn a_thread_without_its_memory_has_a_new_number_each_time() {
        let own = thread_index();
        assert_eq!((thread_index(), number_of(Some(own))), (own, own));
        let other = std::thread::spawn(thread_index).join().expect("no panic");
        let (first, second) = (number_of(None), number_of(None));
        let mut all = vec![own, other, first, second];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4, "each has its own");
    }

    #[test]
    fn concurrent_adds_are_all_counted() {
        for counter in [ShardedCounter::new(), ShardedCounter::wide(), ShardedCounter::of(1)] {
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
                }
            });
            assert_eq!(counter.sum(), 8 * 1000 * 3);
        }
    }
}
