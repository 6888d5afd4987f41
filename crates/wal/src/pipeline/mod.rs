//! The flush pipeline: from appended to durable.
//!
//! A thread that takes the *lead* seals a group, gives the lead up, writes the group and completes it. Several groups
//! may be in flight; they complete in any order, and `durable` moves in theirs. Threads that wait for durability lead
//! when a group may be begun and park otherwise. Pipelined commits only leave their LSN in the slot of their session,
//! and the parked flushers are the waiters of last resort for them.
//!
//! | part | job |
//! |---|---|
//! | [`Progress`] | how far the log is sealed and durable; whether it has stopped |
//! | [`lead`], with [`scheduler`] | sealing: the right to seal a group, and when one is due |
//! | [`demand`], with [`waiters`] | the commits that want a group |
//! | [`flushers`] | threads that write groups for commits that no thread waits for |
//! | [`Acks`], with [`shards`] | callbacks and futures |
//! | [`Pipeline`] | the parts, the writes, and the hand-off; its waits are in `wait` and `flush` |
//!
//! # Wake-ups
//!
//! Every wait and its waker form a store-buffering pair with a `SeqCst` fence on both sides. A thread is a waker when
//! it gives up the lead, completes a group, or stops the log:
//!
//! | waiter: writes, fences, then reads | waker: writes, fences, then reads |
//! |---|---|
//! | registers; reads durable, stopped, and whether it may lead | raises durable, moves the head, frees the lead; reads the waiters |
//! | space waiter: prepares; reads free space, stopped, and whether it can lead | frees space, moves the head, frees the lead; reads the event count |
//! | `flush_soon`: stores the LSN in its slot; reads whether a group may be begun | moves the head, frees the lead; reads the slots |
//! | flusher: sets its idle bit; reads the slots and whether a group may be begun | `flush_soon`: stores the LSN; reads the idle bits |
//! | flusher: clears its timer bit, reads the slots | `flush_soon`, a waker: stores the LSN or frees the lead; reads the timer bits |
//!
//! "May lead" is: its LSN is not sealed, the lead is free, the window is not full, and the scheduler allows one more
//! group. Reading `durable` again is not enough. A leader may finish between the failed attempt of a waiter to lead and
//! its registration. Then no thread is left to lead: the lost wake-up of the plain leader/follower protocol. A waiter
//! whose LSN is sealed parks: its group, or one before it, is in flight. The thread that completes that wakes it.
//!
//! A wake-up is a hint. A thread that is woken to lead and goes away instead hands off again. Leadership is offered to
//! parked threads and to the flushers, never to a future: no thread can make an executor poll.
//!
//! # Time
//!
//! The scheduler may tell a leader to come back later. The leader yields for the short window of returning commits,
//! with the lead: to all others it is as if sealing took longer. Otherwise it gives the lead up and sleeps. Some thread
//! then has a timer as long as a commit waits: the first of the parked waiters, or a flusher, whose timer bit keeps
//! committers from signalling it.
//!
//! # Failures
//!
//! A group that fails stays in the window. Nothing is acknowledged any more, neither behind it nor in front of it,
//! though it may reach the disk. So behind the last acknowledged group a disk may hold any subset of the groups in
//! flight, some of them torn, the later ones in the next segment perhaps. The header of each says which group was the
//! newest known to be durable.

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
use hand_off::{Caller, HandOff};
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
    /// Where sessions wait for free space in the buffer.
    space: EventCount,
    acks: Acks,
    /// Present if waits are measured.
    wait_times: Option<WaitTimes>,
}

impl<L: Leader> Pipeline<L> {
    /// A pipeline whose log is durable up to `durable` and whose next group is `next`. As many groups may be in flight
    /// as there are in `groups`, one to 64. A policy from `source` takes the place of `group`.
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

    /// Measures what waits are spent on if `on`.
    #[must_use]
    pub fn measuring(self, on: bool) -> Self {
        Self { wait_times: on.then(|| WaitTimes::new(self.lead.scheduler().clock())), ..self }
    }

    /// How far the log is sealed and durable, and whether it has stopped.
    #[inline]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The acknowledgements that no thread waits for.
    #[inline]
    pub fn acks(&self) -> &Acks {
        &self.acks
    }

    /// What waits were spent on, if that is measured.
    #[inline]
    pub fn wait_times(&self) -> Option<&WaitTimes> {
        self.wait_times.as_ref()
    }

    /// Where sessions wait for free space in the buffer.
    pub fn space(&self) -> &EventCount {
        &self.space
    }

    /// Times that a thread has yielded instead of parking at once.
    pub fn yields_so_far(&self) -> u64 {
        self.lead.scheduler().yields()
    }

    /// Stops the log: the first cause stays. Wakes all that wait.
    pub fn stop(&self, cause: &Error) {
        self.progress.stop(cause);
        self.hand_off(HandOff::Full(Calls::Elsewhere));
        self.flushers.notify_all();
    }

    /// Leads once for a session that wants free space in `lane` of the buffer.
    pub fn lead_for_space(&self, lane: usize) -> Led {
        self.lead(Caller::Space(lane), || true)
    }

    /// Takes the lead if it is free and a group may be sealed. Seals one if that is still `wanted` and the scheduler
    /// says so, gives the lead up, and writes the group.
    fn lead(&self, caller: Caller, wanted: impl FnOnce() -> bool) -> Led {
        if !self.lead.take() {
            return Led::Busy;
        }
        let mut held = Held { pipeline: self, after: None };
        let sealed = self.lead.seal_when_due(&self.demand, caller, wanted);
        // A group that is sealed is written, or the log stops.
        let unwinding = sealed.is_ok().then(|| StopOnUnwind(self));
        if sealed.is_ok() {
            // Sealing has freed space.
            self.space.notify_all();
        }
        held.after = Some(match sealed {
            Err(Led::Nothing) => HandOff::NoGroup { caller, is_early: false },
            Err(Led::Early(_)) => HandOff::NoGroup { caller, is_early: true },
            // It stopped the log.
            Err(Led::Sealed) => HandOff::Full(Calls::Elsewhere),
            _ => HandOff::Lead,
        });
        // The next leader may build its group while this one is written.
        drop(held);
        match sealed {
            Ok(group) => {
                self.write(group, caller.calls(), unwinding);
                Led::Sealed
            }
            Err(led) => led,
        }
    }

    /// Writes a group and completes it, or stops the log; `unwinding` stops it in a panic.
    fn write(&self, group: Sealed<'_, L>, calls: Calls, unwinding: Option<StopOnUnwind<'_, L>>) {
        let Sealed { mut memory, number, upto: cut, acknowledges, at: sealed } = group;
        let scheduler = self.lead.scheduler();
        let began = scheduler.now();
        let written = memory.write();
        // The place is free before the window says so.
        drop(memory);
        match written {
            // Not even in front of the group that failed: the kernel tells of lost pages once, so the success of
            // another sync of the same file means nothing after that.
            Ok(()) if self.progress.is_stopped() && !mutant("pipeline: acknowledges though stopped") => {
                mem::forget(unwinding);
            }
            Ok(()) => {
                let ended = scheduler.now();
                if let Some(times) = &self.wait_times {
                    times.note(GroupTimes { number, cut, sealed, began, ended });
                }
                // Before any thread is woken.
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

    /// Wakes the threads that can go on: all satisfied waiters, and one that can take the lead.
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
        if signals && self.is_pending() && !mutant("pipeline: leader forgets the flusher") {
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

    /// Whether a flusher is wanted for what is not sealed. Behind a `SeqCst` fence.
    fn is_pending(&self) -> bool {
        self.demand.is_pending(self.progress.sealed())
    }
}

/// The lead while a thread has it, given up on drop. A leader that unwinds stops the log: what it sealed is lost.
struct Held<'a, L: Leader> {
    pipeline: &'a Pipeline<L>,
    /// `None` until the leader is done.
    after: Option<HandOff>,
}

impl<L: Leader> Drop for Held<'_, L> {
    fn drop(&mut self) {
        let after = self.after.unwrap_or_else(|| {
            // Before the lead is free, so that no thread seals behind it.
            self.pipeline.progress.stop(&unwinding());
            HandOff::Full(Calls::Elsewhere)
        });
        self.pipeline.lead.give_up();
        self.pipeline.hand_off(after);
    }
}

/// Stops the log when the thread that writes a group unwinds: the group may be anywhere.
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
