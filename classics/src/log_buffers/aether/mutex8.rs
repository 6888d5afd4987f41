//! A lock of one byte that any thread may release.
//!
//! Source: Drepper, "Futexes Are Tricky", the second mutex, over a [`ParkTable`] instead of a futex.

use super::waits::key;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU8, Ordering};
use foreshore_sync::{ParkTable, SpinSite, rmw};

// The state byte.
//
//   FREE    no thread holds the lock                  locker: -> HELD, or -> QUEUED once it has waited
//   HELD    held, no thread is parked                 locker about to park: -> QUEUED; unlocker: -> FREE
//   QUEUED  held, and threads may be parked           unlocker: -> FREE, then wakes one
//
// 1. A thread parks only while the byte is QUEUED, which it validates after it has announced itself to the table: the
//    unlocker that ends this QUEUED finds it.
// 2. A thread that may have left others behind in the queue takes the lock as QUEUED, so that its own unlock wakes the
//    next.
const FREE: u8 = 0;
const HELD: u8 = 1;
const QUEUED: u8 = 2;

/// A lock of one byte, and what it has learnt of spins. It guards memory of its owner and holds no data itself.
///
/// Unlike [`Mutex`](foreshore_sync::Mutex) it may be unlocked by another thread than the one that locked it, if the
/// two have synchronised in between. So it has no guard and no place in the lock order. Not fair: a newcomer may take
/// a free lock ahead of those that were woken for it. Every call on one lock passes the same [`ParkTable`]. The lock
/// does not move while it is held: its address is the key.
///
/// Its read-modify-writes are counted in [`rmw`]: callers do not count them again.
///
/// ```
/// use foreshore_classics::log_buffers::Mutex8;
/// use foreshore_sync::{ParkTable, primitive::thread};
///
/// let (lock, table) = (Mutex8::default(), ParkTable::new());
/// lock.lock(&table);
/// thread::scope(|scope| {
///     scope.spawn(|| lock.unlock(&table));
///     lock.lock(&table);
/// });
/// ```
#[derive(Debug, Default)]
pub struct Mutex8 {
    state: AtomicU8,
    site: SpinSite,
}

impl Mutex8 {
    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        rmw::contended(1);
        // ORDERING: latch, what the last holder wrote is visible; pairs with `unlock`. A failure has learnt nothing.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock. Parks after a few pauses.
    #[inline]
    pub fn lock(&self, table: &ParkTable) {
        if !self.try_lock() {
            self.lock_slow(table);
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
            table.unpark_one(key(self), 0);
        }
    }

    #[cold]
    fn lock_slow(&self, table: &ParkTable) {
        let mut spin = self.site.begin();
        while spin.spin() {
            // ORDERING: hint, the exchange that follows decides.
            if self.state.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return spin.end();
            }
        }
        loop {
            rmw::contended(1);
            // ORDERING: latch, as `try_lock`. Rule 2: a thread that has not waited knows nothing of the queue either.
            if self.state.swap(QUEUED, Ordering::Acquire) == FREE {
                return;
            }
            // ORDERING: Relaxed, the table's fences order this load with the unlocker's swap (rule 1).
            let queued = || self.state.load(Ordering::Relaxed) == QUEUED || mutant("mutex8: park unseen");
            // WAIT: park - until an unlocker wakes this thread.
            table.park(key(self), None, queued);
            if mutant("mutex8: forget the queue") && self.try_lock() {
                return;
            }
        }
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use foreshore_sync::primitive::atomic::AtomicU64;
    use foreshore_sync::primitive::thread;
    use std::sync::mpsc;

    #[test]
    fn holders_exclude_each_other() {
        const ROUNDS: u64 = 2_000;
        let (lock, table, inside, total) = (Mutex8::default(), ParkTable::new(), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        lock.lock(&table);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two holders");
                        // Two accesses that lose an update if another holder comes in between.
                        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        lock.unlock(&table);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * ROUNDS);
        assert!(lock.try_lock(), "free at the end");
        assert!(!table.has_waiters(key(&lock)));
    }

    #[test]
    fn another_thread_may_unlock() {
        let (lock, table) = (Mutex8::default(), ParkTable::new());
        let (hand, handed) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                for () in handed {
                    assert!(!lock.try_lock(), "it is held by the sender");
                    lock.unlock(&table);
                }
            });
            for _ in 0..1_000 {
                lock.lock(&table);
                hand.send(()).expect("the other thread listens");
            }
            drop(hand);
        });
        assert!(lock.try_lock());
    }

    #[test]
    fn an_uncontended_holding_costs_two_exchanges() {
        let (lock, table) = (Mutex8::default(), ParkTable::new());
        let before = rmw::counted();
        lock.lock(&table);
        lock.unlock(&table);
        assert_eq!(rmw::counted() - before, 2);
    }
}
