//! When a group may be begun, once the lead is free and the window open.

use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{Clock, Nanos, SystemClock};

/// Whether a group may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It may.
    Now,
    /// Not before a group completes or the lead is given up; who does that hands off.
    No,
}

/// What is measured to say so.
///
/// With nothing in flight a group begins as soon as somebody waits: the device clocks the groups. Beside a group in flight
/// another one begins if the last cut left records behind, or half the time of a write after the last one began: sooner it
/// would only split what one group could carry. Nobody sets a timer for this: those who come look, and so does who completes
/// the group in flight, at the latest.
#[derive(Debug)]
pub(super) struct Pace {
    clock: SystemClock,
    /// When the last group was sealed.
    sealed_at: AtomicU64,
    /// The last cut did not take everything.
    more: AtomicBool,
    /// Mean time of a write, recent ones weighing most.
    write: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            clock: SystemClock::new(),
            sealed_at: AtomicU64::new(0),
            more: AtomicBool::new(false),
            write: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// A group was sealed. Under the lead.
    pub(super) fn sealed(&self, more: bool) {
        // ORDERING: Relaxed, hints; who misreads them begins a group a little early or late.
        self.sealed_at.store(self.now().0, Ordering::Relaxed);
        self.more.store(more, Ordering::Relaxed);
    }

    /// A group was written that began at `began`.
    pub(super) fn written(&self, began: Nanos) {
        let took = self.now().0.saturating_sub(began.0);
        // ORDERING: Relaxed, a hint; of two at once one may be lost.
        let mean = self.write.load(Ordering::Relaxed);
        self.write.store(mean - mean / 8 + took / 8, Ordering::Relaxed);
    }

    /// Whether a group may be begun beside `in_flight` others.
    pub(super) fn start(&self, in_flight: u64) -> Start {
        // Under a model any time may have passed.
        if in_flight == 0 || cfg!(foreshore_loom) {
            return Start::Now;
        }
        // ORDERING: Relaxed, hints.
        let since = self.now().0.saturating_sub(self.sealed_at.load(Ordering::Relaxed));
        let paced = self.more.load(Ordering::Relaxed) || since >= self.write.load(Ordering::Relaxed) / 2;
        if paced { Start::Now } else { Start::No }
    }
}
