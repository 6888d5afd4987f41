//! The lead: the right to seal groups, which one thread has at a time. Its holder decides when a group is due, by
//! [`crate::group_commit`], and seals it.
//!
//! **Numbers.** The number of a group is the `next` of the window when it is sealed. `next` moves after the leader has
//! read the tails of the buffer. So a thread that reads `next` appends to that group or a later one. The window admits
//! a group under the lead while `next - head` is below the width. So no two groups share memory or a place for
//! completion.

use super::contract::{Leader, Led, Order};
use super::demand::Demand;
use super::hand_off::LeadFor;
use super::progress::Progress;
use super::scheduler::{Schedule, Scheduler};
use crate::group_commit::{Decision, Observation};
use foreshore_base::{GroupNo, Lsn};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard, Nanos};
use std::sync::Arc;

/// The most yields of a leader before it seals. A window ends after fewer, unless a policy ignores the time.
const MAX_YIELDS: usize = 256;

/// The lead of one log.
pub(super) struct Lead<L: Leader> {
    is_taken: CachePadded<AtomicBool>,
    /// Locked by the holder of the lead only, so it never waits.
    work: Mutex<Work<L>>,
    /// The memory of groups, by number modulo the width. Locked from seal to completion, so a lock never waits.
    groups: Box<[Mutex<L::Group>]>,
    scheduler: Scheduler,
    progress: Arc<Progress>,
}

/// The state of the holder of the lead.
struct Work<L> {
    leader: L,
    schedule: Schedule,
}

/// A sealed group on its way to disk.
pub(super) struct Sealed<'a, L: Leader> {
    pub(super) memory: MutexGuard<'a, L::Group>,
    pub(super) number: GroupNo,
    /// The cut: when this group and all before it are durable, so is every record up to it.
    pub(super) upto: Lsn,
    /// Bytes that its completion acknowledges, if the scheduler needs them.
    pub(super) acknowledges: Option<u64>,
    pub(super) at: Nanos,
}

impl<L: Leader> Lead<L> {
    /// Creates the lead of a log, with the memory of as many `groups` as may be in flight.
    pub(super) fn new(leader: L, groups: Vec<L::Group>, schedule: Schedule, progress: Arc<Progress>) -> Self {
        Self {
            is_taken: CachePadded::new(AtomicBool::new(false)),
            scheduler: Scheduler::new(&schedule),
            work: Mutex::new(LockRank::LogDrain, Work { leader, schedule }),
            groups: groups.into_iter().map(|group| Mutex::new(LockRank::LogDrain, group)).collect(),
            progress,
        }
    }

    /// Returns the part of the scheduler that all threads may read.
    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Whether a thread that does not depend on the scheduler may seal a group: the lead is free and the window not
    /// full.
    pub(super) fn is_free(&self) -> bool {
        // ORDERING: Relaxed, the callers' fences order it.
        !self.is_taken.load(Ordering::Relaxed) && !self.progress.is_full()
    }

    /// Whether it is worth trying to lead.
    pub(super) fn is_open(&self) -> bool {
        self.is_free() && self.scheduler.allows(self.progress.in_flight())
    }

    /// Takes the lead. Returns false if another thread has it.
    pub(super) fn take(&self) -> bool {
        // ORDERING: Acquire, the previous leader's state; pairs with `give_up`.
        self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lead. The caller hands off after.
    pub(super) fn give_up(&self) {
        // ORDERING: Release, the next leader sees this one's state; pairs with `take`.
        self.is_taken.store(false, Ordering::Release);
    }

    /// Seals a group when the scheduler says so, if the group is still `wanted`. Under the lead.
    pub(super) fn seal_when_due(
        &self,
        demand: &Demand,
        lead_for: LeadFor,
        wanted: impl FnOnce() -> bool,
    ) -> Result<Sealed<'_, L>, Led> {
        let mut work = self.work.try_lock().expect("the holder of the lead alone locks its work");
        if self.is_stopped() || !wanted() {
            return Err(Led::Unwanted);
        }
        // The check before the lead was taken was a hint.
        if self.progress.is_full() {
            return Err(Led::Busy);
        }
        // A session that needs space does not wait for more commits.
        if !matches!(lead_for, LeadFor::Space(_)) {
            self.wait_until_due(&mut work.schedule, demand, lead_for)?;
            if self.is_stopped() {
                return Err(Led::Unwanted);
            }
        }
        self.seal(&mut work, lead_for)
    }

    fn is_stopped(&self) -> bool {
        self.progress.is_stopped() && !mutant("pipeline: lead though stopped")
    }

    /// Follows the scheduler until a group is due. Returns an error if the caller has to release the lead for the wait.
    fn wait_until_due(&self, schedule: &mut Schedule, demand: &Demand, lead_for: LeadFor) -> Result<(), Led> {
        // Loom has no time, so any time may have passed.
        if schedule.is_greedy() && (cfg!(foreshore_loom) || self.progress.in_flight() == 0) {
            return Ok(());
        }
        for _ in 0..MAX_YIELDS {
            if self.scheduler.is_full(|| demand.appended()) {
                return Ok(());
            }
            let seen = self.observe(schedule, demand, lead_for);
            match schedule.decide(&seen) {
                Decision::Seal => return Ok(()),
                Decision::Wait(time) if seen.is_relaxed => return Err(Led::Later(time)),
                Decision::Wait(time) => return Err(Led::Early(time)),
                Decision::Hold => {
                    assert!(seen.in_flight > 0, "group {} is held back, and none in flight would end that", seen.group);
                    return Err(Led::Busy);
                }
                Decision::Yield => self.scheduler.yield_leader(schedule, seen.now),
            }
        }
        Ok(())
    }

    fn observe(&self, schedule: &mut Schedule, demand: &Demand, lead_for: LeadFor) -> Observation {
        let ((flushes, expected), now) = (self.progress.flushes(), self.scheduler.now());
        schedule.flush_latency = flushes.mean;
        let appended = if schedule.counts_bytes() { demand.appended() } else { 0 };
        let sealed = self.progress.sealed();
        let is_awaited = lead_for != LeadFor::Flusher || demand.is_awaited(sealed);
        Observation {
            now,
            group: self.progress.next_group(),
            in_flight: self.progress.in_flight(),
            left_behind: schedule.left_behind,
            beside_from: self.scheduler.beside_from(),
            sealed_at: schedule.sealed_at,
            opened_at: *schedule.opened_at.get_or_insert(now),
            is_awaited,
            is_relaxed: !is_awaited && !demand.is_pending(sealed),
            pending_bytes: appended.saturating_sub(schedule.sealed_bytes),
            returning: expected.saturating_sub(appended),
            flushes,
            may_yield: now >= schedule.yields_from,
        }
    }

    /// Seals a group. Under the lead.
    fn seal(&self, work: &mut Work<L>, lead_for: LeadFor) -> Result<Sealed<'_, L>, Led> {
        let progress = &*self.progress;
        let (number, sealed, acked) = (progress.next_group(), progress.sealed(), progress.durable_group());
        assert!(acked < number, "group {acked} is durable, and {number} is sealed next");
        let place = (number.0 % self.groups.len() as u64) as usize;
        let mut memory =
            self.groups[place].try_lock().expect("a group has its place to itself from seal to completion");
        let space_in = match lead_for {
            LeadFor::Space(lane) => Some(lane),
            LeadFor::Waiter(_) | LeadFor::Flusher => None,
        };
        let came = self.scheduler.came();
        let cut = match work.leader.seal(&mut memory, Order { number, sealed, acked, space_in }) {
            Ok(Some(cut)) => cut,
            Ok(None) => return Err(Led::Nothing),
            Err(cause) => {
                progress.stop(&cause);
                return Err(Led::Sealed);
            }
        };
        assert!(cut.upto >= sealed, "cut {} falls below {sealed}", cut.upto);
        progress.seal(number, cut.upto);
        let at = self.scheduler.now();
        let acknowledges = self.scheduler.note_seal(&mut work.schedule, at, &cut, cut.upto > sealed, came);
        Ok(Sealed { memory, number, upto: cut.upto, acknowledges, at })
    }
}
