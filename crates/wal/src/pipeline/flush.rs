//! The flushers: they write groups for commits without a waiting thread.

use super::contract::{Leader, Led};
use super::hand_off::LeadFor;
use super::shards::Key;
use super::wait::STALL;
use super::{Callback, Pipeline};
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use foreshore_sync::{NextWake, Signal};
use std::task::Waker;

/// How soon a commit for which a flusher is signalled wants its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// A future or a callback waits.
    Awaited,
    /// The committer goes on meanwhile.
    Pipelined,
    /// No answer depends on it.
    Relaxed,
}

impl<L: Leader> Pipeline<L> {
    /// Returns the signal of a flusher, counted from zero.
    pub fn flusher_signal(&self, flusher: usize) -> &Signal {
        self.flushers.signal(flusher)
    }

    /// Requests a flush of `lsn` without waiting for it. `slot` is the caller's own.
    pub fn flush_soon(&self, slot: usize, lsn: Lsn) {
        self.demand.request_pipelined(slot, lsn);
        self.signal_flusher(Urgency::Pipelined);
    }

    /// Requests a flush of the relaxed commit `lsn` with a later group. `slot` is the caller's own.
    pub fn flush_later(&self, slot: usize, lsn: Lsn) {
        self.demand.request_later(slot, lsn);
        self.signal_flusher(Urgency::Relaxed);
    }

    /// Requests that `lsn` becomes durable soon, for a future or callback.
    pub fn request(&self, lsn: Lsn) {
        self.demand.request(lsn);
        self.signal_flusher(Urgency::Awaited);
    }

    /// Registers the waker of a future in place of the one under `old`, and requests its group. Returns `None` if there
    /// is nothing to wait for.
    pub fn register_waker(&self, slot: usize, lsn: Lsn, old: Option<Key>, waker: &Waker) -> Option<Key> {
        let key = self.acks.watch(slot, lsn, old, waker);
        if key.is_some() && !mutant("pipeline: a future signals no flusher") {
            self.request(lsn);
        }
        key
    }

    /// Calls `function` once when `lsn` is durable or the log has stopped, on the thread that detects it, which may be
    /// this one. The flag says whether `lsn` is durable.
    pub fn call_when_durable(&self, slot: usize, lsn: Lsn, function: Callback) {
        self.acks.add_callback(slot, lsn, function);
        self.request(lsn);
        if !mutant("acks: no check after the registration") {
            self.acks.acknowledge(slot);
        }
    }

    /// Calls `function` like [`Self::call_when_durable`], but before all callbacks of tickets. It must not wait itself.
    pub fn release_when_durable(&self, slot: usize, lsn: Lsn, function: Callback) {
        self.acks.add_release(slot, lsn, function);
        self.request(lsn);
        // ORDERING: both rows of the table of `shards`.
        fence(Ordering::SeqCst);
        self.acks.release();
    }

    /// Signals a flusher, unless a leader will do so at the end of its group.
    fn signal_flusher(&self, urgency: Urgency) {
        if !mutant("pipeline: flush_soon without fence") {
            // ORDERING: third row of the table of the pipeline.
            fence(Ordering::SeqCst);
        }
        let scheduler = self.lead.scheduler();
        scheduler.arrive();
        if !self.lead.is_open() {
            return;
        }
        // One flusher with a timer is enough. It sleeps on only for commits that are no more urgent than those before,
        // or by the rule of a plugged-in policy.
        let flushers = &self.flushers;
        let sleeps_on = match urgency {
            Urgency::Awaited => flushers.is_timing() && scheduler.is_plugged(),
            Urgency::Pipelined => flushers.is_timing(),
            Urgency::Relaxed => flushers.is_timing() || flushers.is_timing_relaxed(),
        };
        let sleeps_on =
            sleeps_on || mutant("pipeline: every commit lets a relaxed timer run") && flushers.is_timing_relaxed();
        if !sleeps_on || scheduler.is_full(|| self.demand.appended()) {
            self.flushers.notify_one();
        }
    }

    /// Runs one step of flusher number `flusher`: one group if a pipelined commit waits for one, or if one is due for
    /// relaxed commits.
    pub fn flush_step(&self, flusher: usize) -> NextWake {
        self.flushers.begin_work(flusher);
        let led = self.flush();
        // This thread holds no lock.
        self.acks.acknowledge_all();
        let next = match led {
            Led::Sealed | Led::Unwanted => return NextWake::Now,
            // The thread that leads, or completes a group, signals if demand is left.
            Led::Busy => NextWake::OnSignal,
            Led::Nothing => NextWake::After(STALL),
            Led::Early(time) | Led::Later(time) => NextWake::After(time),
        };
        if next != NextWake::OnSignal {
            self.flushers.set_timer(flusher, matches!(led, Led::Later(_)));
        }
        self.flushers.rest(flusher);
        if self.acks.has_due() && !mutant("pipeline: flusher rests without a check of the calls") {
            return NextWake::Now;
        }
        let scheduler = self.lead.scheduler();
        let has_work = match led {
            // Demand may have arrived while the decision was made.
            Led::Early(_) => {
                !scheduler.is_plugged() && self.demand.is_requested(self.progress.sealed())
                    || scheduler.is_full(|| self.demand.appended())
            }
            Led::Later(_) => {
                self.is_pending() && !mutant("pipeline: flusher rests for relaxed commits without a check")
                    || scheduler.is_full(|| self.demand.appended())
            }
            Led::Busy => self.may_flush() && !mutant("pipeline: flusher rests without a check"),
            _ => false,
        };
        if has_work { NextWake::Now } else { next }
    }

    fn flush(&self) -> Led {
        // ORDERING: pairs with the fence in `signal_flusher`, as the signal does where there is one.
        fence(Ordering::SeqCst);
        if self.may_flush() { self.lead(LeadFor::Flusher, || self.is_wanted()) } else { Led::Busy }
    }

    /// Whether a flusher is needed and may lead. Behind a `SeqCst` fence.
    fn may_flush(&self) -> bool {
        !self.progress.is_stopped() && self.is_wanted() && self.lead.is_open()
    }
}
