//! Counters that many threads raise and few read.

use crate::primitive::MODEL;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::{CachePadded, available_parallelism};

/// A `u64` counter split over cache lines, one per processor, so that raising it is not a shared write.
#[derive(Debug)]
pub struct ShardedCounter {
    shards: Box<[CachePadded<AtomicU64>]>,
}

impl ShardedCounter {
    /// A counter at zero.
    #[expect(clippy::new_without_default, reason = "it allocates by the size of the machine")]
    pub fn new() -> Self {
        let count = if MODEL { 1 } else { available_parallelism().next_power_of_two().min(64) };
        Self { shards: (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    /// Adds `n`; wraps at 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        let shard = thread_index() & (self.shards.len() - 1);
        // ORDERING: Relaxed, a statistic publishes nothing.
        self.shards[shard].fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the sum of the shards, each read once: exact if no thread adds meanwhile.
    pub fn sum(&self) -> u64 {
        // ORDERING: Relaxed, as `add`.
        self.shards.iter().fold(0u64, |sum, shard| sum.wrapping_add(shard.load(Ordering::Relaxed)))
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
        let counter = ShardedCounter::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.sum(), 8 * 1000 * 3);
    }
}
