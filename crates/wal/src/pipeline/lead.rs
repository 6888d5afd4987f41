//! Leading: one group from its cut to its completion, and the hand-off after it.

use super::leader::{Caller, Calls, Group, HandOff, Leader, Led, Order};
use super::scheduler::Schedule;
use super::waits::GroupTimes;
use super::{Leading, Pipeline};
use crate::group_commit::{Decision, Observation};
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_sync::Nanos;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};

/// Most yields of a leader before it seals. A window is over after fewer, or the policy does not know the time.
const MAX_YIELDS: usize = 256;

impl<L: Leader> Pipeline<L> {
    /// Takes the lead if it is free and a group may be sealed, cuts one if that is still `wanted` and the scheduler says so, gives
    /// the lead up, and writes the group.
    pub(super) fn lead(&self, caller: Caller, wanted: impl FnOnce() -> bool) -> Led {
        // ORDERING: Acquire, the previous leader's state; pairs with the release in `Turn::drop`.
        if self.is_led.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Led::Busy;
        }
        let mut turn = Turn { pipeline: self, after: HandOff::Lead, done: false };
        let mut leading = self.leading.try_lock().expect("the holder of the lead alone locks the leader");
        let out = if self.is_stopped() || !wanted() {
            Err(Led::Unwanted)
        } else if self.window.is_full(self.groups.len()) {
            // What was read before the lead was taken was a hint.
            Err(Led::Busy)
        } else {
            self.seal_when_due(&mut leading, caller)
        };
        turn.after = match out {
            Err(Led::Nothing) => HandOff::NoGroup { caller, is_early: false },
            Err(Led::Early(_)) => HandOff::NoGroup { caller, is_early: true },
            // It stopped the log.
            Err(Led::Sealed) => HandOff::Full(Calls::Elsewhere),
            _ => HandOff::Lead,
        };
        turn.done = true;
        drop(leading);
        // The next leader may build its group while this one is written.
        drop(turn);
        match out {
            Ok(flight) => {
                flight.write();
                Led::Sealed
            }
            Err(led) => led,
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_poisoned() && !mutant("pipeline: lead though poisoned")
    }

    /// Seals a group when the scheduler says so. Under the lead.
    fn seal_when_due<'a>(&'a self, leading: &mut Leading<L>, caller: Caller) -> Result<Flight<'a, L>, Led> {
        // A session that wants space waits for a cut, not for more commits.
        if !matches!(caller, Caller::Space(_)) {
            self.wait_until_due(&mut leading.schedule, caller)?;
            if self.is_stopped() {
                return Err(Led::Unwanted);
            }
        }
        self.seal(leading, caller)
    }

    /// Follows the scheduler until a group is due; as an error if the caller is not to wait for that with the lead.
    fn wait_until_due(&self, schedule: &mut Schedule, caller: Caller) -> Result<(), Led> {
        // Under loom, which has no time, any may have passed.
        if schedule.is_greedy() && (cfg!(foreshore_loom) || self.window.in_flight() == 0) {
            return Ok(());
        }
        for _ in 0..MAX_YIELDS {
            if self.scheduler.is_full(|| self.demand.appended()) {
                return Ok(());
            }
            let seen = self.observe(schedule, caller);
            match schedule.decide(&seen) {
                Decision::Seal => return Ok(()),
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

    fn observe(&self, schedule: &mut Schedule, caller: Caller) -> Observation {
        let flushes = self.window.flushes();
        schedule.flush_latency = flushes.latency;
        let appended = if schedule.counts_bytes() { self.demand.appended() } else { 0 };
        let now = self.scheduler.now();
        Observation {
            now,
            group: self.window.next(),
            in_flight: self.window.in_flight(),
            left_behind: schedule.left_behind,
            beside_from: schedule.beside_from,
            sealed_at: schedule.sealed_at,
            completed_at: flushes.completed_at,
            opened_at: *schedule.opened_at.get_or_insert(now),
            has_stopped: caller != Caller::Flusher
                || self.demand.is_asked(self.window.sealed())
                || !self.waiters.is_empty(),
            pending_bytes: appended.saturating_sub(schedule.sealed_bytes),
            returning: flushes.expected.saturating_sub(appended),
            flush_latency: flushes.latency,
            last_flush: flushes.last,
            flushes: flushes.count,
            may_yield: now >= schedule.yields_from,
        }
    }

    /// Seals a group. Under the lead.
    fn seal<'a>(&'a self, leading: &mut Leading<L>, caller: Caller) -> Result<Flight<'a, L>, Led> {
        let (number, sealed) = (self.window.next(), self.window.sealed());
        let place = (number.0 % self.groups.len() as u64) as usize;
        let mut group = self.groups[place].try_lock().expect("a group has its place to itself from seal to completion");
        let acked = GroupNo(self.window.head().0 - 1);
        assert!(acked < number, "group {acked} is durable, and {number} is sealed next");
        let room = match caller {
            Caller::Space(lane) => Some(lane),
            Caller::Waiter(_) | Caller::Flusher => None,
        };
        let order = Order { number, sealed, acked, room };
        let came = self.scheduler.came();
        let cut = match leading.leader.seal(&mut group, order) {
            Ok(Some(cut)) => cut,
            Ok(None) => return Err(Led::Nothing),
            Err(cause) => {
                self.stop.set(&cause);
                return Err(Led::Sealed);
            }
        };
        assert!(cut.upto >= sealed, "cut {} falls below {sealed}", cut.upto);
        self.window.seal(number, cut.upto);
        let calls = match caller {
            Caller::Waiter(calls) => calls,
            Caller::Space(_) => Calls::Elsewhere,
            Caller::Flusher => Calls::Here,
        };
        let (now, schedule) = (self.scheduler.now(), &mut leading.schedule);
        let acknowledges = schedule.note_seal(now, cut.bytes, cut.upto > sealed, cut.more);
        self.scheduler.note_seal(schedule, came);
        // Draining made room.
        self.space.notify_all();
        let acknowledges = schedule.counts_bytes().then_some(acknowledges).filter(|&bytes| bytes > 0);
        let (sealed, cut) = (now, cut.upto);
        Ok(Flight { pipeline: self, group: Some(group), number, cut, acknowledges, sealed, calls, done: false })
    }

    /// Whether a group may be sealed for a thread that does not ask the scheduler: the lead is free and the window open.
    pub fn can_lead(&self) -> bool {
        // ORDERING: Relaxed, the callers' fences order it.
        !self.is_led.load(Ordering::Relaxed) && !self.window.is_full(self.groups.len())
    }

    /// Whether it is worth trying to lead.
    pub(super) fn is_open(&self) -> bool {
        self.can_lead() && self.scheduler.allows(self.window.in_flight())
    }

    /// Wakes the threads that can go on: all satisfied waiters, and one that can take the lead.
    pub(super) fn hand_off(&self, mode: HandOff) {
        // ORDERING: the waker's side of all rows of the table above.
        fence(Ordering::SeqCst);
        let is_open = self.is_open();
        if !self.waiters.is_empty() {
            let next = (is_open && mode.wakes_waiter()).then(|| self.sealed());
            let upto = match mode {
                HandOff::Full(_) if self.is_poisoned() => Lsn(u64::MAX),
                HandOff::Full(_) => self.durable(),
                HandOff::Lead | HandOff::NoGroup { .. } => Lsn::ZERO,
            };
            if next.is_some() || matches!(mode, HandOff::Full(_)) {
                self.waiters.wake(upto, next);
            }
        }
        let rings = is_open && mode.wakes_flusher() && !self.flushers.is_timing();
        if rings && self.is_pending() && !mutant("pipeline: leader forgets the flusher") {
            self.flushers.ring();
        }
        if matches!(mode, HandOff::Full(_)) && self.is_poisoned() {
            self.space.notify_all();
        } else if mode.wakes_space() && self.can_lead() {
            self.space.notify_one();
        }
        if let HandOff::Full(calls) = mode {
            self.call_releases();
            if calls == Calls::Elsewhere && self.has_due_calls() && !mutant("pipeline: calls are left to no thread") {
                self.flushers.ring();
            }
        }
    }
}

/// The lead, given up on drop. A leader that unwinds poisons the log: what it cut is lost.
struct Turn<'a, L: Leader> {
    pipeline: &'a Pipeline<L>,
    after: HandOff,
    done: bool,
}

impl<L: Leader> Drop for Turn<'_, L> {
    fn drop(&mut self) {
        if !self.done {
            // Before the lead is free, so that no thread seals behind it.
            self.pipeline.stop.set(&unwinding());
            self.after = HandOff::Full(Calls::Elsewhere);
        }
        // ORDERING: Release, the next leader sees this one's state; pairs with the exchange in `lead`.
        self.pipeline.is_led.store(false, Ordering::Release);
        self.pipeline.hand_off(self.after);
    }
}

/// A sealed group on its way to disk. A thread that leaves it before its end, unwinding, poisons the log: the group may be
/// anywhere.
struct Flight<'a, L: Leader> {
    pipeline: &'a Pipeline<L>,
    group: Option<foreshore_sync::MutexGuard<'a, L::Group>>,
    number: GroupNo,
    cut: Lsn,
    /// Bytes that its completion acknowledges, if the scheduler asks for them.
    acknowledges: Option<u64>,
    sealed: Nanos,
    calls: Calls,
    done: bool,
}

impl<L: Leader> Flight<'_, L> {
    /// Writes the group and completes it, or poisons the log.
    fn write(mut self) {
        let pipeline = self.pipeline;
        let began = pipeline.scheduler.now();
        let written = self.group.as_mut().expect("present until the end").write();
        // The place is free before the window says so.
        self.group = None;
        match written {
            // Not even in front of the group that failed: the kernel tells of lost pages once, so the success of another
            // sync of the same file means nothing after that.
            Ok(()) if pipeline.is_poisoned() && !mutant("pipeline: acknowledges though poisoned") => self.done = true,
            Ok(()) => {
                let ended = pipeline.scheduler.now();
                if let Some(waits) = &pipeline.waits {
                    let Self { number, cut, sealed, .. } = self;
                    waits.note(GroupTimes { number, cut, sealed, began, ended });
                }
                // Before any thread is woken.
                let expected = self.acknowledges.map(|bytes| pipeline.demand.appended() + bytes);
                pipeline.window.complete(self.number, self.cut, [began, ended], expected);
                let (durable, sealed) = (pipeline.durable(), pipeline.sealed());
                assert!(durable <= sealed, "the log is durable up to {durable} and sealed up to {sealed}");
                self.done = true;
                pipeline.hand_off(HandOff::Full(self.calls));
            }
            Err(cause) => {
                self.done = true;
                pipeline.poison(&cause);
            }
        }
    }
}

impl<L: Leader> Drop for Flight<'_, L> {
    fn drop(&mut self) {
        if !self.done {
            self.group = None;
            self.pipeline.poison(&unwinding());
        }
    }
}

fn unwinding() -> Error {
    Error::io("write", "log", std::io::Error::other("the leader of a log group panicked"))
}
