//! Waits for durability and for free space. A waiting thread leads if a group may be sealed.

use super::Pipeline;
use super::contract::{Calls, Leader, Led};
use super::hand_off::{HandOff, LeadFor};
use foreshore_base::{Lsn, Result};
use foreshore_sync::Parker;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::mem;
use std::time::Duration;

/// How long a leader pauses when an appender below its target is stopped in its copy.
pub(super) const STALL: Duration = Duration::from_micros(50);

/// How often a thread that waits for durability yields its processor before it parks.
const YIELDS: u32 = 1;

/// How often a session that needs space yields to a leader before it parks. Most leaders copy for up to a hundred
/// microseconds, or have lost their processor. Without the yields all sessions would park, to be woken one by one.
const SPACE_YIELDS: u32 = 2;

impl<L: Leader> Pipeline<L> {
    /// Waits until `lsn` is durable, and leads if the lead is free. `calls` says which thread makes the calls that
    /// become due.
    ///
    /// # Errors
    /// `Poisoned`: the record may or may not survive.
    pub fn force(&self, lsn: Lsn, calls: Calls) -> Result<()> {
        let forced = self.force_while(lsn, calls, |parker, pause| {
            // WAIT: park - the leader's hand-off ends it, or the pause is over.
            match pause {
                None => parker.park(),
                Some(pause) => drop(parker.park_timeout(pause)),
            }
            true
        })?;
        assert!(forced, "a wait without a limit ends durable");
        Ok(())
    }

    /// Waits like [`Self::force`], but parks by `park`. That function waits for the thread's token, at most for the
    /// given pause, and returns whether the wait goes on. Returns whether `lsn` is durable. A group that the caller
    /// leads is written to its end, even past a time limit.
    ///
    /// # Errors
    /// Those of [`Self::force`].
    pub fn force_while(
        &self,
        lsn: Lsn,
        calls: Calls,
        mut park: impl FnMut(&Parker, Option<Duration>) -> bool,
    ) -> Result<bool> {
        let (progress, lead, demand) = (&*self.progress, &self.lead, &self.demand);
        let (mut parker, mut place, mut made_due, mut yields) = (None, None, false, 0);
        if progress.sealed() < lsn {
            lead.scheduler().arrive();
        }
        loop {
            if let Some(answer) = progress.answer(lsn) {
                return answer.map(|()| true);
            }
            let led = self.lead_for(lsn, calls);
            if matches!(led, Led::Sealed | Led::Unwanted) {
                made_due |= led == Led::Sealed && calls == Calls::Here;
                continue;
            }
            if led == Led::Busy && self.yields(&mut yields, YIELDS, demand.sessions()) {
                continue;
            }
            let parker = parker.get_or_insert_with(Parker::current);
            let key = demand.waiters.add(place, lsn, parker.unparker());
            place = Some(key);
            // ORDERING: first row of the table of the pipeline.
            fence(Ordering::SeqCst);
            let is_unsealed = progress.sealed() < lsn;
            let retry = match led {
                // An appender is stopped inside its copy, and no thread is bound to signal its end.
                Led::Nothing if is_unsealed => Some(STALL),
                Led::Early(time) if is_unsealed => Some(time),
                _ => None,
            };
            let may_lead = is_unsealed && lead.is_open() && !mutant("pipeline: park without may_lead");
            let may_lead = may_lead && (retry.is_none() || lead.scheduler().is_full(|| demand.appended()));
            if progress.durable() >= lsn || progress.is_stopped() || may_lead {
                demand.waiters.remove(key);
                continue;
            }
            let timer = retry.filter(|_| demand.waiters.takes_timer(key, progress.sealed()));
            // Calls that its own group has made due do not wait for the next group.
            if mem::take(&mut made_due) && self.acks.has_due() {
                self.flushers.notify_one();
            }
            // WAIT: window - for a stopped appender or the time of the group; park - for all else, see the callers.
            let go_on = park(parker, timer);
            demand.waiters.remove(key);
            if !go_on {
                // This thread may be the one that was to lead.
                self.hand_off(HandOff::Lead);
                return Ok(progress.durable() >= lsn);
            }
        }
    }

    /// Leads once for a waiter, if it is worth trying.
    fn lead_for(&self, lsn: Lsn, calls: Calls) -> Led {
        let wanted = || self.progress.sealed() < lsn;
        if wanted() && self.lead.is_open() { self.lead(LeadFor::Waiter(calls), wanted) } else { Led::Busy }
    }

    /// Yields once before a park, if the scheduler says so, and returns whether it has. `yields` counts those of this
    /// wait.
    fn yields(&self, yields: &mut u32, max_yields: u32, sessions: usize) -> bool {
        let latency = || self.progress.flushes().0.mean;
        self.lead.scheduler().yield_before_park((yields, max_yields), sessions, latency)
    }

    /// Calls `admit` until there is free space in `lane`, and leads if the lead is free. Calls it again after `retry`
    /// even without a notification: the buffer may be full of reserved space that is appended later, and an append
    /// notifies no thread.
    ///
    /// # Errors
    /// `Poisoned`, or the error of `admit`.
    pub fn wait_for_space<T>(
        &self,
        lane: usize,
        retry: Option<Duration>,
        mut admit: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let (mut yields, mut waited) = (0, false);
        let mut admit_again = || self.progress.stop_error().map_or_else(&mut admit, Err);
        let answer = loop {
            if let Some(answer) = admit_again().transpose() {
                break answer;
            }
            // WAIT: help - a group frees the buffer.
            let led = self.lead_for_space(lane);
            if led == Led::Sealed {
                continue;
            }
            // For any number of sessions, because the leader itself may need this processor.
            if led == Led::Busy && self.yields(&mut yields, SPACE_YIELDS, usize::MAX) {
                continue;
            }
            let key = self.space.prepare();
            let answer = admit_again().transpose();
            let may_lead =
                led == Led::Busy && self.lead.is_free() && !mutant("pipeline: waits for space without a check");
            if answer.is_some() || may_lead {
                self.space.cancel(key);
                match answer {
                    Some(answer) => break answer,
                    None => continue,
                }
            }
            // WAIT: park - space freed by a group ends it, or the retry.
            self.space.wait(key, retry.filter(|_| !mutant("pipeline: waits for space without an end")));
            waited = true;
        };
        if waited {
            // This thread may be the one that was to lead.
            self.hand_off(HandOff::Lead);
        }
        answer
    }
}
