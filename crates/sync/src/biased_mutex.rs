//! A mutex that is cheap for the thread that locks it most.
//!
//! The first thread that calls [`BiasedMutex::lock`] is the **favourite**, and locks the mutex without a
//! read-modify-write. All others are **visitors**. They lock an ordinary mutex, and then keep the favourite out by an
//! asymmetric fence ([`SparingFence`]), which costs a system call. If that happens often, the mutex gives up its
//! favourite for good, and is an ordinary one from then on. A favourite that has ended holds no lock, and visitors soon
//! make the mutex an ordinary one. Numbers of threads are never reused, so no later thread passes for it.
//!
//! Neither side passes a full fence when it locks or unlocks the mutex. A protocol that relied on one needs its own.
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
use crate::spin::available_parallelism;
use std::fmt;
use std::marker::PhantomData;
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
// turn. In either order of the two fences:
//
// - The favourite's is first. The visitor sees the odd turn or a later one, and waits for an even one. That is a store
//   of `leave`, so what the favourite did under the lock comes before.
// - The visitor's is first. The favourite sees the odd state and gives way, or a later state. The later one is the
//   store of a visitor that has unlocked the mutex, so what that visitor did comes before.
//
// If the light fence is spared, the place of the favourite's fence is `P`, where the system's call makes it pass one.
// If `P` is between the two accesses, both cases hold: the visitor waits, and the favourite gives way.
//
// A visitor waits for one critical section at most: in the next one the favourite sees the state.
const NEW: usize = 0;
const PLAIN: usize = 1;
const KEPT_OUT: usize = 1;

const fn favours(thread: usize) -> usize {
    2 * thread + 2
}

/// How many locks without a read-modify-write pay for the interrupt of one processor: that takes about a microsecond,
/// and an exchange with its counterpart about 15 ns (Xeon, 2026).
const INTERRUPT: u64 = 64;
/// A mutex gives up its favourite when so many visits more are not paid for.
const MAX_UNPAID: u64 = if MODEL { 1 } else { 64 };

/// Returns how many locks pay for one visit: the system's call interrupts all processors that run the process.
fn visit_cost() -> u64 {
    if MODEL { 1 } else { INTERRUPT * available_parallelism() as u64 }
}

/// The part of the mutex that visitors share.
#[derive(Debug, Default)]
struct Visitors {
    /// The cost of visits that locks of the favourite have not paid for.
    unpaid: u64,
    /// The turn at the last visit.
    turn: u64,
    /// The state without the mark of a visitor. The visitor that holds this lock may yet have to store it.
    state: usize,
}

impl Visitors {
    /// Counts a visit at `turn`, which costs as much as `cost` locks. Returns whether the favourite does not pay.
    const fn count(&mut self, turn: u64, cost: u64) -> bool {
        let locks = turn.wrapping_sub(self.turn) / 2;
        (self.unpaid, self.turn) = (self.unpaid.saturating_sub(locks) + cost, turn);
        self.unpaid > MAX_UNPAID * cost
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
    /// Present if the thread is a visitor, with the state that it leaves behind if that is another one.
    visit: Option<(Option<usize>, raw::MutexGuard<'a, Visitors>)>,
    _held: Held,
    /// The guard is shared with other threads only if the value may be.
    access: PhantomData<&'a mut T>,
}

impl<T> BiasedMutex<T> {
    /// Makes an unlocked mutex of `rank` around `value`. Registers with the system, as
    /// [`AsymmetricFence::new`](crate::AsymmetricFence::new) does.
    pub fn new(rank: LockRank, value: T) -> Self {
        Self::by(SparingFence::new(), rank, value)
    }

    fn by(fence: SparingFence, rank: LockRank, value: T) -> Self {
        let (state, turn) = (AtomicUsize::new(NEW), AtomicU64::new(0));
        Self { rank, state, turn, fence, visitors: raw::Mutex::new(Visitors::default()), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. The first thread that calls this becomes the favourite.
    ///
    /// # Panics
    /// When the favourite holds the lock already; in debug builds, when this thread holds a lock of this rank or above.
    /// If the system refuses a call that it has granted before (see [`SparingFence::heavy`]).
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

    /// Waits for the lock, as the thread with that number, or as a visitor.
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    pub fn lock_in_model(&self, thread: Option<usize>) -> BiasedGuard<'_, T> {
        self.lock_as(thread)
    }

    /// Waits for the lock. No two threads have the same number.
    #[inline]
    fn lock_as(&self, thread: Option<usize>) -> BiasedGuard<'_, T> {
        let held = Held::ordered(self.rank);
        let is_favourite = thread.is_some_and(|thread| self.enter(favours(thread)));
        let visit = if is_favourite { None } else { Some(self.enter_visitor(thread)) };
        BiasedGuard { mutex: self, visit, _held: held, access: PhantomData }
    }

    /// Locks the mutex if no visitor keeps the calling thread out. The state is `mine` if that thread is the favourite.
    #[inline]
    fn enter(&self, mine: usize) -> bool {
        // ORDERING: hint, read again below. No other thread sets it to `mine`.
        if self.state.load(Ordering::Relaxed) != mine {
            return false;
        }
        // ORDERING: Relaxed, only this thread writes it.
        let turn = self.turn.load(Ordering::Relaxed);
        assert!(turn.is_multiple_of(2), "a thread locks a mutex that it holds");
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
        let is_mutant = mutant("biased mutex: a favourite leaves without a release");
        // ORDERING: Release, pairs with the load in `keep_out`.
        self.turn.store(turn.wrapping_add(1), if is_mutant { Ordering::Relaxed } else { Ordering::Release });
    }

    /// Locks the mutex as a visitor. Returns the state to leave behind, if that is another one, with the lock of the
    /// visitors.
    #[cold]
    fn enter_visitor(&self, thread: Option<usize>) -> (Option<usize>, raw::MutexGuard<'_, Visitors>) {
        let mut visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = thread.map(favours);
        let after = match visitors.state {
            NEW => mine,
            PLAIN => None,
            // The favourite itself was kept out. No visitor is left.
            state if Some(state) == mine => None,
            favourite => {
                self.keep_out(favourite);
                // ORDERING: Relaxed, read before; its writer is kept out.
                let gives_up = visitors.count(self.turn.load(Ordering::Relaxed), visit_cost());
                Some(if gives_up { PLAIN } else { favourite })
            }
        };
        visitors.state = after.unwrap_or(visitors.state);
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
        while self.turn.load(Ordering::Acquire) % 2 == 1 && !mutant("biased mutex: a visitor does not wait") {
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
            Some((None, _)) => {}
            Some((Some(state), _)) => {
                let is_mutant = mutant("biased mutex: a visitor leaves without a release");
                // ORDERING: Release, pairs with the second load in `enter`. The visitors' mutex is unlocked after this.
                self.mutex.state.store(*state, if is_mutant { Ordering::Relaxed } else { Ordering::Release });
            }
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
        const COST: u64 = 128;
        let mut visitors = Visitors::default();
        // Each visit comes after as many locks as it costs.
        assert!((1..10_000).all(|visit| !visitors.count(2 * visit * COST, COST)));
        // From here on they come one after the other.
        let turn = 2 * 10_000 * COST;
        let kept = (0..1000).take_while(|_| !visitors.count(turn, COST)).count() as u64;
        assert!((MAX_UNPAID - 2..=MAX_UNPAID).contains(&kept), "{kept} visits");
    }

    /// The favourite locks the mutex beside two visitors.
    fn add_beside_visitors(mutex: &BiasedMutex<u64>) {
        const LOCKS: u64 = 200_000;
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
    fn every_lock_counts_beside_visitors() {
        add_beside_visitors(&BiasedMutex::new(LockRank::Leaf, 0));
    }

    #[test]
    fn every_lock_counts_where_the_system_refuses() {
        add_beside_visitors(&BiasedMutex::by(SparingFence::by(None), LockRank::Leaf, 0));
    }

    #[test]
    fn visits_to_a_favourite_that_has_ended_make_an_ordinary_mutex() {
        let mutex = Arc::new(BiasedMutex::new(LockRank::Leaf, 0));
        let first = mutex.clone();
        let lock = move || {
            *first.lock() += 1;
            thread_index()
        };
        let favourite = thread::spawn(lock).join().expect("no panic");
        let state = || mutex.state.load(Ordering::Relaxed); // ORDERING: a test of one thread.
        assert_eq!(state(), favours(favourite));
        (0..=MAX_UNPAID).for_each(|_| *mutex.lock() += 1);
        assert_eq!((state(), *mutex.lock()), (PLAIN, MAX_UNPAID + 2));
    }

    #[test]
    #[should_panic(expected = "locks a mutex that it holds")]
    fn a_second_lock_of_the_favourite_panics() {
        let mutex = BiasedMutex::new(LockRank::Leaf, 0);
        drop(mutex.lock());
        let _first = mutex.lock();
        // Without the check of ranks that debug builds make.
        mutex.enter(favours(thread_index()));
    }
}
