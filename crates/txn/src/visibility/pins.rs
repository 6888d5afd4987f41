//! Pins: the writers that are accessing old versions, although no reader needs these versions.
//!
//! A writer that links a new version reads the entries of older ones, and a collector frees what no reader needs. So
//! each of them first publishes a commit number. The writer's pin: it reads only what later commits replaced. The
//! collector's announcement: it frees only what commits up to it replaced.
//!
//! | step | writer | collector |
//! |---|---|---|
//! | 1 | stores its pin | stores its announcement |
//! | 2 | `SeqCst` fence | `SeqCst` fence |
//! | 3 | loads the announcement | loads the pins |
//!
//! **Invariant:** a collector frees nothing that a pinned writer may access. Either the collector finds the pin and
//! stays at or below it. Or the writer finds the announcement, and raises its pin to that.

use foreshore_base::Csn;
use foreshore_sync::CachePadded;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use foreshore_sync::primitive::thread::yield_now;

/// One pin for each session, by the index of its lock owner.
#[derive(Debug)]
pub(crate) struct Pins {
    /// Zero, or a commit number plus one: the session accesses nothing that commits up to that number replaced. Only
    /// the session writes its slot.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    /// The largest announcement: collectors free nothing above it.
    announced: CachePadded<AtomicU64>,
}

impl Pins {
    pub(crate) fn new(count: usize) -> Self {
        let slots = (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { slots, used: AtomicUsize::new(0), announced: CachePadded::new(AtomicU64::new(0)) }
    }

    /// Pins a horizon, and returns it: `at`, or a higher one. What commits above it replaced is not freed until
    /// [`unpin`](Self::unpin). No reader needs what commits up to it replaced, and the caller must not access that.
    pub(crate) fn pin(&self, index: usize, mut at: Csn) -> Csn {
        // ORDERING: Relaxed on both, ordered by the fence.
        if self.used.load(Ordering::Relaxed) <= index {
            self.used.fetch_max(index + 1, Ordering::Relaxed);
        }
        loop {
            // ORDERING: Relaxed, ordered by the fence.
            self.slots[index].store(at.0 + 1, Ordering::Relaxed);
            // ORDERING: store, fence, look: see the table above.
            fence(Ordering::SeqCst);
            // ORDERING: Acquire, pairs with `announce`: the views up to here are visible.
            let announced = Csn(self.announced.load(Ordering::Acquire));
            if announced <= at || mutant("pins: no look behind the pin") {
                return at;
            }
            // Each iteration follows the progress of a collector.
            at = announced;
        }
    }

    /// Removes the pin: the session accesses nothing any more.
    pub(crate) fn unpin(&self, index: usize) {
        // ORDERING: Relaxed, the session's own.
        debug_assert!(self.slots[index].load(Ordering::Relaxed) > 0, "session {index} ends a pin that it has not");
        // ORDERING: Release, what was touched comes before; pairs with `announce`.
        self.slots[index].store(0, Ordering::Release);
    }

    /// Returns whether a session may access what commits below `horizon` replaced. The horizon was announced.
    pub(crate) fn is_any_below(&self, horizon: Csn) -> bool {
        self.lowest().is_some_and(|pin| pin < horizon)
    }

    /// Waits until it has seen each session without a pin, or `may_wait` returns false. Returns whether it has seen
    /// all. A session has a pin only for the time of one change.
    ///
    /// Each later pin comes after what the caller stored before its `SeqCst` fence.
    pub(crate) fn have_all_been_off(&self, mut may_wait: impl FnMut() -> bool) -> bool {
        // ORDERING: Relaxed, ordered by the caller's fence and that of `pin`.
        let used = self.used.load(Ordering::Relaxed);
        self.slots[..used].iter().all(|slot| {
            // ORDERING: Acquire, pairs with `unpin`: what was changed under the pin is visible.
            while slot.load(Ordering::Acquire) > 0 {
                if !may_wait() {
                    return false;
                }
                // WAIT: window - a writer links one version; it may have lost its processor.
                yield_now();
            }
            true
        })
    }

    /// Announces that what commits up to `horizon` replaced may be freed. Returns the horizon that the pins
    /// allow.
    pub(crate) fn announce(&self, horizon: Csn) -> Csn {
        // ORDERING: Release, raise; pairs with `pin`.
        self.announced.fetch_max(horizon.0, Ordering::Release);
        if !mutant("pins: no fence behind the announcement") {
            // ORDERING: store, fence, look: see the table above.
            fence(Ordering::SeqCst);
        }
        self.lowest().map_or(horizon, |pin| pin.min(horizon))
    }

    fn lowest(&self) -> Option<Csn> {
        // ORDERING: Relaxed, ordered by the fence of `announce`; for others a hint.
        let used = self.used.load(Ordering::Relaxed);
        // ORDERING: Acquire, pairs with `unpin`.
        let pins = self.slots[..used].iter().map(|slot| slot.load(Ordering::Acquire));
        pins.filter(|&pin| pin > 0).map(|pin| Csn(pin - 1)).min()
    }
}
