//! A lock of one byte that any thread may release.
//!
//! Source: Drepper, "Futexes Are Tricky", the second mutex, over a [`ParkTable`] instead of a futex.

use crate::model::mutant;
use crate::primitive::atomic::{AtomicU8, Ordering};
use crate::wait_mode::yield_processor;
use crate::{ParkTable, WaitMode, rmw};

// The state byte.
//
//   FREE    no thread holds the lock                  locker: -> HELD, or -> QUEUED once it has waited
//   HELD    held, no thread is parked                 locker about to park: -> QUEUED; unlocker: -> FREE
//   QUEUED  held, and threads may be parked           unlocker: -> FREE, then wakes one
//
// 1. A thread parks only while the byte is QUEUED, which it validates after it has registered in the table. So the
//    unlocker that ends this QUEUED finds it.
// 2. A thread that may have left others in the queue takes the lock as QUEUED, so that its own unlock wakes the next.
const FREE: u8 = 0;
const HELD: u8 = 1;
const QUEUED: u8 = 2;

/// A lock of one byte. It guards memory of its owner and holds no data itself.
///
/// Unlike [`Mutex`](crate::Mutex) another thread may unlock it, if it has synchronised with the one that locked it;
/// therefore it has no guard and no place in the lock order. Not fair: a newcomer may take a free lock ahead of woken
/// threads. Every call on one lock passes the same [`ParkTable`], and the lock does not move while it is held: its
/// address is the key.
///
/// Its read-modify-writes are counted in [`rmw`]: callers do not count them again.
///
/// ```
/// use foreshore_sync::{Mutex8, ParkTable, WaitMode, primitive::thread};
///
/// let (lock, table) = (Mutex8::new(), ParkTable::new());
/// lock.lock(&table, WaitMode::Park);
/// thread::scope(|scope| {
///     scope.spawn(|| lock.unlock(&table));
///     lock.lock(&table, WaitMode::Park);
/// });
/// ```
#[derive(Debug)]
pub struct Mutex8 {
    state: AtomicU8,
}

impl Default for Mutex8 {
    fn default() -> Self {
        Self::new()
    }
}

impl Mutex8 {
    /// A free lock.
    pub fn new() -> Self {
        Self { state: AtomicU8::new(FREE) }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        rmw::contended(1);
        // ORDERING: latch, what the last holder wrote is visible; pairs with `unlock`. A failure has learnt nothing.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock, waiting for it as `mode` says. Callers of one lock may differ in their modes.
    #[inline]
    pub fn lock(&self, table: &ParkTable, mode: WaitMode) {
        if !self.try_lock() {
            self.lock_slow(table, mode);
        }
    }

    /// Releases the lock and wakes a thread that is parked for it.
    #[inline]
    pub fn unlock(&self, table: &ParkTable) {
        rmw::contended(1);
        // ORDERING: latch, what this holder wrote the next one reads; pairs with `try_lock` and `lock_slow`.
        let release = if mutant("mutex8: relaxed release") { Ordering::Relaxed } else { Ordering::Release };
        let before = self.state.swap(FREE, release);
        debug_assert_ne!(before, FREE, "the lock is not held");
        if before == QUEUED {
            // Only the address is used from here on: the next holder may free the lock.
            table.unpark_one(self.key(), 0);
        }
    }

    #[cold]
    fn lock_slow(&self, table: &ParkTable, mode: WaitMode) {
        let mut spin = mode.budget(table.locks());
        while spin.spin() {
            if self.is_free() && self.try_lock() {
                return spin.end();
            }
        }
        loop {
            match mode {
                WaitMode::Spin => {
                    yield_processor();
                    if self.is_free() && self.try_lock() {
                        return;
                    }
                }
                WaitMode::Park => {
                    rmw::contended(1);
                    // ORDERING: latch, as `try_lock`. Rule 2: a first-timer, too, cannot know which others are queued.
                    if self.state.swap(QUEUED, Ordering::Acquire) == FREE {
                        return;
                    }
                    // ORDERING: Relaxed, the table's fences order this read with the unlocker's swap (rule 1).
                    let queued = || self.state.load(Ordering::Relaxed) == QUEUED || mutant("mutex8: park unseen");
                    // WAIT: park - until an unlocker wakes this thread.
                    table.park(self.key(), None, queued);
                    if mutant("mutex8: forget the queue") && self.try_lock() {
                        return;
                    }
                }
            }
        }
    }

    fn is_free(&self) -> bool {
        // ORDERING: hint, the exchange that follows decides.
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn key(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::atomic::AtomicU64;
    use crate::primitive::thread;
    use std::sync::mpsc;

    #[test]
    fn holders_of_either_mode_exclude_each_other() {
        const ROUNDS: u64 = 2_000;
        let (lock, table, inside, total) = (Mutex8::new(), ParkTable::new(), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for mode in [WaitMode::Park, WaitMode::Spin, WaitMode::Park, WaitMode::Park] {
                let (lock, table, inside, total) = (&lock, &table, &inside, &total);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        lock.lock(table, mode);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two holders");
                        // Two accesses that lose an update if another holder comes in between.
                        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        lock.unlock(table);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * ROUNDS);
        assert!(lock.is_free());
        assert_eq!(table.waiting(), 0);
    }

    #[test]
    fn another_thread_may_unlock() {
        let (lock, table) = (Mutex8::new(), ParkTable::new());
        let (hand, handed) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                for () in handed {
                    assert!(!lock.try_lock(), "it is held by the sender");
                    lock.unlock(&table);
                }
            });
            for _ in 0..1_000 {
                lock.lock(&table, WaitMode::Park);
                hand.send(()).expect("the other thread listens");
            }
            drop(hand);
        });
        assert!(lock.try_lock());
    }

    #[test]
    fn the_cost_of_a_lock_nobody_wants_is_two_exchanges() {
        let (lock, table) = (Mutex8::new(), ParkTable::new());
        let before = rmw::counted();
        lock.lock(&table, WaitMode::Park);
        lock.unlock(&table);
        assert_eq!(rmw::counted() - before, 2);
    }
}
