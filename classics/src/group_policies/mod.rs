//! Group-commit policies with a timer.
//!
//! | name | a group is sealed | from |
//! |---|---|---|
//! | `fixed:TIME,Ntxn,SIZE` | at the next tick of a timer, with N commits, or with so many bytes, whichever is first; any of the three may be left out | Aether, section 4; Laser's fixed timer |
//! | `adaptive` | at the next tick of a timer that follows the latency of a flush | Laser, section 5 |
//! | `delay:TIME` | this long after the first commit | PostgreSQL's `commit_delay` |

pub mod names;

use foreshore_wal::{Decision, Flushes, GroupBounds, GroupPolicy, GroupSource, Nanos, Observation};
use std::time::Duration;

/// A policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedGroup {
    /// At whichever bound comes first. Without a time, a lone commit waits at most 10 ms.
    Fixed {
        /// Period of the timer, which restarts with each group.
        time: Option<Duration>,
        /// Number of waiting commits.
        txns: Option<u64>,
        /// Bytes appended and not sealed.
        bytes: Option<u64>,
    },
    /// At the ticks of a timer `D` that restarts with each group. After a flush that took `W`, `D := D/2 + W/2`, and
    /// 0.2 ms more if the flush took over 0.1 ms longer than the one before.
    Adaptive,
    /// This long after the first waiting commit.
    Delay(Duration),
}

/// The period of a fixed policy without a time.
const DEFAULT_PERIOD: Duration = Duration::from_millis(10);

impl TimedGroup {
    /// Returns the policy, for the options of a log.
    ///
    /// # Panics
    /// If a bound is 0, or a time is above 10 s, which no name allows.
    #[must_use]
    pub fn source(self) -> GroupSource {
        assert!(self.is_sound(), "{self}");
        GroupSource::new(move || match self {
            Self::Fixed { time, txns, bytes } => {
                let bounds = GroupBounds { commits: txns, bytes };
                Box::new(Fixed { period: time.unwrap_or(DEFAULT_PERIOD), bounds })
            }
            Self::Adaptive => Box::new(Adaptive::default()),
            Self::Delay(time) => Box::new(Delay(time)),
        })
    }
}

/// Seals at the ticks of a timer, or at its bounds.
#[derive(Debug)]
struct Fixed {
    period: Duration,
    bounds: GroupBounds,
}

impl GroupPolicy for Fixed {
    fn bounds(&self) -> GroupBounds {
        self.bounds
    }

    fn decide(&mut self, seen: &Observation) -> Decision {
        at(tick(self.period, seen), seen)
    }
}

/// Seals at the ticks of Laser's adaptive timer.
#[derive(Debug, Default)]
struct Adaptive {
    timer: Duration,
    /// Flushes that the timer has followed, and the latency of the last one.
    flushes: u64,
    last_flush: Duration,
}

/// Laser's threshold of a jump in the latency of a flush; a jump adds twice that to the timer.
const TAU: Duration = Duration::from_micros(100);

impl GroupPolicy for Adaptive {
    fn decide(&mut self, seen: &Observation) -> Decision {
        let Flushes { count, last, .. } = seen.flushes;
        assert!(count >= self.flushes, "{count} flushes after {}", self.flushes);
        if count > self.flushes {
            let is_jump = self.flushes > 0 && last > self.last_flush + TAU;
            self.timer = self.timer / 2 + last / 2 + if is_jump { 2 * TAU } else { Duration::ZERO };
            (self.flushes, self.last_flush) = (count, last);
        }
        at(tick(self.timer, seen), seen)
    }
}

/// Seals this long after the first commit.
#[derive(Debug)]
struct Delay(Duration);

impl GroupPolicy for Delay {
    fn decide(&mut self, seen: &Observation) -> Decision {
        at(seen.opened_at + self.0, seen)
    }
}

/// Returns the first tick after the group was opened, of a timer that started with the last group.
fn tick(period: Duration, seen: &Observation) -> Nanos {
    let period = Nanos::from(period).0.max(1);
    let open = seen.opened_at.0.saturating_sub(seen.sealed_at.0);
    let due = Nanos(seen.sealed_at.0.saturating_add(open.div_ceil(period).max(1).saturating_mul(period)));
    assert!(due > seen.sealed_at && due >= seen.opened_at, "a tick at {due:?}, {seen:?}");
    due
}

/// Seals at `due`.
fn at(due: Nanos, seen: &Observation) -> Decision {
    if seen.now >= due { Decision::Seal } else { Decision::Wait(due.since(seen.now)) }
}

#[cfg(test)]
mod tests;
