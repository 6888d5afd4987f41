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

    /// The sum of the shards, each read once: exact when nobody adds meanwhile.
    pub fn sum(&self) -> u64 {
        // ORDERING: Relaxed, as `add`.
        self.shards.iter().fold(0u64, |sum, shard| sum.wrapping_add(shard.load(Ordering::Relaxed)))
    }
}

/// A small number of the calling thread, handed out in the order of first calls; 0 as a thread ends.
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
pub fn thread_index() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    std::thread_local! {
        // ORDERING: Relaxed, only the number itself matters.
        static INDEX: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    INDEX.try_with(|index| *index).unwrap_or(0)
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
