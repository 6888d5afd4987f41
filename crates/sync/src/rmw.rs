//! A count of contended read-modify-writes, kept by each thread for itself.
//!
//! A read-modify-write is contended if other workers also write its cache line. Such a line moves between caches once
//! an operation, and that traffic stops a log buffer from scaling. On a machine with few processors its time cannot be
//! measured, but the number can be counted. Each site of the engine where it happens calls [`contended`], and a
//! measurement takes the difference of [`counted`] around an operation.
//!
//! Many workers always write some words, such as a clock; there each operation counts ([`contended`]). For others,
//! such as the latch of a page, it depends on the work whether another worker writes them: such a site passes the word
//! ([`contended_at`]). Workers that [`watch`] the lines they write count there only the lines that another of them
//! writes too. The rest is counted by [`alone`], so that both numbers are known.
//!
//! Counted are the sites of a transaction: latches, pins, lock tables, intents, xids, the clock and the status words
//! of transactions, undo space, sleeping and waking, and log buffers. A lock counts twice, once to take and once to
//! release it. Not counted are a log leader's operations per group, and statistics, which mostly have a line for each
//! thread.

#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
pub use lines::{Lines, watch};

#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
std::thread_local! {
    static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    static ALONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds `n` contended read-modify-writes to the calling thread's count, which wraps at 2^64. Costs one addition to a
/// thread-local word; does nothing under a model checker, whose threads share one.
#[inline(always)]
pub fn contended(n: u64) {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    COUNT.set(COUNT.get().wrapping_add(n));
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    let _ = n;
}

/// Counts one read-modify-write of `word`, as contended or, for a watching thread, perhaps as its own.
#[inline(always)]
pub fn contended_at<T>(word: &T) {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    if lines::are_watched() && !lines::is_shared(std::ptr::from_ref(word).addr()) {
        ALONE.set(ALONE.get().wrapping_add(1));
    } else {
        contended(1);
    }
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    let _ = word;
}

/// The lines that the threads of one measurement write.
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
mod lines {
    use crate::primitive::atomic::{AtomicU64, Ordering};
    use crate::thread_index;
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    /// Slots for lines, many for each that is written in seconds. Two lines in one slot count as shared.
    const LINES: usize = 1 << LINES_LOG;
    const LINES_LOG: u32 = 21;
    /// Bytes that move between caches together.
    const BYTES: usize = 64;
    /// Two of the threads have written the line.
    const SHARED: u64 = 1 << 23;

    std::thread_local! {
        static WATCHED: Cell<bool> = const { Cell::new(false) };
        static TABLE: RefCell<Option<Arc<Lines>>> = const { RefCell::new(None) };
    }

    /// Which thread wrote which line, for the threads that watch with it.
    pub struct Lines {
        /// By a hash of the line's number. From bit 24 on: the lower 40 bits of that number. Below: [`SHARED`], and
        /// one more than the thread's number. Zero: no line.
        writers: Box<[AtomicU64]>,
    }

    impl Lines {
        /// Makes a table without lines.
        #[must_use]
        pub fn new() -> Self {
            Self { writers: (0..LINES).map(|_| AtomicU64::new(0)).collect() }
        }

        /// Notes that the calling thread writes the line at `address`; returns whether another has.
        fn note(&self, address: usize) -> bool {
            let line = (address / BYTES) as u64;
            let mine = line << 24 | ((thread_index() as u64 + 1) & (SHARED - 1));
            let writer = &self.writers[(line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - LINES_LOG)) as usize];
            // ORDERING: Relaxed, a statistic publishes nothing. A lost store is repeated the next time.
            let before = writer.load(Ordering::Relaxed);
            let now = if before == 0 || before == mine { mine } else { line << 24 | SHARED };
            if now != before {
                // ORDERING: as above.
                writer.store(now, Ordering::Relaxed);
            }
            now & SHARED != 0
        }
    }

    impl Default for Lines {
        fn default() -> Self {
            Self::new()
        }
    }

    impl std::fmt::Debug for Lines {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Lines").finish_non_exhaustive()
        }
    }

    /// From here on the calling thread distinguishes lines that it alone writes from those that other threads with the
    /// same `lines` write. It costs an access to them at each site that passes its word.
    pub fn watch(lines: Arc<Lines>) {
        TABLE.set(Some(lines));
        WATCHED.set(true);
    }

    #[inline(always)]
    pub(super) fn are_watched() -> bool {
        WATCHED.get()
    }

    /// Works also while the thread ends and its table is gone.
    #[cold]
    pub(super) fn is_shared(address: usize) -> bool {
        TABLE.try_with(|table| table.borrow().as_ref().is_none_or(|lines| lines.note(address))).unwrap_or(true)
    }
}

/// Returns the calling thread's count since the thread began. Always zero under a model checker.
#[inline]
pub fn counted() -> u64 {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    return COUNT.get();
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    0
}

/// Returns how many [`contended_at`] counted as not contended since the thread began. Always zero under a model
/// checker.
#[inline]
pub fn alone() -> u64 {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    return ALONE.get();
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    0
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;
    use std::sync::Arc;

    /// Returns what a thread that watches `lines`, if any, counts for so many operations on `word`.
    fn count(lines: Option<&Arc<Lines>>, word: &u64, times: u64) -> [u64; 2] {
        thread::scope(|scope| {
            let counts = scope.spawn(|| {
                lines.cloned().into_iter().for_each(watch);
                (0..times).for_each(|_| contended_at(word));
                [counted(), alone()]
            });
            counts.join().unwrap()
        })
    }

    #[test]
    fn a_word_counts_once_two_that_watch_have_written_its_line() {
        let lines = Arc::new(Lines::new());
        let word = crate::CachePadded::new(0);
        // The indices of ended threads may be reused: the first one stays.
        watch(lines.clone());
        contended_at(&*word);
        assert_eq!([counted(), alone()], [0, 1]);
        assert_eq!(count(None, &word, 5), [5, 0], "who does not watch counts all");
        contended_at(&*word);
        assert_eq!([counted(), alone()], [0, 2], "and is no other worker");
        assert_eq!(count(Some(&lines), &word, 5), [5, 0]);
        contended_at(&*word);
        assert_eq!([counted(), alone()], [1, 2], "it stays shared");
        assert_eq!(count(Some(&Arc::new(Lines::new())), &word, 5), [0, 5], "another measurement");
    }

    #[test]
    fn each_thread_counts_its_own() {
        let before = counted();
        contended(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(counted(), 0, "a thread starts at zero");
                contended(5);
                assert_eq!(counted(), 5);
            });
        });
        contended(1);
        assert_eq!(counted() - before, 3);
    }
}
