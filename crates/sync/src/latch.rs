//! The hybrid latch: shared, exclusive and optimistic access behind one word.
//!
//! The three modes are those of Böttcher, Leis, Giceva, Neumann and Kemper, "Scalable and Robust Latches for Database
//! Systems" (DaMoN 2020). The version protocol is the seqlock of Boehm, "Can Seqlocks Get Along with Programming
//! Language Memory Models?" (MSPC 2012).

use crate::model::mutant;
use crate::park_table::Pick;
use crate::primitive::MODEL;
use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::spent::{self, Spent};
use crate::{ParkOutcome, ParkTable};

// The latch word.
//
//   63                    19  18     17        16      15            0
//  +------------------------+------+---------+-------+----------------+
//  |        version         | FAIR | WAITERS |   X   |     shared     |
//  +------------------------+------+---------+-------+----------------+
//
// shared:  number of shared holders. Holders, +1 and -1. Zero while X is set.
// X:       one exclusive holder. Set by it when shared == 0, cleared by it.
// WAITERS: a thread is queued at this latch's address in the park table. Set and cleared only under the bucket's lock:
//          set by a thread that queues, cleared by a waker that leaves the queue empty.
// FAIR:    only threads that were woken from the queue may take the latch. Set, with WAITERS, by a thread that queues
//          again after STARVED vain wake-ups; cleared when such a thread gets the latch.
// version: raised by the exclusive holder as it releases, unless it has changed nothing. 2^45 values: an optimistic
//          reader would have to sleep through a multiple of that many writes to be deceived.
//
// 1. While a thread is queued, the latch is held or some thread is active: a releaser about to wake, or a woken thread
//    about to try. For a thread queues only if it saw, under the bucket's lock and while it set WAITERS, the latch
//    held or FAIR set; and the thread that set FAIR is itself queued or active. Hence no lost wake-up.
// 2. A thread that was not woken obeys WAITERS and FAIR (see `admits`). A woken one obeys holders only; otherwise it
//    could queue at a free latch without any thread to wake it.
// 3. A releaser whose release leaves the latch free and finds WAITERS wakes the longest waiter, and with a shared one
//    the shared ones directly behind it.
const SHARED: u64 = 1;
const SHARED_MASK: u64 = 0xFFFF;
const EXCLUSIVE: u64 = 1 << 16;
const WAITERS: u64 = 1 << 17;
const FAIR: u64 = 1 << 18;
const VERSION: u64 = 1 << 19;
const VERSIONS: u64 = VERSION.wrapping_neg();

/// Unsuccessful wake-ups after which a waiter closes the latch to newcomers.
const STARVED: u32 = if MODEL { 1 } else { 4 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    /// Returns the word after entry in this mode, or `None` if the latch does not admit it.
    ///
    /// Fairness: newcomers may take a free latch ahead of the queue. The woken thread needs time to run, and a latch
    /// that idles meanwhile is a convoy. But a newcomer does not join shared holders once a thread waits, so that a
    /// stream of readers ends, and FAIR bounds how often a waiter can be overtaken.
    fn admits(self, word: u64, woken: bool) -> Option<u64> {
        let kept = word & FAIR != 0 && (!woken || mutant("latch: woken threads obey FAIR"));
        if word & EXCLUSIVE != 0 || kept {
            return None;
        }
        let shared = word & SHARED_MASK;
        match self {
            Self::Exclusive => (shared == 0).then_some(word | EXCLUSIVE),
            Self::Shared if shared > 0 && word & WAITERS != 0 && !woken => None,
            Self::Shared => (shared < SHARED_MASK).then_some(word + SHARED),
        }
    }
}

/// A latch with a version. It guards memory of its owner and holds no data itself.
///
/// Optimistic readers write nothing: they read a version, read the data through relaxed atomics, and
/// [`validate`](Self::validate) before they trust it. Latches are not re-entrant in any mode. Every call on one latch
/// passes the same [`ParkTable`], and the latch does not move while threads wait: its address is the key.
///
/// Waits have no timeout: latches are held for a few hundred instructions and taken in an order that excludes cycles.
#[derive(Debug)]
pub struct HybridLatch {
    word: AtomicU64,
}

impl Default for HybridLatch {
    fn default() -> Self {
        Self::new()
    }
}

impl HybridLatch {
    /// Makes a free latch of version 0.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Takes the latch shared if that needs no wait; returns false if it is held exclusively or reserved for waiters.
    #[inline]
    pub fn try_lock_shared(&self) -> bool {
        self.enter(Mode::Shared, false, 0)
    }

    /// Takes the latch shared.
    #[inline]
    pub fn lock_shared(&self, table: &ParkTable) {
        if !self.try_lock_shared() {
            self.lock_slow(table, Mode::Shared);
        }
    }

    /// Releases one shared hold.
    #[inline]
    pub fn unlock_shared(&self, table: &ParkTable) {
        // ORDERING: Release, this reader's loads stay before the next writer's stores; pairs with `enter`.
        let before = self.word.fetch_sub(SHARED, release());
        debug_assert!(before & SHARED_MASK != 0 && before & EXCLUSIVE == 0, "not held shared: {before:#x}");
        if before & SHARED_MASK == SHARED && before & WAITERS != 0 {
            self.wake(table, None);
        }
    }

    /// Takes the latch exclusively if that needs no wait.
    #[inline]
    pub fn try_lock_exclusive(&self) -> bool {
        self.enter(Mode::Exclusive, false, 0)
    }

    /// Takes the latch exclusively.
    #[inline]
    pub fn lock_exclusive(&self, table: &ParkTable) {
        if !self.try_lock_exclusive() {
            self.lock_slow(table, Mode::Exclusive);
        }
    }

    /// Releases the exclusive hold and raises the version: optimistic reads that overlap it fail.
    #[inline]
    pub fn unlock_exclusive(&self, table: &ParkTable) {
        self.leave_exclusive(table, VERSION - EXCLUSIVE);
    }

    /// Releases the exclusive hold of a caller that has changed nothing: optimistic reads from before stay valid.
    #[inline]
    pub fn unlock_exclusive_unchanged(&self, table: &ParkTable) {
        self.leave_exclusive(table, EXCLUSIVE.wrapping_neg());
    }

    /// Turns the exclusive hold into a shared one without letting a writer in between; raises the version.
    pub fn downgrade(&self, table: &ParkTable) {
        // ORDERING: Release, as in `leave_exclusive`.
        let before = self.word.fetch_add(VERSION - EXCLUSIVE + SHARED, release());
        debug_assert_eq!(before & (EXCLUSIVE | SHARED_MASK), EXCLUSIVE, "not held exclusively");
        // The latch is held, but shared waiters at the head of the queue may come in now.
        if before & WAITERS != 0 {
            self.wake(table, Some(Mode::Shared));
        }
    }

    /// Returns the version under which the data may be read optimistically; `None` while the latch is held
    /// exclusively. A later version is greater, until they wrap.
    #[inline]
    pub fn optimistic_version(&self) -> Option<u64> {
        // ORDERING: Acquire, the data of this version is visible; pairs with `leave_exclusive`.
        let word = self.word.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(word & VERSIONS)
    }

    /// Returns whether nothing was written since [`optimistic_version`](Self::optimistic_version) returned `version`.
    /// The data in between must have been read through atomics; it is valid only if this is true.
    #[inline]
    pub fn validate(&self, version: u64) -> bool {
        // ORDERING: seqlock read, the data loads stay before the load of the word; pairs with `exclusive_fence`: a
        // reader of a writer's store sees at least that writer's X.
        if !mutant("latch: no fence before validation") {
            fence(Ordering::Acquire);
        }
        let word = self.word.load(Ordering::Relaxed);
        word & (VERSIONS | EXCLUSIVE) == version
    }

    /// Takes the latch exclusively if it is free and `version` is still valid. Then everything read optimistically
    /// under it is valid, and stays so.
    #[inline]
    pub fn try_upgrade(&self, version: u64) -> bool {
        // ORDERING: seqlock read, as in `validate`: a writer whose store the caller has seen has left its X or its
        // version in the word, where the exchange below meets it.
        fence(Ordering::Acquire);
        // ORDERING: Relaxed, the exchange below decides.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & VERSIONS != version && !mutant("latch: upgrade ignores the version") {
                return false;
            }
            let Some(next) = Mode::Exclusive.admits(word, false) else { return false };
            // ORDERING: Acquire, as in `enter`.
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    exclusive_fence();
                    return true;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Returns the version that the latch will have when its exclusive holder, the caller, has released it, having
    /// `changed` the data or not.
    #[inline]
    pub fn version_after(&self, changed: bool) -> u64 {
        // ORDERING: Relaxed, only the holder changes the version.
        let version = self.word.load(Ordering::Relaxed) & VERSIONS;
        if changed { version.wrapping_add(VERSION) } else { version }
    }

    /// Returns whether some thread holds the latch exclusively: for assertions by the holder.
    pub fn is_exclusive(&self) -> bool {
        // ORDERING: Relaxed, a holder sees its own write.
        self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Tries once without waiting, and repeats only while other threads' entries and exits change the word. `clear` is
    /// FAIR for a thread that had set it.
    #[inline]
    fn enter(&self, mode: Mode, woken: bool, clear: u64) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let mut word = self.word.load(Ordering::Relaxed);
        while let Some(next) = mode.admits(word, woken) {
            // ORDERING: Acquire, what the last holder wrote is visible; pairs with the releases.
            match self.word.compare_exchange_weak(word, next & !clear, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    if mode == Mode::Exclusive {
                        exclusive_fence();
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }

    #[cold]
    fn lock_slow(&self, table: &ParkTable, mode: Mode) {
        spent::during(Spent::LatchWait, || self.lock_queued(table, mode));
    }

    fn lock_queued(&self, table: &ParkTable, mode: Mode) {
        let mut spin = table.latches.begin();
        while spin.spin() {
            if self.enter(mode, false, 0) {
                return spin.end();
            }
        }
        let mut wakes = 0;
        loop {
            let fair = if wakes >= STARVED { FAIR } else { 0 };
            let queue = || self.mark_waiting(mode, wakes > 0, WAITERS | fair);
            // WAIT: park - until a releaser wakes this thread; see rule 1.
            if table.park_as(self.key(), mode as u32, None, queue) != ParkOutcome::Invalid {
                wakes += 1;
            }
            if self.enter(mode, wakes > 0, fair) {
                return;
            }
        }
    }

    /// Marks the latch for a thread that is about to queue; returns false if it can enter instead. Under the bucket's
    /// lock.
    fn mark_waiting(&self, mode: Mode, woken: bool, mark: u64) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let mut word = self.word.load(Ordering::Relaxed);
        while mode.admits(word, woken).is_none() {
            if mutant("latch: queue without a mark") {
                return true;
            }
            // ORDERING: Relaxed, a holder's release is a read-modify-write and cannot miss the mark; the queue itself
            // is published by the bucket's lock.
            match self.word.compare_exchange_weak(word, word | mark, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    fn leave_exclusive(&self, table: &ParkTable, change: u64) {
        // ORDERING: Release, publishes the holder's writes; pairs with `enter` and `optimistic_version`.
        let before = self.word.fetch_add(change, release());
        debug_assert_eq!(before & (EXCLUSIVE | SHARED_MASK), EXCLUSIVE, "not held exclusively: {before:#x}");
        if before & WAITERS != 0 {
            self.wake(table, None);
        }
    }

    /// Wakes the head of the queue, and with a shared one the shared ones behind it; none if `only` is another mode.
    #[cold]
    fn wake(&self, table: &ParkTable, only: Option<Mode>) {
        let mut batch = only.map(|mode| mode as u32);
        let pick = |role| {
            let joins = match batch {
                None => true,
                Some(first) => first == role && role == Mode::Shared as u32,
            };
            batch = Some(role);
            if joins { Pick::Wake } else { Pick::Stop }
        };
        table.unpark_while(self.key(), 0, pick, |left_behind| {
            if !left_behind {
                // ORDERING: Relaxed, under the bucket's lock like every change of WAITERS.
                self.word.fetch_and(!WAITERS, Ordering::Relaxed);
            }
        });
    }

    fn key(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
}

/// Runs after X is set and before the holder's first store.
#[inline]
fn exclusive_fence() {
    // ORDERING: seqlock read, X is visible to any thread that sees a later store; pairs with the fence in `validate`.
    if !mutant("latch: no fence after entry") {
        fence(Ordering::Release);
    }
}

/// Returns the ordering of every release of a hold.
#[inline]
fn release() -> Ordering {
    // ORDERING: latch, what this holder wrote the next one reads; pairs with `enter`.
    if mutant("latch: relaxed release") { Ordering::Relaxed } else { Ordering::Release }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
