//! Threads that wait for durability, and lead where a group may be sealed.

use super::Pipeline;
use super::leader::{Caller, Calls, HandOff, Leader, Led};
use foreshore_base::{Lsn, Result};
use foreshore_sync::Parker;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::time::Duration;

/// How long a leader pauses when an appender below its target is stopped in its copy.
pub(super) const STALL: Duration = Duration::from_micros(50);

/// How often a waiter lends its processor to other threads before it parks.
const YIELDS: u32 = 1;

impl<L: Leader> Pipeline<L> {
    /// Waits until `lsn` is durable, leading where the lead is free.
    ///
    /// # Errors
    /// `Poisoned`: the record may or may not survive.
    pub fn force(&self, lsn: Lsn) -> Result<()> {
        self.force_calling(lsn, Calls::Elsewhere)
    }

    /// Waits as [`Self::force`] does; `calls` says which thread calls the callbacks that this has made due.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn force_calling(&self, lsn: Lsn, calls: Calls) -> Result<()> {
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

    /// Waits as [`Self::force`] does; `park` waits for a token, no longer than the pause it is given, and says whether to go on.
    /// Returns whether `lsn` is durable. A group that the caller leads is written to its end whatever the time.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn force_while(
        &self,
        lsn: Lsn,
        calls: Calls,
        mut park: impl FnMut(&Parker, Option<Duration>) -> bool,
    ) -> Result<bool> {
        let (mut parker, mut place, mut owes_calls, mut yields) = (None, None, false, 0);
        if self.sealed() < lsn {
            self.scheduler.arrive();
        }
        loop {
            if let Some(answer) = self.answer(lsn) {
                return answer.map(|()| true);
            }
            let led = self.lead_for(lsn, calls);
            if matches!(led, Led::Sealed | Led::Unwanted) {
                owes_calls |= led == Led::Sealed && calls == Calls::Here;
                continue;
            }
            if led == Led::Busy && self.yields((&mut yields, YIELDS), self.demand.slots().used_len()) {
                continue;
            }
            let parker = parker.get_or_insert_with(Parker::current);
            let key = self.waiters.add_thread(place, lsn, parker.unparker());
            place = Some(key);
            // ORDERING: first row of the table above.
            fence(Ordering::SeqCst);
            let is_unsealed = self.sealed() < lsn;
            let retry = match led {
                // An appender is stopped inside its copy, and no thread is bound to signal its end.
                Led::Nothing if is_unsealed => Some(STALL),
                Led::Early(time) if is_unsealed => Some(time),
                _ => None,
            };
            let may_lead = is_unsealed && self.is_open() && !mutant("pipeline: park without may_lead");
            let may_lead = may_lead && (retry.is_none() || self.scheduler.is_full(|| self.demand.appended()));
            if self.durable() >= lsn || self.is_poisoned() || may_lead {
                self.waiters.leave(key);
                continue;
            }
            let timer = retry.filter(|_| self.waiters.takes_timer(key, self.sealed()));
            // What its own group has made due does not wait for the next one.
            if std::mem::take(&mut owes_calls) && self.has_due_calls() {
                self.flushers.ring();
            }
            // WAIT: window - for the stopped appender or the group's time; park - for all else, see the callers.
            let go_on = park(parker, timer);
            self.waiters.leave(key);
            if !go_on {
                // This thread may be the one that was to lead.
                self.hand_off(HandOff::Lead);
                return Ok(self.durable() >= lsn);
            }
        }
    }

    /// Yields instead of parking, if the scheduler says so, and says whether it has.
    pub(super) fn yields(&self, yields: (&mut u32, u32), sessions: usize) -> bool {
        self.scheduler.yield_before_park(yields, sessions, || self.window.flushes().latency)
    }

    /// Leads once for a waiter, if it is worth trying.
    fn lead_for(&self, lsn: Lsn, calls: Calls) -> Led {
        let wanted = || self.sealed() < lsn;
        if wanted() && self.is_open() { self.lead(Caller::Waiter(calls), wanted) } else { Led::Busy }
    }

    /// Leads once for a session that wants room in `lane` of the buffer.
    pub fn lead_for_space(&self, lane: usize) -> Led {
        self.lead(Caller::Space(lane), || true)
    }
}
