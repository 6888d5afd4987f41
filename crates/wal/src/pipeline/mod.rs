//! The flush pipeline: from appended to durable.
//!
//! A thread that takes the *lead* cuts a group, gives the lead up, writes the group and completes it. Up to `D` groups are in
//! flight, that is sealed and not known to be durable from the oldest on; they complete in any order, and `durable` moves in
//! theirs. Threads that wait for durability lead when a group may be begun and park otherwise; pipelined commits only leave
//! their LSN in their session's slot, and the parked flushers are the waiters of last resort for them.
//!
//! | part | job |
//! |---|---|
//! | `lead`, `force`, `flush`, `space` | the protocol: leading; waiting for durability, in the background, for room |
//! | `scheduler` | when a group is sealed, by [`crate::group_commit`] |
//! | `window` | the groups in flight |
//! | `waiters`, `flushers`, `demand` | parked threads; flushers; wishes of those that do not wait |
//! | `acks`, `acknowledge` | futures and callbacks |
//! | `stop` | the end of the log |
//! | `waits` | what waits were spent on, if measured |
//!
//! Every wait and its waker form a store-buffering pair with a `SeqCst` fence on both sides. A thread is a waker when it gives
//! up the lead, completes a group, or stops the log:
//!
//! | waiter: writes, fences, then reads | waker: writes, fences, then reads |
//! |---|---|
//! | registers; reads durable, poisoned, and whether it may lead | raises durable, moves the head, frees the lead; reads the waiters |
//! | space waiter: prepares; reads free credit, poisoned, and whether it can lead | gives credit, moves the head, frees the lead; reads the event count |
//! | `flush_soon`: stores the LSN in its slot; reads whether a group may be begun | moves the head, frees the lead; reads the slots |
//! | flusher: sets its idle bit; reads the slots and whether a group may be begun | `flush_soon`: stores the LSN; reads the idle bits |
//! | flusher: clears its timer bit, reads the slots | `flush_soon`, a waker: stores the LSN or frees the lead; reads the timer bits |
//!
//! "May lead" is: its LSN is not sealed, the lead is free, fewer than `D` groups are in flight, and the scheduler allows one
//! more. Re-reading `durable` alone is not enough: a leader may finish between a waiter's failed attempt to lead and its
//! registration, and then no thread is left to lead (the lost wake-up of the plain leader/follower protocol). A waiter whose LSN
//! is sealed parks: its group, or one before it, is in flight, and the thread that completes that wakes it.
//!
//! A wake-up is a hint. A thread that is woken to lead and goes away instead hands off again. Leadership is offered to parked
//! threads and to the flushers, never to a future: no thread can make an executor poll.
//!
//! **Time.** The scheduler may tell a leader to look again later. The leader yields for the short window of returning commits,
//! with the lead: to all others it is as if the cut took longer. Otherwise it gives the lead up and sleeps. Some thread then has
//! a timer as long as a commit waits: the first of the parked waiters ([`Waiters::takes_timer`]), or a flusher, whose timer bit
//! keeps committers from signalling it.
//!
//! **Numbers.** A group's number is the window's `next` when it is sealed, and `next` moves after the leader has read the
//! buffer's tails: a thread that reads it appends to that group or a later one. The window admits a group under the lead while
//! `next - head < D`, so that neither memory nor completion of two groups ever meet.
//!
//! **Failures.** A group that fails stays in the window. Nothing is acknowledged any more, neither behind it nor in front of it,
//! though it may reach the disk. So behind the last acknowledged group a disk may hold any subset of `D` groups, some of them torn,
//! the later ones in the next segment perhaps. Each carries in its header the newest group that was known to be durable when it
//! was sealed, which is at most `D` groups older than itself.

mod acknowledge;
mod acks;
mod demand;
mod flush;
mod flushers;
mod force;
mod lead;
mod leader;
mod scheduler;
mod space;
mod stop;
mod waiters;
mod waits;
mod window;

pub use acks::Key;
pub(crate) use acks::SHARDS;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub use leader::Led;
pub use leader::{Calls, Cut, Group, Leader, Order};
pub use waits::Waits;

use crate::group_commit::{self, GroupSource};
use crate::slots::Slots;
use acknowledge::Acknowledgements;
use demand::Demand;
use flushers::Flushers;
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::AtomicBool;
use foreshore_sync::{CachePadded, EventCount, LockRank, Mutex};
use leader::HandOff;
use scheduler::{Schedule, Scheduler};
use std::sync::Arc;
use stop::Stop;
use waiters::Waiters;
use waits::WaitTimes;
use window::Window;

/// The flush pipeline over a [`Leader`].
#[derive(Debug)]
pub struct Pipeline<L: Leader> {
    window: Window,
    /// By number modulo their count, which is `D`: locked from seal to completion, so it never waits.
    groups: Box<[Mutex<L::Group>]>,
    /// The lead. Held while its holder looks around, and while a group is cut and gets its place on disk.
    is_led: CachePadded<AtomicBool>,
    /// Locked by the holder of the lead only, so it never waits either.
    leading: Mutex<Leading<L>>,
    scheduler: Scheduler,
    demand: Demand,
    waiters: Waiters,
    flushers: Flushers,
    space: EventCount,
    acks: Acknowledgements,
    stop: Stop,
    /// Present if waits are measured.
    waits: Option<WaitTimes>,
}

/// What the holder of the lead works with.
#[derive(Debug)]
struct Leading<L> {
    leader: L,
    schedule: Schedule,
}

impl<L: Leader> Pipeline<L> {
    /// A pipeline whose log is durable up to `durable` and whose next group is `next`. As many groups may be in flight as
    /// there are in `groups`, one to 64. A policy from `source` takes the place of `group`.
    pub fn new(
        leader: L,
        groups: Vec<L::Group>,
        durable: Lsn,
        next: GroupNo,
        slots: Arc<Slots>,
        (group, source): (group_commit::Group, Option<&GroupSource>),
    ) -> Self {
        let schedule = Schedule::new(group, source);
        Self {
            window: Window::new(groups.len(), next, durable),
            flushers: Flushers::new(groups.len()),
            groups: groups.into_iter().map(|group| Mutex::new(LockRank::LogDrain, group)).collect(),
            is_led: CachePadded::new(AtomicBool::new(false)),
            scheduler: Scheduler::new(&schedule),
            leading: Mutex::new(LockRank::LogDrain, Leading { leader, schedule }),
            waiters: Waiters::new(),
            acks: Acknowledgements::new(slots.len()),
            demand: Demand::new(slots),
            space: EventCount::new(),
            stop: Stop::new(),
            waits: None,
        }
    }

    /// Every record with an LSN up to here survives.
    pub fn durable(&self) -> Lsn {
        self.window.durable()
    }

    /// Every record with an LSN up to here is in a sealed group.
    pub fn sealed(&self) -> Lsn {
        self.window.sealed()
    }

    /// Number of the next group to be sealed. A record appended from now on is in that group or a later one.
    pub fn next_group(&self) -> GroupNo {
        self.window.next()
    }

    /// The newest group that is durable together with all before it.
    pub fn durable_group(&self) -> GroupNo {
        GroupNo(self.window.head().0 - 1)
    }

    /// How many groups may be in flight.
    pub fn width(&self) -> usize {
        self.groups.len()
    }

    /// Whether the log has stopped.
    pub fn is_poisoned(&self) -> bool {
        self.stop.is_set()
    }

    /// Why the log has stopped: the error that all callers get.
    #[inline]
    pub fn poison_error(&self) -> Option<Error> {
        if self.is_poisoned() { Some(self.stop.error()) } else { None }
    }

    /// The answer to a wait for `lsn`: that it is durable, or that the log has stopped before; `None` while neither is known. A
    /// record that was durable before the log stopped stays so.
    #[inline]
    pub fn answer(&self, lsn: Lsn) -> Option<Result<()>> {
        // The look at what is durable is the second one: by then all that came before the stop has been counted.
        let stopped = self.is_poisoned();
        let is_sealed = mutant("sabotage: a wait for a group ends when it is sealed") && self.sealed() >= lsn;
        if self.durable() >= lsn || is_sealed { Some(Ok(())) } else { stopped.then(|| Err(self.stop.error())) }
    }

    /// Stops the log: the first cause stays. Wakes all that wait.
    pub fn poison(&self, cause: &Error) {
        self.stop.set(cause);
        self.hand_off(HandOff::Full(Calls::Elsewhere));
        self.flushers.ring_all();
    }

    /// Times that a thread has yielded instead of parking at once.
    pub fn yields_so_far(&self) -> u64 {
        self.scheduler.yields()
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
