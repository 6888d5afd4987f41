//! The flushers' work: groups for commits that no thread waits for.

use super::Pipeline;
use super::force::STALL;
use super::leader::{Caller, Leader, Led};
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use foreshore_sync::{NextWake, Signal};

impl<L: Leader> Pipeline<L> {
    /// The signal of a flusher, counted from zero.
    pub fn flusher_signal(&self, flusher: usize) -> &Signal {
        self.flushers.signal(flusher)
    }

    /// Asks for `lsn` to be flushed without waiting for it. `slot` is the caller's own.
    pub fn flush_soon(&self, slot: usize, lsn: Lsn) {
        self.demand.slots().get(slot).want(lsn);
        self.signal_flusher(false);
    }

    /// Asks for `lsn` to be durable soon, on behalf of a future or callback.
    pub fn ask(&self, lsn: Lsn) {
        self.demand.ask(lsn);
        self.signal_flusher(true);
    }

    /// Wakes a flusher unless a leader will do so at the end of its group. `has_stopped`: the committer does not go on meanwhile.
    fn signal_flusher(&self, has_stopped: bool) {
        if !mutant("pipeline: flush_soon without fence") {
            // ORDERING: third row of the table above.
            fence(Ordering::SeqCst);
        }
        self.scheduler.arrive();
        if !self.is_open() {
            return;
        }
        // One flusher with a timer is enough. It sleeps on only for pipelined commits, or by the rule of a plugged-in policy.
        let sleeps_on = self.flushers.is_timing()
            && (!has_stopped || self.scheduler.is_plugged())
            && !self.scheduler.is_full(|| self.demand.appended());
        if !sleeps_on {
            self.flushers.ring();
        }
    }

    /// One step of flusher number `flusher`: one group if a pipelined commit waits for one.
    pub fn flush_step(&self, flusher: usize) -> NextWake {
        self.flushers.begin_work(flusher);
        let led = self.flush();
        // This thread holds nothing.
        self.acknowledge_all();
        let next = match led {
            Led::Sealed | Led::Unwanted => return NextWake::Now,
            // The thread that leads, or completes a group, signals if something is left.
            Led::Busy => NextWake::OnSignal,
            Led::Nothing => NextWake::After(STALL),
            Led::Early(time) => NextWake::After(time),
        };
        if next != NextWake::OnSignal {
            self.flushers.set_timer(flusher);
        }
        self.flushers.rest(flusher);
        if self.has_due_calls() && !mutant("pipeline: flusher rests without a look at the calls") {
            return NextWake::Now;
        }
        let has_work = match led {
            // What has changed the decision while it was made.
            Led::Early(_) => {
                !self.scheduler.is_plugged() && self.demand.is_asked(self.sealed())
                    || self.scheduler.is_full(|| self.demand.appended())
            }
            Led::Busy => {
                let again = !self.is_poisoned() && self.is_open() && self.is_pending();
                again && !mutant("pipeline: flusher rests without a look")
            }
            _ => false,
        };
        if has_work { NextWake::Now } else { next }
    }

    fn flush(&self) -> Led {
        // ORDERING: pairs with the fence in `signal_flusher`, as the signal does where there is one.
        fence(Ordering::SeqCst);
        if self.is_poisoned() || !self.is_pending() || !self.is_open() {
            return Led::Busy;
        }
        self.lead(Caller::Flusher, || self.is_pending())
    }

    /// Whether a flusher is wanted for what is not sealed. Behind a `SeqCst` fence.
    pub(super) fn is_pending(&self) -> bool {
        self.demand.is_pending(self.sealed())
    }
}
