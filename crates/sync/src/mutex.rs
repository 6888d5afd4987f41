//! Mutex, reader-writer lock and condition variable: std's (or a model checker's), ranked and never poisoned.
//!
//! A panic under a lock fail-stops the database elsewhere. The lock itself ignores it, so that poison errors do not
//! also end the threads that shut down.

use crate::primitive::raw;
use crate::rank::{Held, LockRank};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A mutual-exclusion lock with a place in the lock order.
pub struct Mutex<T> {
    rank: LockRank,
    inner: raw::Mutex<T>,
}

/// Access to the data of a locked [`Mutex`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T> {
    // Declared first: the lock is released before its rank is.
    inner: raw::MutexGuard<'a, T>,
    _held: Held,
    // For a timed wait under a model checker, which has to release the lock itself.
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// Makes an unlocked mutex of `rank` around `value`.
    pub fn new(rank: LockRank, value: T) -> Self {
        Self { rank, inner: raw::Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of this rank or above.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::ordered(self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard {
            inner,
            _held: held,
            #[cfg(any(foreshore_loom, foreshore_shuttle))]
            mutex: self,
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard {
            inner,
            _held: Held::unordered(self.rank),
            #[cfg(any(foreshore_loom, foreshore_shuttle))]
            mutex: self,
        })
    }

    /// Returns the data without locking: the exclusive borrow shows that no other thread can use it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the data.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Sends the raw guard through a condition variable. The rank stays counted: a sleeper takes no other lock.
    fn map_inner(self, wait: impl FnOnce(raw::MutexGuard<'a, T>) -> raw::MutexGuard<'a, T>) -> Self {
        Self { inner: wait(self.inner), ..self }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable. Wake-ups may be spurious: waiters loop on their condition.
#[derive(Debug, Default)]
pub struct Condvar(raw::Condvar);

impl Condvar {
    /// Makes a condition variable without waiters.
    pub fn new() -> Self {
        Self(raw::Condvar::new())
    }

    /// Releases the lock, waits for a notification and takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        // WAIT: park - until a notification.
        guard.map_inner(|inner| self.0.wait(inner).unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits like [`Condvar::wait`], for at most `timeout`; returns true if the time ran out.
    ///
    /// A model checker has no time. Under loom it yields once and times out; under shuttle it may also wake without a
    /// reason.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> (MutexGuard<'a, T>, bool) {
        #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
        {
            let mut timed_out = false;
            // WAIT: park - until a notification or the end of the time.
            let guard = guard.map_inner(|inner| {
                let (inner, result) = self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
                timed_out = result.timed_out();
                inner
            });
            (guard, timed_out)
        }
        #[cfg(any(foreshore_loom, foreshore_shuttle))]
        {
            let _ = timeout;
            let mutex = guard.mutex;
            drop(guard);
            crate::primitive::thread::yield_now();
            (mutex.lock(), crate::primitive::time_is_over())
        }
    }

    /// Wakes one waiter, if there is one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A reader-writer lock with a place in the lock order. Readers count like writers there: no recursion.
pub struct RwLock<T> {
    rank: LockRank,
    inner: raw::RwLock<T>,
}

/// Access to the data of a [`RwLock`]: shared with a guard `G` for reading, exclusive with one for writing.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockGuard<G> {
    // Declared first: the lock is released before its rank is.
    inner: G,
    _held: Held,
}

impl<T> RwLock<T> {
    /// Makes an unlocked lock of `rank` around `value`.
    pub fn new(rank: LockRank, value: T) -> Self {
        Self { rank, inner: raw::RwLock::new(value) }
    }

    /// Waits for shared access.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of this rank or above.
    pub fn read(&self) -> RwLockGuard<impl Deref<Target = T>> {
        let held = Held::ordered(self.rank);
        RwLockGuard { inner: self.inner.read().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Waits for exclusive access.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of this rank or above.
    pub fn write(&self) -> RwLockGuard<impl DerefMut<Target = T>> {
        let held = Held::ordered(self.rank);
        RwLockGuard { inner: self.inner.write().unwrap_or_else(PoisonError::into_inner), _held: held }
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl<G: Deref> Deref for RwLockGuard<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for RwLockGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_leaves_the_data_to_the_next() {
        let (mutex, lock) = (Mutex::new(LockRank::Leaf, 1), RwLock::new(LockRank::Leaf, 1));
        let under_mutex = || {
            let mut guard = mutex.lock();
            *guard = 2;
            panic!("under the mutex");
        };
        let under_lock = || {
            let mut guard = lock.write();
            *guard = 2;
            panic!("under the lock");
        };
        assert!(catch_unwind(AssertUnwindSafe(under_mutex)).is_err());
        assert!(catch_unwind(AssertUnwindSafe(under_lock)).is_err());
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
        assert_eq!(*lock.read(), 2);
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn try_lock_fails_on_a_held_lock() {
        let mutex = Mutex::new(LockRank::Leaf, ());
        let guard = mutex.lock();
        thread::scope(|scope| {
            scope.spawn(|| assert!(mutex.try_lock().is_none()));
        });
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_wait_ends_by_notification_or_by_time() {
        let (mutex, condvar) = (Mutex::new(LockRank::Leaf, false), Condvar::new());
        let mut timed_out = false;
        while !timed_out {
            (_, timed_out) = condvar.wait_timeout(mutex.lock(), Duration::from_millis(1));
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() = true;
                condvar.notify_all();
            });
            let mut guard = mutex.lock();
            while !*guard {
                guard = condvar.wait(guard);
            }
        });
    }

    #[cfg(debug_assertions)]
    mod order {
        use super::*;

        #[test]
        fn ascending_ranks_pass_and_may_be_released_in_any_order() {
            let outer = Mutex::new(LockRank::Database, ());
            let inner = Mutex::new(LockRank::Leaf, ());
            let first = outer.lock();
            let second = inner.lock();
            drop(first);
            drop(second);
            let _again = outer.lock();
        }

        #[test]
        #[should_panic(expected = "lock order: Catalogue wanted")]
        fn a_lower_rank_is_refused() {
            let outer = Mutex::new(LockRank::Catalogue, ());
            let inner = Mutex::new(LockRank::Leaf, ());
            let _inner = inner.lock();
            let _outer = outer.lock();
        }

        #[test]
        #[should_panic(expected = "lock order: Space wanted")]
        fn an_equal_rank_is_refused() {
            let (one, other) = (Mutex::new(LockRank::Space, ()), RwLock::new(LockRank::Space, ()));
            let _one = one.lock();
            let _other = other.read();
        }

        #[test]
        #[should_panic(expected = "lock order: Space wanted")]
        fn what_try_lock_took_counts_for_the_next() {
            let (outer, inner) = (Mutex::new(LockRank::Space, ()), Mutex::new(LockRank::Leaf, ()));
            let _inner = inner.try_lock().expect("nobody holds it");
            assert!(outer.try_lock().is_some(), "an attempt may go upwards");
            let _outer = outer.lock();
        }
    }
}
