//! One-token thread parkers.

use crate::clock::deadline_now;
use crate::model::mutant;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::{Condvar, LockRank, Mutex};
use std::sync::Arc;
use std::time::Duration;

// The state word.
//
//   EMPTY     no token, the owner runs       owner: -> PARKED (under the lock); unparker: -> NOTIFIED
//   PARKED    no token, the owner sleeps     owner, timed out: -> EMPTY; unparker: -> NOTIFIED, then lock and notify
//   NOTIFIED  one token                      owner: -> EMPTY
//
// 1. Only the owner consumes a token, only unparkers make one; tokens do not add up.
// 2. The owner goes to PARKED only under the lock, which it holds until it sleeps. So an unparker that has seen PARKED
//    and then passes through the lock finds the owner asleep or gone: the notification cannot fall in between.
const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

#[derive(Debug)]
struct Inner {
    state: AtomicU32,
    lock: Mutex<()>,
    condvar: Condvar,
}

/// The waiting side of a one-token parker. One thread at a time may park on it.
///
/// A token left over from an earlier wait makes the next park return at once. So every caller re-checks its condition
/// and parks again: **a return from a park means "check again" and nothing else.**
#[derive(Debug)]
pub struct Parker {
    inner: Arc<Inner>,
}

/// The waking side of a [`Parker`].
#[derive(Clone, Debug)]
pub struct Unparker {
    inner: Arc<Inner>,
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Parker {
    /// A parker without a token.
    pub fn new() -> Self {
        let lock = Mutex::new(LockRank::Parker, ());
        Self { inner: Arc::new(Inner { state: AtomicU32::new(EMPTY), lock, condvar: Condvar::new() }) }
    }

    /// Returns the calling thread's own parker, allocated once per thread. All uses on the thread share its token.
    pub fn current() -> Self {
        #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
        {
            std::thread_local! {
                static CURRENT: Parker = Parker::new();
            }
            // A thread that is ending has lost its thread-locals; it gets a fresh parker.
            CURRENT.try_with(|parker| Self { inner: parker.inner.clone() }).unwrap_or_default()
        }
        #[cfg(any(foreshore_loom, foreshore_shuttle))]
        Self::new()
    }

    /// Returns a handle that wakes this parker.
    pub fn unparker(&self) -> Unparker {
        Unparker { inner: self.inner.clone() }
    }

    /// Waits for a token and consumes it.
    pub fn park(&self) {
        // WAIT: park - for the token.
        self.inner.park(None);
    }

    /// Parks for at most `timeout`; returns true if a token came. Under a model checker it yields and may time out at
    /// once.
    pub fn park_timeout(&self, timeout: Duration) -> bool {
        // WAIT: park - for the token or the end of the time.
        self.inner.park(Some(timeout))
    }
}

impl Unparker {
    /// Leaves a token and wakes the owner if it is parked. The owner then sees the caller's earlier writes.
    pub fn unpark(&self) {
        self.inner.unpark();
    }

    /// Returns whether a token is there already. Callers that then skip [`Unparker::unpark`] need a `SeqCst` fence
    /// before, and one in the owner after it has consumed a token.
    pub(crate) fn is_notified(&self) -> bool {
        // ORDERING: Relaxed, the fences named above carry the order.
        self.inner.state.load(Ordering::Relaxed) == NOTIFIED
    }
}

impl Inner {
    fn consume(&self) -> bool {
        // ORDERING: Acquire, pairs with the swap in `unpark`; a failure publishes nothing.
        self.state.compare_exchange(NOTIFIED, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn park(&self, timeout: Option<Duration>) -> bool {
        if self.consume() {
            return true;
        }
        let deadline = match timeout {
            None => None,
            Some(timeout) if timeout.is_zero() => return false,
            // A deadline beyond the clock's range never comes.
            Some(timeout) => deadline_now().checked_add(timeout),
        };
        let mut guard = self.lock.lock();
        // ORDERING: Relaxed, PARKED publishes nothing; the token is consumed below with Acquire.
        if let Err(state) = self.state.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed) {
            assert_eq!(state, NOTIFIED, "two threads park on one parker");
            return self.consume();
        }
        loop {
            // WAIT: park - this is the place where waits end.
            guard = match deadline {
                None => self.condvar.wait(guard),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(deadline_now());
                    let (guard, timed_out) = self.condvar.wait_timeout(guard, left);
                    if timed_out {
                        // ORDERING: Acquire, a token that came with the timeout counts; pairs with `unpark`.
                        return self.state.swap(EMPTY, Ordering::Acquire) == NOTIFIED;
                    }
                    guard
                }
            };
            if self.consume() {
                return true;
            }
        }
    }

    fn unpark(&self) {
        // ORDERING: AcqRel, Release publishes the caller's writes to `consume`, even over a token that is there
        // already.
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
            // Rule 2: passing through the lock makes sure that the owner sleeps. Notified after, so that it wakes to a
            // free lock.
            if !mutant("parker: notify without the lock") {
                drop(self.lock.lock());
            }
            self.condvar.notify_one();
        }
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;

    #[test]
    fn a_token_is_consumed_once_and_does_not_add_up() {
        let parker = Parker::new();
        let unparker = parker.unparker();
        unparker.unpark();
        unparker.unpark();
        assert!(unparker.is_notified());
        parker.park();
        assert!(!unparker.is_notified());
        assert!(!parker.park_timeout(Duration::from_millis(1)), "the token came twice");
        unparker.unpark();
        assert!(parker.park_timeout(Duration::ZERO), "a token is there");
        assert!(!parker.park_timeout(Duration::ZERO));
    }

    #[test]
    fn an_endless_timeout_waits_for_the_token() {
        let parker = Parker::new();
        let unparker = parker.unparker();
        thread::scope(|scope| {
            scope.spawn(move || unparker.unpark());
            assert!(parker.park_timeout(Duration::MAX));
        });
    }

    #[test]
    fn the_current_parker_belongs_to_the_thread() {
        let unparker = Parker::current().unparker();
        unparker.unpark();
        thread::scope(|scope| {
            scope.spawn(|| assert!(!Parker::current().unparker().is_notified()));
        });
        Parker::current().park();
        assert!(!unparker.is_notified());
    }

    #[test]
    fn two_threads_hand_a_token_to_and_fro() {
        let (ping, pong) = (Parker::new(), Parker::new());
        let (to_ping, to_pong) = (ping.unparker(), pong.unparker());
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..1000 {
                    pong.park();
                    to_ping.unpark();
                }
            });
            for _ in 0..1000 {
                to_pong.unpark();
                ping.park();
            }
        });
    }
}
