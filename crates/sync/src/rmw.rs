//! A count of contended read-modify-writes, kept by each thread for itself.
//!
//! A read-modify-write is contended when its cache line is also written by other workers: such a line moves between the
//! caches once an operation, and that traffic is what stops a log buffer from scaling. On a machine with few processors the
//! time of it cannot be seen, but the number can be counted: each site of the engine where it happens calls [`contended`],
//! and a measurement asks for the difference of [`counted`] around an operation.
//!
//! Counted are the sites that a transaction passes: latches, pins, the lock tables, intents, xids, the clock and the status
//! words of transactions, undo space, sleeping and waking, and the log buffers. A lock counts twice, to take it and to give it
//! back. Not counted: what a leader of the log does once a group, and statistics, which each thread mostly has a line for.

#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
std::thread_local! {
    static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds `n` contended read-modify-writes to the calling thread's count, which wraps at 2^64. One addition to a thread-local
/// word; nothing under a model checker, whose threads share one.
#[inline(always)]
pub fn contended(n: u64) {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    COUNT.set(COUNT.get().wrapping_add(n));
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    let _ = n;
}

/// The calling thread's count since the thread began. Always zero under a model checker.
#[inline]
pub fn counted() -> u64 {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    return COUNT.get();
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    0
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;

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
