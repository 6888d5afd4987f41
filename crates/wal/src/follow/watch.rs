//! Waits until the durable LSN of a log of this process rises, without a request for a write.

use crate::group::Sealer;
use crate::pipeline::Pipeline;
use foreshore_base::{Lsn, Result};
use foreshore_sync::{Parker, Unparker};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Parks until the durable LSN is above `seen`.
pub(super) fn watch(pipeline: &Pipeline<Sealer>, seen: Lsn, left: impl Fn() -> Duration) -> Result<bool> {
    let parker = Parker::current();
    let waker = Waker::from(Arc::new(Unpark(parker.unparker())));
    let mut registered = None;
    let answer = loop {
        if let Some(answer) = pipeline.progress().answer(Lsn(seen.0 + 1)) {
            break answer.map(|()| true);
        }
        let left = left();
        if left.is_zero() {
            break Ok(false);
        }
        registered = pipeline.acks().watch(0, Lsn(seen.0 + 1), registered, &waker);
        if registered.is_some() {
            // WAIT: park - until a thread raises the durable LSN or stops the log, or until the limit.
            parker.park_timeout(left);
        }
    };
    if let Some(key) = registered {
        pipeline.acks().unwatch(key);
    }
    answer
}

/// Wakes a parked thread.
struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
