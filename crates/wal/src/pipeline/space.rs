//! Threads that wait for room in the buffer.

use super::lead::{HandOff, Led};
use super::{Leader, Pipeline};
use foreshore_base::Result;
use foreshore_sync::EventCount;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::{MODEL, thread};
use std::time::Duration;

/// How often a session that finds another one leading lends it the processor before it sleeps until there is room.
const YIELDS: usize = if MODEL { 0 } else { 2 };

/// How long after it has found that it does so at most. Who gets the processor back later has lent it to somebody else.
const YIELDING: Duration = Duration::from_micros(100);

impl<L: Leader> Pipeline<L> {
    /// Where threads wait for room.
    pub fn space(&self) -> &EventCount {
        &self.space
    }

    /// Asks `admit` for room in `lane` until there is some, leading where the lead is free. Looks again after
    /// `retry` though nobody has said that there is room: what fills the buffer may be reserved and not yet appended, and an
    /// append signals nobody.
    ///
    /// # Errors
    /// `Poisoned`, or what `admit` fails with.
    pub fn make_room<T>(
        &self,
        lane: usize,
        retry: Option<Duration>,
        mut admit: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let (mut yields, mut end, mut waited) = (YIELDS, None, false);
        let mut ask = || self.poison_error().map_or_else(&mut admit, Err);
        let answer = loop {
            if let Some(answer) = ask().transpose() {
                break answer;
            }
            // WAIT: help - a group frees the ring.
            let led = self.lead_for_space(lane);
            if led == Led::Sealed {
                continue;
            }
            if led == Led::Busy && yields > 0 {
                let now = self.pace.now();
                if now <= *end.get_or_insert(now + YIELDING) {
                    yields -= 1;
                    // WAIT: window - a leader mostly copies, for some microseconds up to a hundred, or lost its processor
                    // meanwhile: then it is better lent to it than all sessions put to sleep and woken, one by one.
                    thread::yield_now();
                    continue;
                }
            }
            let key = self.space.prepare();
            let answer = ask().transpose();
            let may_lead = led == Led::Busy && self.can_lead() && !mutant("pipeline: waits for room without a look");
            if answer.is_some() || may_lead {
                self.space.cancel(key);
                match answer {
                    Some(answer) => break answer,
                    None => continue,
                }
            }
            // WAIT: park - room made by a group ends it, or the retry.
            self.space.wait(key, retry.filter(|_| !mutant("pipeline: waits for room without an end")));
            waited = true;
        };
        if waited {
            // This thread may be the one that was to lead.
            self.hand_off(HandOff::Lead);
        }
        answer
    }
}
