//! The flush pipeline: makes appended records durable.
//!
//! A thread that takes the *lead* seals a group, releases the lead, writes the group and completes it. Several groups
//! may be in flight. They complete in any order, and `durable` moves in the order of groups. Threads that wait for
//! durability lead if a group may begin, and park otherwise. Pipelined commits only store their LSN in the slot of
//! their session; the flushers lead for them.
//!
//! | part | job |
//! |---|---|
//! | [`Progress`] | how far the log is sealed and durable; whether it has stopped |
//! | [`lead`], with [`scheduler`] | sealing: the right to seal a group, and when one is due |
//! | [`demand`], with [`waiters`] | the commits that need a group |
//! | [`flushers`] | threads that write groups for commits without a waiting thread |
//! | [`Acks`], with [`shards`] | callbacks and futures |
//! | [`Pipeline`] | the parts, the writes, and the hand-off; its waits are in `wait` and `flush` |
//!
//! # Wake-ups
//!
//! Every wait and its waker form a store-buffering pair with a `SeqCst` fence on both sides. A thread is a waker when
//! it releases the lead, completes a group, or stops the log:
//!
//! | waiter: writes, fences, then reads | waker: writes, fences, then reads |
//! |---|---|
//! | registers; reads durable, stopped, and whether it may lead | raises durable, moves the head, frees the lead; reads the waiters |
//! | space waiter: prepares; reads free space, stopped, and whether it can lead | frees space, moves the head, frees the lead; reads the event count |
//! | `flush_soon`, `flush_later`: stores the LSN in its slot; reads whether a group may be begun | moves the head, frees the lead; reads the slots |
//! | flusher: sets its idle bit; reads the slots and whether a group may be begun | `flush_soon`, `flush_later`: stores the LSN; reads the idle bits |
//! | flusher: clears its timer bit, reads the slots | `flush_soon`, `flush_later`, a waker: stores the LSN or frees the lead; reads the timer bits |
//!
//! A waiter may lead if
//!
//! - its LSN is not sealed,
//! - the lead is free,
//! - the window is not full, and
//! - the scheduler allows one more group.
//!
//! After its registration a waiter checks this again, and not only `durable`. Otherwise a leader may finish between the
//! failed attempt to lead and the registration, and no thread is left to lead. This is the lost wake-up of the plain
//! leader/follower protocol. A waiter whose LSN is sealed parks: its group, or one before it, is in flight, and the
//! thread that completes it wakes the waiter.
//!
//! A wake-up is a hint. A thread that was woken to lead, but does not, hands off again. The lead is offered to parked
//! threads and to the flushers, never to a future, since no thread can make an executor poll.
//!
//! # Time
//!
//! The scheduler may postpone a group. For the short window of returning commits the leader yields and keeps the lead;
//! to all others it is as if sealing took longer. For a longer wait it releases the lead and sleeps. As long as a
//! commit waits, one thread has a timer: the first of the parked waiters, or a flusher. The timer bit of a flusher
//! keeps committers from signalling it. There are two timer bits: that of relaxed commits keeps only relaxed
//! committers from it.
//!
//! # Failures
//!
//! A failed group stays in the window. No later acknowledgement is given, not even for groups before it that reach the
//! disk. So behind the last acknowledged group a disk may hold any subset of the groups in flight. Some may be torn,
//! and the later ones may be in the next segment. The header of each names the newest group that was known to be
//! durable.

mod acks;
mod contract;
mod demand;
mod flush;
mod flushers;
mod hand_off;
mod lead;
mod progress;
mod scheduler;
mod shards;
mod wait;
mod wait_times;
mod waiters;

pub use acks::{Acks, Callback};
pub use contract::{Calls, Cut, Group, Leader, Led, Order};
pub use progress::Progress;
pub use shards::Key;
pub(crate) use shards::SHARDS;
pub use wait_times::{WaitTimes, Waits};

use crate::group_commit::{self, GroupSource};
use crate::slots::Slots;
use demand::Demand;
use flushers::Flushers;
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_sync::EventCount;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use hand_off::{HandOff, LeadFor};
use lead::{Lead, Sealed};
use scheduler::Schedule;
use std::mem;
use std::sync::Arc;
use wait_times::GroupTimes;

/// The flush pipeline over a [`Leader`].
pub struct Pipeline<L: Leader> {
    progress: Arc<Progress>,
    lead: Lead<L>,
    demand: Demand,
    flushers: Flushers,
    /// The event for which sessions wait until the buffer has free space.
    space: EventCount,
    acks: Acks,
    /// Present if waits are measured.
    wait_times: Option<WaitTimes>,
}

impl<L: Leader> Pipeline<L> {
    /// Creates a pipeline whose log is durable up to `durable` and whose next group is `next`. As many groups may be in
    /// flight as there are in `groups`, 1 to 64. A policy from `source` replaces `group`.
    pub fn new(
        leader: L,
        groups: Vec<L::Group>,
        durable: Lsn,
        next: GroupNo,
        slots: Arc<Slots>,
        (group, source): (group_commit::Group, Option<&GroupSource>),
    ) -> Self {
        let width = groups.len();
        let progress = Arc::new(Progress::new(width, next, durable));
        Self {
            lead: Lead::new(leader, groups, Schedule::new(group, source), progress.clone()),
            flushers: Flushers::new(width),
            acks: Acks::new(slots.len(), progress.clone()),
            demand: Demand::new(slots),
            space: EventCount::new(),
            wait_times: None,
            progress,
        }
    }

    /// Measures the parts of waits if `on`.
    #[must_use]
    pub fn measuring(self, on: bool) -> Self {
        Self { wait_times: on.then(|| WaitTimes::new(self.lead.scheduler().clock())), ..self }
    }

    /// Returns how far the log is sealed and durable, and whether it has stopped.
    #[inline]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the acknowledgements without a waiting thread.
    #[inline]
    pub fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Returns the parts of waits, if they are measured.
    #[inline]
    pub fn wait_times(&self) -> Option<&WaitTimes> {
        self.wait_times.as_ref()
    }

    /// Returns the event for which sessions wait until the buffer has free space.
    pub fn space(&self) -> &EventCount {
        &self.space
    }

    /// Returns how often a thread has yielded before it parked.
    pub fn yields_so_far(&self) -> u64 {
        self.lead.scheduler().yields()
    }

    /// Stops the log, with the first cause as its error, and wakes all waiters.
    pub fn stop(&self, cause: &Error) {
        self.progress.stop(cause);
        self.hand_off(HandOff::Full(Calls::Elsewhere));
        self.flushers.notify_all();
    }

    /// Leads once for a session that needs free space in `lane` of the buffer.
    pub fn lead_for_space(&self, lane: usize) -> Led {
        self.lead(LeadFor::Space(lane), || true)
    }

    /// Takes the lead if it is free and a group may be sealed. Seals a group if it is still `wanted` and the scheduler
    /// says so, releases the lead, and writes the group.
    fn lead(&self, lead_for: LeadFor, wanted: impl FnOnce() -> bool) -> Led {
        if !self.lead.take() {
            return Led::Busy;
        }
        let mut held = Held { pipeline: self, after: None };
        let sealed = self.lead.seal_when_due(&self.demand, lead_for, wanted);
        // A sealed group is written, or the log stops.
        let unwinding = sealed.is_ok().then(|| StopOnUnwind(self));
        if sealed.is_ok() {
            // Sealing has freed space.
            self.space.notify_all();
        }
        held.after = Some(match sealed {
            Err(Led::Nothing) => HandOff::NoGroup { lead_for, is_postponed: false },
            Err(Led::Early(_) | Led::Later(_)) => HandOff::NoGroup { lead_for, is_postponed: true },
            // The attempt has stopped the log.
            Err(Led::Sealed) => HandOff::Full(Calls::Elsewhere),
            _ => HandOff::Lead,
        });
        // The next leader may build its group while this one is written.
        drop(held);
        match sealed {
            Ok(group) => {
                self.write(group, lead_for.calls(), unwinding);
                Led::Sealed
            }
            Err(led) => led,
        }
    }

    /// Writes a group and completes it, or stops the log. In a panic `unwinding` stops it.
    fn write(&self, group: Sealed<'_, L>, calls: Calls, unwinding: Option<StopOnUnwind<'_, L>>) {
        let Sealed { mut memory, number, upto: cut, acknowledges, at: sealed } = group;
        let scheduler = self.lead.scheduler();
        let began = scheduler.now();
        let written = memory.write();
        // The memory is released before the window admits the group that reuses it.
        drop(memory);
        match written {
            // Not even groups before the failed one are acknowledged: the kernel reports lost pages once, so a later
            // success of a sync of the same file proves nothing.
            Ok(()) if self.progress.is_stopped() && !mutant("pipeline: acknowledges though stopped") => {
                mem::forget(unwinding);
            }
            Ok(()) => {
                let ended = scheduler.now();
                if let Some(times) = &self.wait_times {
                    times.note(GroupTimes { number, cut, sealed, began, ended });
                }
                // Loaded before any thread is woken.
                let expected = acknowledges.map(|bytes| self.demand.appended() + bytes);
                self.progress.complete(number, cut, [began, ended], expected);
                let (durable, sealed) = (self.progress.durable(), self.progress.sealed());
                assert!(durable <= sealed, "the log is durable up to {durable} and sealed up to {sealed}");
                mem::forget(unwinding);
                self.hand_off(HandOff::Full(calls));
            }
            Err(cause) => {
                mem::forget(unwinding);
                self.stop(&cause);
            }
        }
    }

    /// Wakes the threads that can continue: all satisfied waiters, and one that can take the lead.
    fn hand_off(&self, mode: HandOff) {
        // ORDERING: the waker's side of all rows of the table above.
        fence(Ordering::SeqCst);
        let (is_open, waiters) = (self.lead.is_open(), &self.demand.waiters);
        if !waiters.is_empty() {
            let next = (is_open && mode.wakes_waiter()).then(|| self.progress.sealed());
            let upto = match mode {
                HandOff::Full(_) => self.progress.answered().0,
                HandOff::Lead | HandOff::NoGroup { .. } => Lsn::ZERO,
            };
            if next.is_some() || matches!(mode, HandOff::Full(_)) {
                waiters.wake(upto, next);
            }
        }
        let signals = is_open && mode.wakes_flusher() && !self.flushers.is_timing();
        let is_left = || self.is_pending() || !self.flushers.is_timing_relaxed() && self.is_wanted();
        if signals && is_left() && !mutant("pipeline: leader forgets the flusher") {
            self.flushers.notify_one();
        }
        if matches!(mode, HandOff::Full(_)) && self.progress.is_stopped() {
            self.space.notify_all();
        } else if mode.wakes_space() && self.lead.is_free() {
            self.space.notify_one();
        }
        if let HandOff::Full(calls) = mode {
            self.acks.release();
            if calls == Calls::Elsewhere && self.acks.has_due() && !mutant("pipeline: calls are left to no thread") {
                self.flushers.notify_one();
            }
        }
    }

    /// Whether a flusher is needed soon for commits that are not sealed. Behind a `SeqCst` fence.
    fn is_pending(&self) -> bool {
        self.demand.is_pending(self.progress.sealed())
    }

    /// Whether a flusher is wanted for what is not sealed, soon or for relaxed commits. Behind a `SeqCst` fence.
    fn is_wanted(&self) -> bool {
        self.demand.is_wanted(self.progress.sealed())
    }
}

/// A guard of the lead, which it releases on drop. If the leader unwinds, it stops the log, because the sealed records
/// are lost.
struct Held<'a, L: Leader> {
    pipeline: &'a Pipeline<L>,
    /// `None` until the leader is done.
    after: Option<HandOff>,
}

impl<L: Leader> Drop for Held<'_, L> {
    fn drop(&mut self) {
        let after = self.after.unwrap_or_else(|| {
            // Stopped before the lead is free, so that no thread seals a later group.
            self.pipeline.progress.stop(&unwinding());
            HandOff::Full(Calls::Elsewhere)
        });
        self.pipeline.lead.give_up();
        self.pipeline.hand_off(after);
    }
}

/// A guard that stops the log when the thread that writes a group unwinds: the group may or may not be on disk.
struct StopOnUnwind<'a, L: Leader>(&'a Pipeline<L>);

impl<L: Leader> Drop for StopOnUnwind<'_, L> {
    fn drop(&mut self) {
        self.0.stop(&unwinding());
    }
}

fn unwinding() -> Error {
    Error::io("write", "log", std::io::Error::other("the leader of a log group panicked"))
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
