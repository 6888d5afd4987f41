//! A count of contended read-modify-writes, kept by each thread for itself.
//!
//! A read-modify-write is contended if other workers also write its cache line. Each marked site calls [`contended`],
//! and a measurement takes the difference of [`counted`] around an operation. The experiments on log buffers use it,
//! where threads must run at full speed and at once: a buffer that combines requests makes fewer of them then. What a
//! transaction does is counted by `foreshore bench --count-rmw` instead, which needs no marks.
//!
//! A lock counts twice, once to take and once to release it. Not counted are a log leader's operations per group, and
//! statistics, which mostly have a line for each thread.

#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
std::thread_local! {
    static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
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

/// Returns the calling thread's count since the thread began. Always zero under a model checker.
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
