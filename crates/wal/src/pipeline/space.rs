//! Threads that wait for room in the buffer.

use super::Pipeline;
use super::leader::{HandOff, Leader, Led};
use foreshore_base::Result;
use foreshore_sync::EventCount;
use foreshore_sync::model::mutant;
use std::time::Duration;

/// How often a session that finds another one leading lends it the processor before it sleeps until there is room. A leader mostly
/// copies, for some microseconds up to a hundred, or lost its processor meanwhile: then all sessions would sleep, to be woken one
/// by one.
const YIELDS: u32 = 2;

impl<L: Leader> Pipeline<L> {
    /// Where threads wait for room.
    pub fn space(&self) -> &EventCount {
        &self.space
    }

    /// Asks `admit` for room in `lane` until there is some, leading where the lead is free. Looks again after
    /// `retry` though no thread has said that there is room: what fills the buffer may be reserved and not yet appended, and an
    /// append signals no thread.
    ///
    /// # Errors
    /// `Poisoned`, or what `admit` fails with.
    pub fn make_room<T>(
        &self,
        lane: usize,
        retry: Option<Duration>,
        mut admit: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let (mut yields, mut waited) = (0, false);
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
            // However few they are: the leader itself may want this processor.
            if led == Led::Busy && self.yields((&mut yields, YIELDS), usize::MAX) {
                continue;
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
