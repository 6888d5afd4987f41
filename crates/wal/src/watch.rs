//! The growth of the log: what was written, and a mark at which the owner is signalled.
//!
//! 1. The owner sets the mark, then reads how much is written. If that is enough, it does not sleep.
//! 2. The writer of a group adds its bytes, then reads the mark. If that is reached, it removes the mark and signals.
//!
//! **Invariant:** one of the two sees the other, by a fence between the two halves of each step.

use foreshore_sync::Signal;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering, fence};

/// No mark is set.
const NEVER: u64 = u64::MAX;

/// Groups and bytes written, and the mark at which the owner is signalled.
#[derive(Debug)]
pub struct GrowthWatch {
    groups: AtomicU64,
    written: AtomicU64,
    mark: AtomicU64,
    signal: Signal,
}

impl Default for GrowthWatch {
    fn default() -> Self {
        Self {
            groups: AtomicU64::new(0),
            written: AtomicU64::new(0),
            mark: AtomicU64::new(NEVER),
            signal: Signal::new(),
        }
    }
}

impl GrowthWatch {
    /// Returns the signal that is sent at the mark.
    pub fn signal(&self) -> Signal {
        self.signal.clone()
    }

    /// Notes that one more group of `bytes` is written.
    pub fn add(&self, bytes: u64) {
        // ORDERING: Relaxed, a counter.
        self.groups.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed, the fence orders it before the load of the mark; pairs with the one in `set_mark`.
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed, as above.
        let mark = self.mark.load(Ordering::Relaxed);
        // ORDERING: Relaxed, the signal publishes. Of several writers that reach the mark one takes it away; if the
        // owner has set another one since, it has seen these bytes.
        if written >= mark && self.mark.compare_exchange(mark, NEVER, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.signal.notify();
        }
    }

    /// Returns the number of groups written.
    pub fn groups(&self) -> u64 {
        // ORDERING: Relaxed, a counter.
        self.groups.load(Ordering::Relaxed)
    }

    /// Returns the bytes written.
    pub fn written(&self) -> u64 {
        // ORDERING: Relaxed, a measure.
        self.written.load(Ordering::Relaxed)
    }

    /// Sets the mark: the signal is sent once `mark` bytes are written. Returns false if they are already. Called by
    /// the owner.
    pub fn set_mark(&self, mark: u64) -> bool {
        // ORDERING: Relaxed, the fence orders it before the load of the bytes; pairs with the one in `add`.
        self.mark.store(mark, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        mutant("watch: the mark is set without a check") || self.written() < mark
    }
}
