//! How long a wait lasts, and the look for transactions of the waiting thread itself.
//!
//! A thread that waits for a transaction that it has begun itself waits for ever: the transaction cannot end before the wait does.
//! So a waiter looks, first after [`FIRST_LOOK`], then each time that its wait has doubled, whether the path of waits leads to a running
//! transaction of its own thread. A wait that is over before costs a look at the slots.
//!
//! A waiter for a row leaves its queue to look, and comes back at its end. So only a waiter looks whose thread works for another
//! transaction, too, when the wait begins: while it waits its thread begins none and takes none.

use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use foreshore_base::{Error, Result};
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{Nanos, ParkOutcome};
use std::time::Duration;

/// The wait after which a waiter looks for transactions of its own thread for the first time.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// The times of one wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTime {
    since: Nanos,
    timeout: Duration,
    /// After how long it looks for transactions of its own thread.
    next_look: Duration,
    /// Whether it looks at all; known from the first park on.
    looks: Option<bool>,
}

impl WaitTime {
    pub(crate) const fn new(since: Nanos, timeout: Duration) -> Self {
        Self { since, timeout, next_look: FIRST_LOOK, looks: None }
    }
}

impl LockManager {
    /// Parks at `key` until it is woken, while `is_unchanged` holds, and no longer than `time` allows.
    pub(crate) fn park_within(
        &self,
        owner: &Owner,
        key: u64,
        time: &mut WaitTime,
        edge: Wait,
        what: &What<'_>,
        is_unchanged: &dyn Fn() -> bool,
    ) -> Result<ParkOutcome> {
        // Threads of a model have no numbers.
        let has_another = || !MODEL && self.slots.has_another_of_this_thread(owner.index);
        let may_look = *time.looks.get_or_insert_with(has_another);
        loop {
            let waited = self.now().since(time.since);
            let left = (time.timeout < Duration::MAX).then(|| time.timeout.saturating_sub(waited));
            let looks = may_look && left.is_none_or(|left| time.next_look.saturating_sub(waited) < left);
            let rest = if looks { Some(time.next_look.saturating_sub(waited)) } else { left };
            // WAIT: park - for what the caller says.
            match self.park.park_as(key, owner.index, rest, is_unchanged) {
                ParkOutcome::TimedOut if looks => {
                    time.next_look = time.next_look.saturating_mul(2);
                    if let Some(holder) = self.own_thread_blocker(owner, edge) {
                        let waited = self.now().since(time.since);
                        return Err(Error::OwnThreadLock { holder, what: what.named(), waited });
                    }
                }
                ParkOutcome::TimedOut => {
                    // A victim is told that it is one.
                    self.check_verdict(owner)?;
                    return Err(self.timed_out(owner, self.now().since(time.since), what));
                }
                outcome => return Ok(outcome),
            }
        }
    }
}
