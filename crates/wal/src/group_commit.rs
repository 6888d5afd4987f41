//! Group commit: when the leader seals a group, as a pure function of what it observes.
//!
//! The engine has two policies ([`Group`]). Others are plugged in through [`GroupPolicy`].
//!
//! The engine has two kinds of group-commit window for commits that wait. Both begin when the device is free, and
//! neither exceeds the limit of the policy:
//!
//! - **Returning commits**: a thread or a future waits. The committers that the last group acknowledged will soon
//!   commit again. So the leader yields its processor until as many bytes are pending as the last group held. Without
//!   this, threads that commit in a loop split into two halves that wait for each other's writes.
//! - **Pipelined commits**: no committer waits. The flusher sleeps while commits arrive at a rate that makes the group
//!   worth its write.
//!
//! **Relaxed commits**: no answer depends on them. A group that only they want follows the last one after
//! [`RELAXED_DELAY`], or earlier if a lane may be half full by then. Under `greedy` they count as pipelined commits.
//!
//! A full log buffer, or a cut that left records behind, overrides every policy.
//!
//! **The default** is a window of 50 us, by measurement: TPC-B on two processors, shared with other work, on a device
//! of 100 us. Either two threads blocked, or two threads had 64 pipelined commits in flight each. Latencies are in
//! times of the device.
//!
//! | policy | blocking: flushes a commit | pipelined: processor time a commit | median latency | switches a commit |
//! |---|---|---|---|---|
//! | `greedy` | 0.68 | 9.2 us | 3.0 | 0.10 |
//! | `window(50 us)` | 0.50 | 9.1 us | 3.0 | 0.10 |
//! | `window(100 us)` | not measured | 8.0 us | 3.9 | 0.06 |
//! | `window(200 us)` | not measured | 8.3 us | 5.5 | 0.06 |
//!
//! While compilers kept both processors busy, both policies took 0.75 flushes a blocking commit. A longer window saves
//! a tenth of the processor time of pipelined commits, and its timer costs them a device time of latency at least. So
//! the default has the window for returning commits alone, which costs pipelined commits nothing.

use foreshore_base::{GroupNo, InvalidOption, Result};
use foreshore_sync::Nanos;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The engine's policy of group commit: when a group of commits is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Writes as soon as the device is free and a commit waits.
    Greedy,
    /// Writes after a window for more commits. The window begins when the device is free and ends within this time. It
    /// ends earlier if a longer wait cannot pay.
    Window(Duration),
}

/// The largest limit of a window.
const MAX_WINDOW: Duration = Duration::from_secs(10);

impl Default for Group {
    fn default() -> Self {
        Self::Window(Duration::from_micros(50))
    }
}

impl Group {
    /// Checks the limit.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Window(max) if max.is_zero() || max > MAX_WINDOW => Err(InvalidOption {
                name: "group",
                value: format!("a window of {max:?}"),
                expected: "a window of more than zero and at most 10 s".to_owned(),
            }
            .into()),
            Self::Greedy | Self::Window(_) => Ok(()),
        }
    }

    /// Returns the decision of the engine's own policy.
    pub(crate) fn decide(self, seen: &Observation) -> Decision {
        let may_delay = matches!(self, Self::Window(_)) && !seen.left_behind;
        if may_delay
            && seen.is_relaxed
            && let Decision::Wait(left) = for_relaxed(seen)
        {
            return Decision::Wait(left);
        }
        if seen.in_flight > 0 {
            // A second group at once would only split what one can carry.
            return if seen.now >= seen.beside_from { Decision::Seal } else { Decision::Hold };
        }
        match self {
            Self::Window(max) if may_delay && !seen.is_relaxed && seen.flushes.mean >= LEAST_LATENCY => {
                if seen.is_awaited { for_returning(max, seen) } else { for_pipelined(max, seen) }
            }
            Self::Greedy | Self::Window(_) => Decision::Seal,
        }
    }
}

/// The least flush latency with a window. A shorter flush ends before a thread is awake, so a window could only lose.
const LEAST_LATENCY: Duration = Duration::from_micros(16);

/// The longest window for returning commits. The time for a wake-up and a commit does not grow with the device's
/// latency.
const MAX_RETURN: Duration = Duration::from_micros(50);

fn for_returning(max: Duration, seen: &Observation) -> Decision {
    let end = seen.flushes.completed_at + max.min(seen.flushes.mean / 2).min(MAX_RETURN);
    if seen.returning > 0 && seen.now < end && seen.may_yield { Decision::Yield } else { Decision::Seal }
}

/// The shortest sleep of the flusher. A timer ends a shorter one too late, since the kernel rounds up by 50 us.
const LEAST_SLEEP: Duration = Duration::from_micros(60);
/// The least bytes that a window must promise: fewer fit the padding of the group to a block.
const LEAST_GAIN: u64 = 4 << 10;
/// The bytes of a group that is worth its write: padding is a sixteenth of it at most.
const ENOUGH: u64 = 32 << 10;

fn for_pipelined(max: Duration, seen: &Observation) -> Decision {
    let end = seen.flushes.completed_at + max;
    let left = end.since(seen.now).min(seen.time_to(ENOUGH));
    let in_vain = seen.time_for(LEAST_GAIN) > left;
    if left < LEAST_SLEEP || in_vain { Decision::Seal } else { Decision::Wait(left) }
}

/// The time from one group to the next that only relaxed commits want. It bounds what a power loss takes of them.
const RELAXED_DELAY: Duration = Duration::from_millis(1);
/// Bytes of a group that only relaxed commits want: half the largest lane. A session that fills its lane would write
/// the group itself.
const RELAXED_ENOUGH: u64 = 128 << 10;

fn for_relaxed(seen: &Observation) -> Decision {
    let end = seen.sealed_at + RELAXED_DELAY;
    let left = end.since(seen.now).min(seen.time_to(RELAXED_ENOUGH));
    if left < LEAST_SLEEP { Decision::Seal } else { Decision::Wait(left) }
}

/// The divisor of the last flush's weight in the mean latency. The mean follows a change of the device's speed within
/// some 20 groups. One slow flush among them moves it by less than the precision of a window.
const WEIGHT: u32 = 8;

/// Statistics of the flushes so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flushes {
    /// Count of flushes.
    pub count: u64,
    /// Mean latency, recent flushes weighing most.
    pub mean: Duration,
    /// Latency of the last flush.
    pub last: Duration,
    /// When the last flush completed.
    pub completed_at: Nanos,
}

impl Flushes {
    pub(crate) fn note(&mut self, began: Nanos, ended: Nanos) {
        self.count += 1;
        self.last = ended.since(began);
        self.mean = self.mean - self.mean / WEIGHT + self.last / WEIGHT;
        self.completed_at = ended;
    }
}

/// The observations of a leader when it may seal a group that a commit waits for.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The time now.
    pub now: Nanos,
    /// Number of the group that would be sealed.
    pub group: GroupNo,
    /// Groups that are sealed and not durable.
    pub in_flight: u64,
    /// Whether the last cut left records behind.
    pub left_behind: bool,
    /// The time from which a group beside one in flight is worth its write. It is half a flush after the last one was
    /// sealed, or at once if that left records behind.
    pub beside_from: Nanos,
    /// When the last group was sealed.
    pub sealed_at: Nanos,
    /// When a leader first considered this group.
    pub opened_at: Nanos,
    /// Whether a thread or a future waits for the group. Otherwise all its commits are pipelined.
    pub is_awaited: bool,
    /// Whether all commits that want the group are relaxed.
    pub is_relaxed: bool,
    /// Bytes of the records that wait for the group. Zero with [`Group::Greedy`], which does not need them.
    pub pending_bytes: u64,
    /// Bytes that the last group acknowledged, less those that have arrived since.
    pub returning: u64,
    /// The flushes so far.
    pub flushes: Flushes,
    /// Whether the last yield returned in time.
    pub may_yield: bool,
}

impl Observation {
    /// Returns the time in which as many bytes come, at the rate since the last group was sealed.
    fn time_for(&self, bytes: u64) -> Duration {
        let since = Nanos::from(self.now.since(self.sealed_at)).0;
        Duration::from_nanos(since.saturating_mul(bytes) / self.pending_bytes.max(1))
    }

    /// Returns the time until as many bytes wait, at that rate.
    fn time_to(&self, bytes: u64) -> Duration {
        self.time_for(bytes.saturating_sub(self.pending_bytes))
    }
}

/// The decision of a policy about a group that might be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Seal it now.
    Seal,
    /// Yield the processor once, then decide again. A leader that has yielded often enough seals.
    Yield,
    /// Decide again after this time, or when the bounds of the policy are reached.
    Wait(Duration),
    /// Decide again when a group completes. Only for a group beside another one in flight.
    Hold,
}

/// The commits and bytes at which a group is sealed at once, before a plugged-in policy decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBounds {
    /// Commits that wait. A commit that is requested twice, first without a wait and then with one, counts twice. So
    /// the group may be sealed early, but never late.
    pub commits: Option<u64>,
    /// Bytes appended and not sealed.
    pub bytes: Option<u64>,
}

/// A plugged-in policy of group commit.
pub trait GroupPolicy: Send + fmt::Debug {
    /// Returns the bounds at which a group is sealed at once. They do not change.
    fn bounds(&self) -> GroupBounds {
        GroupBounds::default()
    }

    /// Returns the decision. Called by one leader at a time, for each group once or more.
    fn decide(&mut self, seen: &Observation) -> Decision;
}

/// A factory that makes a policy for each log that is opened.
#[derive(Clone)]
pub struct GroupSource(Arc<dyn Fn() -> Box<dyn GroupPolicy> + Send + Sync>);

impl GroupSource {
    /// Creates a source that calls `make`.
    pub fn new(make: impl Fn() -> Box<dyn GroupPolicy> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Makes a policy.
    #[must_use]
    pub fn policy(&self) -> Box<dyn GroupPolicy> {
        (self.0)()
    }
}

impl fmt::Debug for GroupSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy().fmt(f)
    }
}

impl PartialEq for GroupSource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for GroupSource {}

/// The observations of a waiting thread just before it parks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforePark {
    /// Yields of this wait so far, and how many it may have.
    pub(crate) yields: u32,
    pub(crate) max_yields: u32,
    /// Sessions that may want to run: the most that have existed at once.
    pub(crate) sessions: usize,
    pub(crate) processors: usize,
    pub(crate) may_yield: bool,
}

/// Whether a thread yields its processor once more before it parks. With more sessions than processors another thread
/// may want to run. The wait is often over when the thread runs again, and then no thread has to wake it.
///
/// Measured on two processors that compilers shared, and a device of 100 us, with 128 threads of one commit each. A
/// commit took 16.4 us of processor time with a yield before nearly each park, and 17.5 us without. The median latency
/// was 0.8 ms instead of 1.7 ms.
pub(crate) fn yields_before_park(seen: &BeforePark) -> bool {
    seen.yields < seen.max_yields && seen.sessions > seen.processors && seen.may_yield
}

/// The rule that makes late yields rare. A late yield shows that other threads need the processor more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateYields {
    /// A yield that takes longer is late.
    pub(crate) after: Duration,
    /// After a late yield no thread yields for this multiple of its duration.
    pub(crate) pause: u32,
}

impl LateYields {
    /// The rule of a leader: late after twice its window. No group is written meanwhile, so late yields take a ninth of
    /// the time at most.
    pub(crate) const LEADER: Self = Self { after: Duration::from_micros(2 * MAX_RETURN.as_micros() as u64), pause: 8 };

    /// Returns the rule of a thread that would park otherwise: late after 16 flushes, or 1 ms. A late yield costs only
    /// that thread.
    pub(crate) fn of_waiter(flush_latency: Duration) -> Self {
        Self { after: Duration::from_millis(1).max(flush_latency * 16), pause: 2 }
    }

    /// Returns the pause without yields after a yield that took `took`: zero if it was not late.
    pub(crate) fn pause_after(self, took: Duration) -> Duration {
        if took > self.after { took * self.pause } else { Duration::ZERO }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
