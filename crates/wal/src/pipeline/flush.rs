//! The flushers: who leads for commits that nobody waits for.

use super::lead::{Caller, Led};
use super::{Leader, Pipeline, STALL, Start};
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering, fence};
use foreshore_sync::{NextWake, Signal};

/// The bells of the flushers, of which there are as many as groups in flight: each writes what it seals.
#[derive(Debug)]
pub(super) struct Flushers {
    signals: Box<[Signal]>,
    /// Bit `i`: flusher `i` is about to sleep, sleeps, or has been rung since. Set by it alone after it has looked for
    /// work, followed by a fence and another look; cleared by it alone when it begins to look.
    idle: AtomicU64,
    /// Bit `i`: flusher `i` looks again by itself when a time is over. Set by it alone before it sleeps; cleared by it
    /// alone when it begins to look.
    timing: AtomicU64,
}

impl Flushers {
    pub(super) fn new(count: usize) -> Self {
        assert!((1..=64).contains(&count), "a bit for each flusher");
        let signals = (0..count).map(|_| Signal::new()).collect();
        Self { signals, idle: AtomicU64::new(u64::MAX >> (64 - count)), timing: AtomicU64::new(0) }
    }

    pub(super) fn signal(&self, flusher: usize) -> &Signal {
        &self.signals[flusher]
    }

    /// Wakes one that sleeps, if there is one. Behind a `SeqCst` fence: one that does not sleep yet looks once more.
    pub(super) fn ring(&self) {
        // ORDERING: Relaxed, ordered by the caller's fence and the one in `rest`.
        let idle = self.idle.load(Ordering::Relaxed);
        if let Some(signal) = self.signals.get(idle.trailing_zeros() as usize) {
            signal.notify();
        }
    }

    /// Wakes all.
    pub(super) fn ring_all(&self) {
        self.signals.iter().for_each(Signal::notify);
    }

    /// Whether one looks again when a time is over. Behind a `SeqCst` fence: one that looks already sees what came before.
    pub(super) fn is_timing(&self) -> bool {
        // ORDERING: Relaxed, ordered by the caller's fence and the one in `flush`.
        self.timing.load(Ordering::Relaxed) != 0
    }

    fn time(&self, flusher: usize) {
        // ORDERING: Relaxed, a bit read too late costs a ring in vain.
        self.timing.fetch_or(1 << flusher, Ordering::Relaxed);
    }

    fn work(&self, flusher: usize) {
        // ORDERING: Relaxed on both, an idle bit read too late costs a ring in vain; the flusher's fence comes next.
        self.idle.fetch_and(!(1 << flusher), Ordering::Relaxed);
        self.timing.fetch_and(!(1 << flusher), Ordering::Relaxed);
    }

    fn rest(&self, flusher: usize) {
        // ORDERING: store, fence, look: the bit, then the flusher looks for work again; pairs with the fence of who rings.
        self.idle.fetch_or(1 << flusher, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl<L: Leader> Pipeline<L> {
    /// The bell of a flusher, counted from zero.
    pub fn flusher_signal(&self, flusher: usize) -> &Signal {
        self.flushers.signal(flusher)
    }

    /// Asks for `lsn` to be flushed without waiting for it. `slot` is the caller's own.
    pub fn flush_soon(&self, slot: usize, lsn: Lsn) {
        self.slots.get(slot).want(lsn);
        self.ring_flusher();
    }

    /// Asks for `lsn` to be durable soon, on behalf of no session.
    pub fn ask(&self, lsn: Lsn) {
        // ORDERING: Release, the leader that sees the wish sees what is wished for; pairs with `is_pending`. Otherwise ordered
        // by the fence in `ring_flusher`.
        self.polled.fetch_max(lsn.0, Ordering::Release);
        self.ring_flusher();
    }

    /// Wakes a flusher unless a leader will do so at the end of its group.
    pub(super) fn ring_flusher(&self) {
        if !mutant("pipeline: flush_soon without fence") {
            // ORDERING: third row of the table above.
            fence(Ordering::SeqCst);
        }
        self.pace.arrive();
        match self.start() {
            Start::No => {}
            // One flusher is the timer of all who do not wait. That a group is open already says nothing: who opened it may
            // have found its record in an earlier group, and be gone.
            Start::After(_) if self.flushers.is_timing() || mutant("pipeline: who opened a group is its timer") => {}
            // Nor does one need to be rung that looks by itself when it has let commits come.
            Start::Now if self.is_amassing() => {}
            Start::After(_) | Start::Now => self.flushers.ring(),
        }
    }

    /// One step of flusher number `flusher`: one group if a pipelined commit waits for one.
    pub fn flush_step(&self, flusher: usize) -> NextWake {
        self.flushers.work(flusher);
        let next = self.flush();
        // This thread holds nothing.
        self.acknowledge_all();
        if next == NextWake::Now {
            return next;
        }
        if let NextWake::After(_) = next {
            self.flushers.time(flusher);
        }
        self.flushers.rest(flusher);
        if self.has_due_calls() && !mutant("pipeline: flusher rests without a look at the calls") {
            return NextWake::Now;
        }
        let waits = next == NextWake::OnSignal && !self.is_poisoned();
        let again = waits && self.is_open() && self.is_pending();
        if again && !mutant("pipeline: flusher rests without a look") { NextWake::Now } else { next }
    }

    fn flush(&self) -> NextWake {
        // ORDERING: pairs with the fence in `ring_flusher`, as the signal does where there is one.
        fence(Ordering::SeqCst);
        if self.is_poisoned() || !self.is_pending() {
            return NextWake::OnSignal;
        }
        match self.start() {
            Start::Now => {}
            Start::After(left) => return NextWake::After(left),
            Start::No => return NextWake::OnSignal,
        }
        if let Some(left) = self.amass() {
            return NextWake::After(left);
        }
        match self.lead(Caller::Flusher, || self.is_pending()) {
            // Whoever leads or completes a group rings if something is left.
            Led::Busy => NextWake::OnSignal,
            Led::Nothing => NextWake::After(STALL),
            Led::Sealed | Led::Unwanted => NextWake::Now,
        }
    }

    /// Whether somebody who does not lead waits for what is not sealed. Behind a `SeqCst` fence.
    pub(super) fn is_pending(&self) -> bool {
        let sealed = self.sealed();
        // ORDERING: Acquire, pairs with the wish; otherwise ordered by the caller's fence and the one in `ring_flusher`.
        self.polled.load(Ordering::Acquire) > sealed.0 || self.slots.wants_beyond(sealed)
    }
}
