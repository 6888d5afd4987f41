//! Pins: the sessions that are about to touch old versions, although no reader needs these to be kept.
//!
//! A writer that links a new version to older ones looks at those; a collector frees what no reader needs. A writer
//! says first from which commit on it will look, and a collector says first up to which it will free:
//!
//! | writer | collector |
//! |---|---|
//! | stores its pin; `SeqCst` fence; reads what was announced | announces; `SeqCst` fence; reads the pins |
//!
//! So the collector finds the pin and stays below it, or the writer finds the announcement, and pins that.

use foreshore_base::Csn;
use foreshore_sync::CachePadded;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use foreshore_sync::primitive::thread::yield_now;

/// A pin for each session, by the number of its lock owner.
#[derive(Debug)]
pub(crate) struct Pins {
    /// Zero, or a commit number plus one: the session touches nothing at or below it. Written by the session.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    /// Collectors free up to here at most.
    announced: CachePadded<AtomicU64>,
}

impl Pins {
    pub(crate) fn new(count: usize) -> Self {
        let slots = (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { slots, used: AtomicUsize::new(0), announced: CachePadded::new(AtomicU64::new(0)) }
    }

    /// Keeps what was replaced by commits above a horizon, `at` or higher, from being freed, and returns that horizon.
    /// What was replaced at or below it no reader needs, and the caller must not touch it.
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
            // Each turn follows a collector's progress.
            at = announced;
        }
    }

    /// The session touches nothing any more.
    pub(crate) fn unpin(&self, index: usize) {
        // ORDERING: Relaxed, the session's own.
        debug_assert!(self.slots[index].load(Ordering::Relaxed) > 0, "session {index} ends a pin that it has not");
        // ORDERING: Release, what was touched comes before; pairs with `announce`.
        self.slots[index].store(0, Ordering::Release);
    }

    /// Returns whether a session may touch what was replaced by commits below `horizon`, which was announced.
    pub(crate) fn is_any_below(&self, horizon: Csn) -> bool {
        self.lowest().is_some_and(|pin| pin < horizon)
    }

    /// Waits until it has seen each session without a pin, which a session has for the time of one change, or
    /// `may_wait` no more; tells whether it has. What the caller has stored before its `SeqCst` fence each later pin
    /// comes after.
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

    /// Announces that all up to `horizon` may be freed, and returns how much of that the pins allow.
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
