//! Policies of group commit that the suites plug in.

use foreshore_wal::{Decision, GroupBounds, GroupPolicy, GroupSource, Observation};
use std::time::Duration;

/// Seals a group so long after its first commit, or at the bounds.
#[derive(Clone, Debug)]
struct Timed {
    time: Duration,
    bounds: GroupBounds,
}

impl GroupPolicy for Timed {
    fn bounds(&self) -> GroupBounds {
        self.bounds
    }

    fn decide(&mut self, seen: &Observation) -> Decision {
        match seen.opened_at + self.time {
            due if seen.now < due => Decision::Wait(due.since(seen.now)),
            _ => Decision::Seal,
        }
    }
}

/// Groups that are sealed so long after their first commits.
pub(crate) fn delay(time: Duration) -> Option<GroupSource> {
    bounded(time, None, None)
}

/// Groups that are sealed so long after their first commits, or earlier with so many commits or bytes.
pub(crate) fn bounded(time: Duration, commits: Option<u64>, bytes: Option<u64>) -> Option<GroupSource> {
    let timed = Timed { time, bounds: GroupBounds { commits, bytes } };
    Some(GroupSource::new(move || Box::new(timed.clone())))
}
