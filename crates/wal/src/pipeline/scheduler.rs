//! The scheduler of groups: the state behind [`Observation`], and hints for threads without the lead.
//!
//! The holder of the lead decides; its part, [`Schedule`], is plain data under the lead. Other threads read hints to
//! decide whether to try to lead. A thread that reads a stale hint leads a little early or late, or in vain.

use super::contract::Cut;
use crate::group_commit::{
    BeforePark, Decision, Group, GroupBounds, GroupPolicy, GroupSource, LateYields, Observation, yields_before_park,
};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{MODEL, thread};
use foreshore_sync::{CachePadded, Clock, Nanos, SystemClock, available_parallelism};
use std::time::Duration;

/// The policy of a log.
enum Policy {
    /// The engine's own, called statically.
    Own(Group),
    Plugged(Box<dyn GroupPolicy>),
}

/// The leader's part.
pub(super) struct Schedule {
    policy: Policy,
    pub(super) sealed_at: Nanos,
    /// When a leader first tried to seal the next group.
    pub(super) opened_at: Option<Nanos>,
    /// Whether the last group left records out.
    pub(super) left_behind: bool,
    /// Mean latency of a flush, as last observed.
    pub(super) flush_latency: Duration,
    /// The time from which leaders yield again.
    pub(super) yields_from: Nanos,
    /// Bytes of the records of all groups, and of the groups up to the last one that raised the cut.
    pub(super) sealed_bytes: u64,
    covered_bytes: u64,
}

impl Schedule {
    /// Creates the leader's part. Without a plugged-in policy from `source`, the policy is the engine's own `group`.
    pub(super) fn new(group: Group, source: Option<&GroupSource>) -> Self {
        let own = || Policy::Own(if cfg!(foreshore_loom) { Group::Greedy } else { group });
        Self {
            policy: source.map_or_else(own, |source| Policy::Plugged(source.policy())),
            sealed_at: Nanos::ZERO,
            opened_at: None,
            left_behind: false,
            flush_latency: Duration::ZERO,
            yields_from: Nanos::ZERO,
            sealed_bytes: 0,
            covered_bytes: 0,
        }
    }

    /// Whether the policy waits only for the device.
    pub(super) fn is_greedy(&self) -> bool {
        matches!(self.policy, Policy::Own(Group::Greedy))
    }

    /// Whether decisions depend on the pending bytes.
    pub(super) fn counts_bytes(&self) -> bool {
        matches!(self.policy, Policy::Own(Group::Window(_)))
    }

    /// Returns the decision about the next group.
    pub(super) fn decide(&mut self, seen: &Observation) -> Decision {
        match &mut self.policy {
            Policy::Own(group) => group.decide(seen),
            Policy::Plugged(_) if self.left_behind => Decision::Seal,
            Policy::Plugged(policy) => policy.decide(seen),
        }
    }

    /// Returns the bytes that the completion of the sealed group acknowledges, if the policy needs them. A group that
    /// does not raise the cut acknowledges nothing, and is counted with the next one that does.
    fn acknowledged(&mut self, raises: bool) -> Option<u64> {
        let Self { sealed_bytes, covered_bytes, .. } = *self;
        assert!(
            covered_bytes <= sealed_bytes,
            "groups that were acknowledged have {covered_bytes} of {sealed_bytes} bytes"
        );
        if !raises {
            return None;
        }
        self.covered_bytes = sealed_bytes;
        Some(sealed_bytes - covered_bytes).filter(|&bytes| bytes > 0 && self.counts_bytes())
    }
}

/// The part that all threads may read.
pub(super) struct Scheduler {
    clock: SystemClock,
    /// The bounds of a plugged-in policy. Waiting commits and bytes are counted for them.
    bounds: Option<GroupBounds>,
    /// The count of commits that arrived, and of those that arrived before the last group was sealed.
    came: AtomicU64,
    came_before: AtomicU64,
    /// Bytes of the records of all groups, a copy from the schedule.
    sealed_bytes: AtomicU64,
    /// The time from which a group may be sealed beside one in flight: half a flush after the last seal.
    beside_from: AtomicU64,
    /// The time from which threads yield again before they park.
    yields_from: AtomicU64,
    /// Yields before a park.
    yields: CachePadded<AtomicU64>,
}

impl Scheduler {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let zero = || AtomicU64::new(0);
        let bounds = match &schedule.policy {
            Policy::Own(_) => None,
            Policy::Plugged(policy) => Some(policy.bounds()),
        };
        Self {
            clock: SystemClock::new(),
            bounds,
            came: zero(),
            came_before: zero(),
            sealed_bytes: zero(),
            beside_from: zero(),
            yields_from: zero(),
            yields: CachePadded::new(zero()),
        }
    }

    /// Returns the clock of all times of groups.
    pub(super) fn clock(&self) -> SystemClock {
        self.clock
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Whether a policy is plugged in. Such a policy waits by its own rule even if a thread waits.
    pub(super) fn is_plugged(&self) -> bool {
        self.bounds.is_some()
    }

    /// Counts a commit that waits for a group that is not sealed.
    pub(super) fn arrive(&self) {
        if self.is_plugged() {
            // ORDERING: Relaxed, a hint.
            self.came.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of commits so far. Read before a group is sealed: a later commit may be in this group or the
    /// next.
    pub(super) fn came(&self) -> u64 {
        // ORDERING: Relaxed, a hint.
        if self.is_plugged() { self.came.load(Ordering::Relaxed) } else { 0 }
    }

    /// Whether the group has reached the bounds of a plugged-in policy. `appended` is only called if there is a bound
    /// of bytes.
    pub(super) fn is_full(&self, appended: impl FnOnce() -> u64) -> bool {
        let Some(bounds) = &self.bounds else { return false };
        // ORDERING: Relaxed for all of these, hints.
        let came = || self.came().saturating_sub(self.came_before.load(Ordering::Relaxed));
        let sealed = || self.sealed_bytes.load(Ordering::Relaxed);
        bounds.commits.is_some_and(|most| came() >= most)
            || bounds.bytes.is_some_and(|most| appended().saturating_sub(sealed()) >= most)
    }

    /// Notes a group that was sealed `at` a time with `cut`. `raises`: the cut is above the one before. `came` is the
    /// count of commits before. Returns the bytes that its completion acknowledges, if the policy needs them. Under the
    /// lead.
    pub(super) fn note_seal(
        &self,
        schedule: &mut Schedule,
        at: Nanos,
        cut: &Cut,
        raises: bool,
        came: u64,
    ) -> Option<u64> {
        (schedule.sealed_at, schedule.opened_at, schedule.left_behind) = (at, None, cut.more);
        schedule.sealed_bytes += cut.bytes as u64;
        let beside_from = if cut.more { Nanos::ZERO } else { at + schedule.flush_latency / 2 };
        // Under loom, where any time may have passed, no thread but the leader reads it.
        if !cfg!(foreshore_loom) {
            // ORDERING: Relaxed, a hint.
            self.beside_from.store(beside_from.0, Ordering::Relaxed);
        }
        // ORDERING: Relaxed for both, hints.
        if self.is_plugged() {
            self.came_before.store(came, Ordering::Relaxed);
            self.sealed_bytes.store(schedule.sealed_bytes, Ordering::Relaxed);
        }
        schedule.acknowledged(raises)
    }

    /// Returns the time from which a group may be sealed beside one in flight.
    pub(super) fn beside_from(&self) -> Nanos {
        // ORDERING: Relaxed, written under the lead; elsewhere a hint.
        Nanos(self.beside_from.load(Ordering::Relaxed))
    }

    /// Whether a leader might seal a group beside `in_flight` others now.
    pub(super) fn allows(&self, in_flight: u64) -> bool {
        // Loom has no time, so any time may have passed.
        in_flight == 0 || self.is_plugged() || cfg!(foreshore_loom) || self.now() >= self.beside_from()
    }

    /// Yields the processor of a leader once. The leader made its observation at `began`.
    pub(super) fn yield_leader(&self, schedule: &mut Schedule, began: Nanos) {
        // WAIT: window - one yield; late ones are followed by none for a time.
        thread::yield_now();
        let now = self.now();
        schedule.yields_from = schedule.yields_from.max(now + LateYields::LEADER.pause_after(now.since(began)));
    }

    /// Yields instead of parking at once, where that is likely to end the wait, and says whether it has. `yields`
    /// counts those of this wait.
    pub(super) fn yield_before_park(
        &self,
        (yields, max_yields): (&mut u32, u32),
        sessions: usize,
        flush_latency: impl FnOnce() -> Duration,
    ) -> bool {
        // A model has no processor to lend.
        if MODEL || *yields >= max_yields {
            return false;
        }
        let (began, processors) = (self.now(), available_parallelism());
        // ORDERING: Relaxed, a hint.
        let may_yield = began.0 >= self.yields_from.load(Ordering::Relaxed);
        if !yields_before_park(&BeforePark { yields: *yields, max_yields, sessions, processors, may_yield }) {
            return false;
        }
        *yields += 1;
        // ORDERING: Relaxed, a counter.
        self.yields.fetch_add(1, Ordering::Relaxed);
        // WAIT: window - one yield; late ones are followed by none for a time.
        thread::yield_now();
        let now = self.now();
        let took = now.since(began);
        // The latency is asked for after long yields only: it is behind a lock.
        if !LateYields::of_waiter(Duration::ZERO).pause_after(took).is_zero() {
            let pause = LateYields::of_waiter(flush_latency()).pause_after(took);
            // ORDERING: Relaxed, a hint.
            self.yields_from.store((now + pause).0, Ordering::Relaxed);
        }
        true
    }

    /// Times that a thread has yielded instead of parking at once.
    pub(super) fn yields(&self) -> u64 {
        // ORDERING: Relaxed, a counter.
        self.yields.load(Ordering::Relaxed)
    }
}
