//! The state that handles, sessions, tickets and threads of one log share.

use crate::buffer::LogBuffer;
use crate::group::Sealer;
use crate::options::{Limits, LogOptions};
use crate::pipeline::{Calls, Pipeline, WaitTimes};
use crate::requests::SpaceRequests;
use crate::segment::Segments;
use crate::session_lanes::SessionLanes;
use crate::slots::Slots;
use crate::throttle::Throttle;
use crate::watch::GrowthWatch;
use foreshore_base::{Lsn, Result};
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{Clock, Nanos, Parker, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// The parts of one log. It does not own the threads of the log, so it may be dropped on one of them.
pub(crate) struct Core {
    pub(crate) buffer: Arc<dyn LogBuffer>,
    pub(crate) lanes: SessionLanes,
    pub(crate) slots: Arc<Slots>,
    pub(crate) limits: Limits,
    pub(crate) pipeline: Pipeline<Sealer>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) growth: Arc<GrowthWatch>,
    pub(crate) throttle: Throttle,
    pub(crate) requests: SpaceRequests,
    /// Whether groups are written, not dropped.
    pub(crate) has_files: bool,
    pub(crate) options: LogOptions,
}

impl Core {
    /// Waits until `lsn` is durable, for at most `timeout`, and returns whether it is. A group that this thread writes
    /// itself is written to its end. `calls` says which thread calls the callbacks that become due.
    ///
    /// # Errors
    /// `Poisoned`: the record may or may not survive.
    pub(crate) fn force(&self, lsn: Lsn, calls: Calls, timeout: Option<Duration>) -> Result<bool> {
        self.check_target(lsn);
        let asked = self.measured_now().filter(|_| self.pipeline.progress().durable() < lsn);
        let limit = timeout.map(|timeout| (SystemClock::new(), timeout));
        let park = |parker: &Parker, pause: Option<Duration>| {
            let left = limit.map(|(clock, timeout)| timeout.saturating_sub(clock.now().into()));
            match left.into_iter().chain(pause).min() {
                None => {
                    // WAIT: park - the leader's hand-off ends it.
                    parker.park();
                    true
                }
                Some(time) if left.is_some() && time.is_zero() => false,
                // WAIT: park - the leader's hand-off ends it, or the time is over.
                Some(time) => parker.park_timeout(time) || pause.is_some(),
            }
        };
        let is_durable = spent::during(Spent::LogWait, || self.pipeline.force_while(lsn, calls, park))?;
        if let (true, Some(times), Some(asked)) = (is_durable, self.pipeline.wait_times(), asked) {
            times.count(lsn, asked, Some(times.now()));
        }
        Ok(is_durable)
    }

    /// Returns the time, if waits are measured.
    pub(crate) fn measured_now(&self) -> Option<Nanos> {
        self.pipeline.wait_times().map(WaitTimes::now)
    }

    /// Asserts that a wait for `lsn` can end: the stamp was assigned, or the log has stopped.
    pub(crate) fn check_target(&self, lsn: Lsn) {
        let progress = self.pipeline.progress();
        let is_reached = lsn <= progress.sealed() || self.buffer.reaches(lsn) || progress.is_stopped();
        assert!(is_reached, "wait for {lsn}, but the log ends at {}", self.buffer.current());
    }
}
