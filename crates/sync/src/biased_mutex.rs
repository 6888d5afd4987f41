//! A mutex that is cheap for the thread that locks it most.
//!
//! The first thread that calls [`BiasedMutex::lock`] is the **favourite**, and locks the mutex without a
//! read-modify-write. All others are **visitors**. They lock an ordinary mutex, and then keep the favourite out by an
//! asymmetric fence ([`SparingFence`]), which costs a system call. If that happens often, the mutex gives up its
//! favourite for good, and is an ordinary one from then on.
//!
//! After Kawachiya, Koseki and Onodera, "Lock Reservation: Java Locks Can Mostly Do Without Atomic Operations", OOPSLA
//! 2002. There a visitor stops the favourite; here it makes it pass a fence.

use crate::asymmetric::SparingFence;
use crate::counter::thread_index;
use crate::model::mutant;
use crate::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::primitive::raw;
use crate::primitive::thread::yield_now;
use crate::primitive::{MODEL, UnsafeCell};
use crate::rank::{Held, LockRank};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

// The state of the mutex.
//
//   0            it has no favourite yet
//   1            it has no favourite any more
//   2n + 2       the thread with number n is the favourite
//   2n + 3       the same, and a visitor keeps it out
//
// 1. Written by the holder of `visitors` only. 0 -> 2n + 2: by thread n. 2n + 2 -> 2n + 3 -> 2n + 2 or 1: by a visitor.
// 2. The favourite never changes to another one, so one thread at most writes `turn`.
//
// `turn` is odd from before the favourite looks whether a visitor keeps it out until it has unlocked the mutex.
//
// The favourite stores an odd turn, fences and reads the state. A visitor stores an odd state, fences and reads the
// turn. At least one of the two sees the other. The favourite then gives way, and the visitor waits. A visitor waits
// for one critical section at most: in the next one the favourite sees the state.
const NEW: usize = 0;
const PLAIN: usize = 1;
const KEPT_OUT: usize = 1;

const fn favours(thread: usize) -> usize {
    2 * thread + 2
}

/// How many locks without a read-modify-write pay for one visit: the system call takes about a microsecond, and an
/// exchange with its counterpart about 15 ns (Xeon, 2026).
const VISIT: u64 = 64;
/// The debt at which a mutex gives up its favourite: so many visits in a row, or more between locks that do not pay for
/// them.
const MAX_DEBT: u64 = 64 * VISIT;

/// The part of the mutex that visitors share.
#[derive(Debug, Default)]
struct Visitors {
    /// What visits have cost and locks of the favourite have not paid for.
    debt: u64,
    /// The turn at the last visit.
    turn: u64,
}

impl Visitors {
    /// Counts a visit at `turn`. Returns whether the favourite does not pay.
    const fn count(&mut self, turn: u64) -> bool {
        let locks = turn.wrapping_sub(self.turn) / 2;
        (self.debt, self.turn) = (self.debt.saturating_sub(locks) + VISIT, turn);
        self.debt > MAX_DEBT
    }
}

/// A mutual-exclusion lock with a place in the lock order. It is cheap for its favourite, the first thread that locks
/// it, and expensive for others.
pub struct BiasedMutex<T> {
    rank: LockRank,
    /// Contract above.
    state: AtomicUsize,
    /// Contract above. Written by the favourite.
    turn: AtomicU64,
    fence: SparingFence,
    visitors: raw::Mutex<Visitors>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by one thread at a time, as with `Mutex`; the contract above says why.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// Access to the data of a locked [`BiasedMutex`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct BiasedGuard<'a, T> {
    mutex: &'a BiasedMutex<T>,
    /// Present if the thread is a visitor, with the state that it leaves behind.
    visit: Option<(usize, raw::MutexGuard<'a, Visitors>)>,
    _held: Held,
}

impl<T> BiasedMutex<T> {
    /// Makes an unlocked mutex of `rank` around `value`. Registers with the system, as
    /// [`AsymmetricFence::new`](crate::AsymmetricFence::new) does.
    pub fn new(rank: LockRank, value: T) -> Self {
        let (state, turn, fence) = (AtomicUsize::new(NEW), AtomicU64::new(0), SparingFence::new());
        Self { rank, state, turn, fence, visitors: raw::Mutex::new(Visitors::default()), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. The first thread that calls this becomes the favourite.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of this rank or above. If the system refuses a call that it has
    /// granted before (see [`SparingFence::heavy`]).
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        // Threads of a model have no numbers of their own, so there is no favourite.
        self.lock_as((!MODEL).then(thread_index))
    }

    /// Waits for the lock, as a visitor if the mutex has a favourite. For threads that look at many mutexes of others.
    ///
    /// # Panics
    /// Those of [`lock`](Self::lock).
    pub fn visit(&self) -> BiasedGuard<'_, T> {
        self.lock_as(None)
    }

    /// Waits for the lock, as the thread with that number. For models, whose threads have no other numbers.
    #[doc(hidden)]
    #[inline]
    pub fn lock_as(&self, thread: Option<usize>) -> BiasedGuard<'_, T> {
        let held = Held::ordered(self.rank);
        let is_favourite = thread.is_some_and(|thread| self.enter(favours(thread)));
        let visit = if is_favourite { None } else { Some(self.enter_visitor(thread)) };
        BiasedGuard { mutex: self, visit, _held: held }
    }

    /// Locks the mutex if the calling thread is the favourite, for whom the state is `mine`, and no visitor keeps it
    /// out.
    #[inline]
    fn enter(&self, mine: usize) -> bool {
        // ORDERING: hint, read again below. No other thread sets it to `mine`.
        if self.state.load(Ordering::Relaxed) != mine {
            return false;
        }
        // ORDERING: Relaxed, only this thread writes it.
        let turn = self.turn.load(Ordering::Relaxed);
        // ORDERING: Relaxed, ordered by the fence.
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        if !mutant("biased mutex: no fence behind the turn") {
            // Store, fence, look: pairs with the fence in `keep_out`.
            self.fence.light();
        }
        // ORDERING: Acquire, pairs with the store of a visitor that unlocks the mutex.
        if self.state.load(Ordering::Acquire) == mine || mutant("biased mutex: a favourite does not look again") {
            return true;
        }
        self.leave();
        false
    }

    /// Ends the favourite's turn.
    #[inline]
    fn leave(&self) {
        // ORDERING: Relaxed, only this thread writes it.
        let turn = self.turn.load(Ordering::Relaxed);
        // ORDERING: Release, pairs with the load in `keep_out`.
        self.turn.store(turn.wrapping_add(1), Ordering::Release);
    }

    /// Locks the mutex as a visitor. Returns the state to leave behind with the lock of the visitors.
    #[cold]
    fn enter_visitor(&self, thread: Option<usize>) -> (usize, raw::MutexGuard<'_, Visitors>) {
        let mut visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDERING: Relaxed, written under the lock that is held.
        let state = self.state.load(Ordering::Relaxed);
        let mine = thread.map(favours);
        let after = match state {
            NEW => mine.unwrap_or(NEW),
            PLAIN => PLAIN,
            // The favourite itself was kept out. No visitor is left.
            _ if Some(state) == mine => state,
            favourite => {
                self.keep_out(favourite);
                // ORDERING: Relaxed, read before; its writer is kept out.
                let gives_up = visitors.count(self.turn.load(Ordering::Relaxed));
                if gives_up { PLAIN } else { favourite }
            }
        };
        (after, visitors)
    }

    /// Keeps the favourite out, and waits until it has unlocked the mutex.
    fn keep_out(&self, favourite: usize) {
        // ORDERING: Relaxed, ordered by the fence.
        self.state.store(favourite | KEPT_OUT, Ordering::Relaxed);
        if !mutant("biased mutex: no fence behind the visit") {
            // Store, fence, look: pairs with the fence in `enter`.
            self.fence.heavy();
        }
        // ORDERING: Acquire, pairs with the store in `leave`: what the favourite did under the lock comes before.
        while self.turn.load(Ordering::Acquire) % 2 == 1 {
            // WAIT: window - the favourite ends its critical section. It may have lost its processor.
            yield_now();
        }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the thread holds the lock, see the contract of the state.
        self.mutex.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &self.visit {
            None => self.mutex.leave(),
            // ORDERING: Release, pairs with the second load in `enter`. The visitors' mutex is unlocked after this.
            Some((state, _)) => self.mutex.state.store(*state, Ordering::Release),
        }
    }
}

impl<T> fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedMutex").field("rank", &self.rank).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;
    use std::sync::Arc;

    #[test]
    fn a_favourite_is_kept_while_it_pays() {
        let mut visitors = Visitors::default();
        // Each visit comes after as many locks as it costs.
        assert!((1..10_000).all(|visit| !visitors.count(2 * visit * VISIT)));
        // From here on they come one after the other.
        let turn = 2 * 10_000 * VISIT;
        let kept = (0..1000).take_while(|_| !visitors.count(turn)).count() as u64;
        assert!((MAX_DEBT / VISIT - 2..=MAX_DEBT / VISIT).contains(&kept), "{kept} visits");
    }

    #[test]
    fn every_lock_counts_beside_visitors() {
        const LOCKS: u64 = 200_000;
        let mutex = BiasedMutex::new(LockRank::Leaf, 0_u64);
        thread::scope(|scope| {
            scope.spawn(|| (0..LOCKS).for_each(|_| *mutex.lock() += 1));
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..LOCKS / 100 {
                        *mutex.lock() += 1;
                        thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), LOCKS + LOCKS / 50);
    }

    #[test]
    fn many_visits_end_the_favour() {
        let mutex = Arc::new(BiasedMutex::new(LockRank::Leaf, 0));
        *mutex.lock() += 1;
        let state = || mutex.state.load(Ordering::Relaxed);
        assert_eq!(state(), favours(thread_index()));
        let visits = mutex.clone();
        let visitor = thread::spawn(move || (0..MAX_DEBT / VISIT + 1).for_each(|_| *visits.lock() += 1));
        visitor.join().expect("no panic");
        assert_eq!(state(), PLAIN);
        *mutex.lock() += 1;
        assert_eq!(*mutex.lock(), MAX_DEBT / VISIT + 3);
    }
}
