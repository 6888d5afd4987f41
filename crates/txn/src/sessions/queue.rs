//! The queue of threads that want to begin a transaction while all sessions are in use.
//!
//! 1. A thread that finds no session joins the queue, then waits for its turn.
//! 2. The first in the queue searches all shards. If it finds nothing it sleeps until a session comes back, and
//!    searches again.
//! 3. A thread that begins while others are in the queue goes behind them, even if a session is idle.

use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{SystemClock, Turn, Turns};
use std::time::Duration;

/// Threads that wait for a session.
#[derive(Debug, Default)]
pub(super) struct Queue {
    length: AtomicUsize,
    turns: Turns,
}

/// The first place in the queue. Dropping it passes the place to the next thread.
pub(super) struct First<'a> {
    _turn: Turn<'a>,
    _waiting: Waiting<'a>,
}

/// A place in the queue.
struct Waiting<'a>(&'a Queue);

impl Queue {
    /// Joins the queue, and returns when the caller is first in it; `None` if that takes longer than `most`.
    pub(super) fn join(&self, time: &SystemClock, most: Duration) -> Option<First<'_>> {
        // ORDERING: Relaxed. The locks of the shards order it before a session that the search misses is returned; see
        // the module above. Where a session was not made, the fence is that of `EventCount::prepare`.
        self.length.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self);
        // WAIT: park - see the caller.
        self.turns.take(time, most).map(|_turn| First { _turn, _waiting })
    }

    /// Returns whether a thread is in the queue.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        // ORDERING: Relaxed. For a thread that begins it is a hint. One that returns a session has locked its shard.
        self.length.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed, a count read too high only costs a notification.
        let before = self.0.length.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a thread leaves an empty queue for a session");
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_for_the_first_and_leaves_after_its_time() {
        let (queue, time) = (Queue::default(), SystemClock::new());
        assert!(!queue.is_any());
        let first = queue.join(&time, Duration::MAX).expect("the first in an empty queue");
        assert!(queue.is_any() && queue.join(&time, Duration::from_nanos(1)).is_none());
        assert_eq!(queue.length.load(Ordering::Relaxed), 1, "the second has left"); // ORDERING: a test of one thread.
        drop(first);
        assert!(!queue.is_any());
        assert!(queue.join(&time, Duration::MAX).is_some());
    }
}
