//! Event counts: waiting for any condition, with notifications that cost a fence and one load, or the load alone.
//!
//! Source: Vyukov's eventcount, as in folly's `EventCount`.

use crate::clock::deadline_now;
use crate::model::mutant;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::{Condvar, LockRank, Mutex, SparingFence, rmw};
use std::time::Duration;

// The state word.
//
//   63            32 31             0
//  +----------------+----------------+
//  |     epoch      |    waiters     |
//  +----------------+----------------+
//
// waiters: threads between `prepare` and the end of their `wait` or `cancel`; they change it by +1 and -1.
// epoch: raised by a notifier that saw waiters > 0, under the lock; wraps. A sleeper wakes up when it differs from its
// key.
// 1. waiters is raised before the waiter's fence and re-check, and read after the notifier's fence. If the waiter's
//    fence is first, the notifier sees the waiter. If the notifier's is first, the re-check sees the condition.
//    Neither two waiters nor two notifiers need an order, so the notifier's fence may be a light one.
// 2. The epoch moves only under the lock under which sleepers compare it: no notification between compare and sleep.
const WAITER: u64 = 1;
const EPOCH: u64 = 1 << 32;
const WAITERS: u64 = EPOCH - 1;

/// A registration that [`EventCount::prepare`] hands out; it ends in `wait` or `cancel`.
#[must_use = "a registration ends in `wait` or `cancel`"]
#[derive(Debug)]
pub struct EventKey {
    epoch: u64,
}

/// A place to wait for a condition that others change and then notify.
///
/// Waiter: `prepare`, check the condition, then `cancel` if it holds or `wait` if not; then start over. Notifier: make
/// the condition true, then notify.
///
/// ```
/// # use foreshore_sync::{EventCount, primitive::{atomic::{AtomicBool, Ordering}, thread}};
/// let (events, ready) = (EventCount::new(), AtomicBool::new(false));
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         loop {
///             let key = events.prepare();
///             if ready.load(Ordering::Acquire) {
///                 break events.cancel(key);
///             }
///             events.wait(key, None);
///         }
///     });
///     ready.store(true, Ordering::Release);
///     events.notify_all();
/// });
/// ```
#[derive(Debug)]
pub struct EventCount {
    state: AtomicU64,
    /// Notifiers are the light side.
    fence: SparingFence,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// Makes an event count without waiters.
    pub fn new() -> Self {
        Self::by(SparingFence::by(None))
    }

    /// Makes an event count for which threads wait rarely, and that is notified often. A notification without waiters
    /// costs one load. A registration makes a system call instead.
    pub fn with_rare_waits() -> Self {
        Self::by(SparingFence::new())
    }

    fn by(fence: SparingFence) -> Self {
        let lock = Mutex::new(LockRank::EventCount, ());
        Self { state: AtomicU64::new(0), fence, lock, condvar: Condvar::new() }
    }

    /// Registers the caller; from here on every notification ends its wait. The condition is checked after this.
    pub fn prepare(&self) -> EventKey {
        rmw::contended(1);
        // ORDERING: Acquire, so that a key of the new epoch comes with what was changed before that notification.
        let before = self.state.fetch_add(WAITER, Ordering::Acquire);
        if !mutant("event count: no fence after registration") {
            // Store, fence, look: pairs with the fence in `notify`.
            self.fence.heavy();
        }
        debug_assert_ne!(before & WAITERS, WAITERS, "2^32 waiters");
        EventKey { epoch: before / EPOCH }
    }

    /// Ends a registration without a wait.
    pub fn cancel(&self, key: EventKey) {
        let EventKey { .. } = key;
        rmw::contended(1);
        // ORDERING: Relaxed, a count read too high only costs a notifier the lock.
        self.state.fetch_sub(WAITER, Ordering::Relaxed);
    }

    /// Waits until a notification follows the registration; returns false if `timeout` was over first. Spurious
    /// wake-ups are allowed. Under a model checker a timed wait yields and may time out at once.
    pub fn wait(&self, key: EventKey, timeout: Option<Duration>) -> bool {
        // A deadline beyond the clock's range never comes.
        let deadline = timeout.and_then(|timeout| deadline_now().checked_add(timeout));
        let mut timed_out = false;
        let mut guard = self.lock.lock();
        // ORDERING: Acquire, pairs with the Release in `notify`: what came before the notification is visible.
        while self.state.load(Ordering::Acquire) / EPOCH == key.epoch && !timed_out {
            // WAIT: park - until a notifier moves the epoch.
            (guard, timed_out) = match deadline {
                None => (self.condvar.wait(guard), false),
                Some(deadline) => self.condvar.wait_timeout(guard, deadline.saturating_duration_since(deadline_now())),
            };
        }
        drop(guard);
        rmw::contended(1);
        // ORDERING: Acquire, a notification that came with the timeout counts; pairs with `notify`.
        self.state.fetch_sub(WAITER, Ordering::Acquire) / EPOCH != key.epoch
    }

    /// Ends the wait of at least one registered thread, if there are any.
    pub fn notify_one(&self) {
        self.notify(false);
    }

    /// Ends the waits of all registered threads. Costs a light fence and one load when there are none.
    #[inline]
    pub fn notify_all(&self) {
        self.notify(true);
    }

    #[inline]
    fn notify(&self, all: bool) {
        // Store, fence, look: the caller has stored the condition; pairs with the fence in `prepare`.
        if !mutant("event count: no fence before looking") {
            self.fence.light();
        }
        // ORDERING: Relaxed, ordered by the fence.
        if self.state.load(Ordering::Relaxed) & WAITERS == 0 {
            return;
        }
        self.wake(all);
    }

    #[cold]
    fn wake(&self, all: bool) {
        let guard = self.lock.lock();
        rmw::contended(1);
        // ORDERING: Release, publishes the condition to `wait` and `prepare`.
        self.state.fetch_add(EPOCH, Ordering::Release);
        // Under the lock: a later waiter, whose key has the new epoch, must not take the wake-up of an earlier one.
        if all {
            self.condvar.notify_all();
        } else {
            self.condvar.notify_one();
        }
        drop(guard);
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;

    #[test]
    fn a_notification_after_the_registration_ends_the_wait() {
        let events = EventCount::new();
        let (first, second) = (events.prepare(), events.prepare());
        events.notify_one();
        assert!(events.wait(first, None));
        assert!(events.wait(second, None), "each that registered before the notification sees it");
        assert_eq!(events.state.load(Ordering::Relaxed) & WAITERS, 0, "registrations are all given back");
    }

    #[test]
    fn a_notification_before_the_registration_does_not() {
        let events = EventCount::new();
        let early = events.prepare();
        events.notify_all();
        let key = events.prepare();
        assert!(!events.wait(key, Some(Duration::from_millis(1))));
        events.cancel(early);
        assert_eq!(events.state.load(Ordering::Relaxed), EPOCH);
    }

    #[test]
    fn a_notification_without_waiters_changes_nothing() {
        let events = EventCount::new();
        events.cancel(events.prepare());
        events.notify_all();
        assert_eq!(events.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_epoch_wraps_over_the_waiters() {
        let events = EventCount::new();
        events.state.store(!WAITERS, Ordering::Relaxed);
        assert_eq!(events.state.load(Ordering::Relaxed) / EPOCH, u64::from(u32::MAX), "the last epoch, nobody waits");
        let key = events.prepare();
        events.notify_all();
        assert!(events.wait(key, None));
        assert_eq!(events.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_job_is_taken() {
        const JOBS: u64 = 2000;
        let (events, jobs) = (EventCount::new(), AtomicU64::new(0));
        let take = |jobs: u64| jobs.checked_sub(1);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < JOBS / 4 {
                        let key = events.prepare();
                        if jobs.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok() {
                            events.cancel(key);
                            taken += 1;
                        } else {
                            events.wait(key, None);
                        }
                    }
                });
            }
            for _ in 0..JOBS {
                jobs.fetch_add(1, Ordering::AcqRel);
                events.notify_one();
            }
        });
        assert_eq!(jobs.load(Ordering::Relaxed), 0);
    }
}
