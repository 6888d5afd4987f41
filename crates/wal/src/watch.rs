//! The watch over the growth of the log: its owner sleeps until so much has been written.
//!
//! 1. The owner sets the mark, then looks how much is written. If that is enough, it does not sleep.
//! 2. The writer of a group adds its bytes, then looks at the mark. If that is reached, it takes the mark away and signals.
//!
//! **Invariant:** one of the two sees the other, by a fence between the two halves of each step.

use foreshore_sync::Signal;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering, fence};

/// No mark is set.
const NEVER: u64 = u64::MAX;

/// Bytes written, and where the owner is signalled.
#[derive(Debug)]
pub struct GrowthWatch {
    written: AtomicU64,
    mark: AtomicU64,
    signal: Signal,
}

impl Default for GrowthWatch {
    fn default() -> Self {
        Self { written: AtomicU64::new(0), mark: AtomicU64::new(NEVER), signal: Signal::new() }
    }
}

impl GrowthWatch {
    /// The signal that is given at the mark.
    pub fn signal(&self) -> Signal {
        self.signal.clone()
    }

    /// Notes that `bytes` more are written.
    pub fn add(&self, bytes: u64) {
        // ORDERING: Relaxed, the fence orders it before the look at the mark; pairs with the one in `set_mark`.
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed, as above.
        let mark = self.mark.load(Ordering::Relaxed);
        // ORDERING: Relaxed, the signal publishes. Of several writers that reach the mark one takes it away; if the owner has set another
        // one since, it has seen these bytes.
        if written >= mark && self.mark.compare_exchange(mark, NEVER, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.signal.notify();
        }
    }

    /// Bytes written.
    pub fn written(&self) -> u64 {
        // ORDERING: Relaxed, a measure.
        self.written.load(Ordering::Relaxed)
    }

    /// Has the signal given once `mark` bytes are written. False if they are already. By the owner.
    pub fn set_mark(&self, mark: u64) -> bool {
        // ORDERING: Relaxed, the fence orders it before the look at the bytes; pairs with the one in `add`.
        self.mark.store(mark, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        mutant("watch: the mark is set without a look") || self.written() < mark
    }
}
