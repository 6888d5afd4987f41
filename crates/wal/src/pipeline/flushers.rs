//! The states of the flushers: busy, idle, or asleep with a timer.

use foreshore_sync::Signal;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering, fence};

/// The signals and states of the flushers. There are as many as groups in flight, since each writes the group it seals.
pub(super) struct Flushers {
    signals: Box<[Signal]>,
    /// Bit `i`: flusher `i` is about to sleep, sleeps, or has been signalled since. Set by it alone after it has found
    /// no work, and then it fences and searches once more; cleared by it alone when it begins to search.
    idle: AtomicU64,
    /// Bit `i`: flusher `i` wakes by its timer. Set by it alone before it sleeps; cleared by it alone when it begins to
    /// search.
    timing: AtomicU64,
    /// Bit `i`: the same, and the time is that of relaxed commits: any other commit signals a flusher.
    timing_relaxed: AtomicU64,
}

impl Flushers {
    pub(super) fn new(count: usize) -> Self {
        assert!((1..=64).contains(&count), "a bit for each flusher");
        let signals = (0..count).map(|_| Signal::new()).collect();
        Self {
            signals,
            idle: AtomicU64::new(u64::MAX >> (64 - count)),
            timing: AtomicU64::new(0),
            timing_relaxed: AtomicU64::new(0),
        }
    }

    pub(super) fn signal(&self, flusher: usize) -> &Signal {
        &self.signals[flusher]
    }

    /// Signals an idle flusher, if there is one. Behind a `SeqCst` fence: a flusher that is not idle yet searches once
    /// more.
    pub(super) fn notify_one(&self) {
        // ORDERING: Relaxed, ordered by the caller's fence and the one in `rest`.
        let idle = self.idle.load(Ordering::Relaxed);
        if let Some(signal) = self.signals.get(idle.trailing_zeros() as usize) {
            signal.notify();
        }
    }

    /// Signals all flushers.
    pub(super) fn notify_all(&self) {
        self.signals.iter().for_each(Signal::notify);
    }

    /// Whether a flusher has a timer. Behind a `SeqCst` fence: a flusher that has begun to search sees earlier
    /// requests.
    pub(super) fn is_timing(&self) -> bool {
        // ORDERING: Relaxed, ordered by the caller's fence and the one in `flush`.
        self.timing.load(Ordering::Relaxed) != 0
    }

    /// Whether one wakes by itself when the time of relaxed commits is over. Behind a `SeqCst` fence, as `is_timing`.
    pub(super) fn is_timing_relaxed(&self) -> bool {
        // ORDERING: as in `is_timing`.
        self.timing_relaxed.load(Ordering::Relaxed) != 0
    }

    /// Notes that a flusher is about to sleep for a time, which may be that of relaxed commits.
    pub(super) fn set_timer(&self, flusher: usize, is_relaxed: bool) {
        let timing = if is_relaxed { &self.timing_relaxed } else { &self.timing };
        // ORDERING: Relaxed, ordered by the fence in `rest`; a bit read too late costs a signal in vain.
        timing.fetch_or(1 << flusher, Ordering::Relaxed);
    }

    pub(super) fn begin_work(&self, flusher: usize) {
        // ORDERING: Relaxed on both, a bit read too late costs a signal in vain; the flusher's fence comes next.
        self.idle.fetch_and(!(1 << flusher), Ordering::Relaxed);
        if !mutant("pipeline: a flusher keeps its timer bit") {
            self.timing.fetch_and(!(1 << flusher), Ordering::Relaxed);
            self.timing_relaxed.fetch_and(!(1 << flusher), Ordering::Relaxed);
        }
    }

    pub(super) fn rest(&self, flusher: usize) {
        // ORDERING: store, fence, load: the bit, then the flusher searches for work; pairs with the fence before a
        // signal.
        self.idle.fetch_or(1 << flusher, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}
