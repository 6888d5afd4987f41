//! From appended to durable: who leads, who waits, who wakes whom.
//!
//! Whoever takes the *lead* cuts a group, gives the lead up, writes the group and completes it. Up to `D` groups are in
//! flight, that is sealed and not known to be durable from the oldest on; they complete in any order, and `durable` moves in
//! theirs. Threads that wait for durability lead when a group may be begun and park otherwise; pipelined commits only leave
//! their LSN in their session's slot, and the parked flushers are the waiters of last resort for them.
//!
//! Every wait and its waker form a store-buffering pair with a `SeqCst` fence on both sides. A waker is who gives up the
//! lead, who completes a group, and who stops the log:
//!
//! | waiter: writes, fences, then reads | waker: writes, fences, then reads |
//! |---|---|
//! | registers; reads durable, poisoned, and whether it may lead | raises durable, moves the head, frees the lead; reads the waiters |
//! | space waiter: prepares; reads free credit, poisoned, and whether it can lead | gives credit, moves the head, frees the lead; reads the event count |
//! | `flush_soon`: stores the LSN in its slot; reads whether a group may be begun | moves the head, frees the lead; reads the slots |
//! | flusher: sets its idle bit; reads the slots and whether a group may be begun | `flush_soon`: stores the LSN; reads the idle bits |
//!
//! "May lead" is: its LSN is not sealed, the lead is free, fewer than `D` groups are in flight, and the pace allows one
//! more. Re-reading `durable` alone is not enough: a leader may finish between a waiter's failed attempt to lead and its
//! registration, and then nobody is left to lead (the lost wake-up of the plain leader/follower protocol). A waiter whose LSN
//! is sealed parks: its group, or one before it, is in flight, and who completes that wakes it.
//!
//! A wake-up is a hint. Who is woken to lead and goes away instead hands off again. Leadership is offered to parked
//! threads and to the flushers, never to a future: nobody can make an executor poll.
//!
//! **Numbers.** A group's number is the window's `next` when it is sealed, and `next` moves after the leader has read the
//! buffer's tails: who reads it appends to that group or a later one. The window admits a group under the lead while
//! `next - head < D`, so that neither memory nor completion of two groups ever meet.
//!
//! **Failures.** A group that fails stays in the window. Nothing is acknowledged any more, neither behind it nor in front of it,
//! though it may reach the disk. So behind the last acknowledged group a disk may hold any subset of `D` groups, some of them torn,
//! the later ones in the next segment perhaps. Each carries in its header the newest group that was known to be durable when it
//! was sealed, which is at most `D` groups older than itself.

mod acks;
mod amass;
mod flush;
mod gather;
mod lead;
mod pace;
mod passage;
mod space;
mod waiters;
mod window;
mod yields;

pub use acks::Key;
pub(crate) use acks::SHARDS;
pub use lead::{Calls, Led};
pub use passage::Waits;

use crate::policy::GroupPolicy;
use crate::slots::Slots;
use acks::Acks;
use amass::Amass;
use flush::Flushers;
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use foreshore_sync::{CachePadded, EventCount, LockRank, Mutex, Parker};
use gather::Gather;
use lead::{Caller, HandOff};
use pace::{Pace, Start};
use passage::Passages;
use std::sync::Arc;
use std::time::Duration;
use waiters::Waiters;
use window::Window;
use yields::Yields;

/// How long a leader pauses when an appender below its target is stopped in its copy.
const STALL: Duration = Duration::from_micros(50);

/// What the holder of the lead does. Not shared: the pipeline calls it for one leader at a time.
pub trait Leader: Send {
    /// What one group in flight takes: its memory and its place on disk. Used again for later groups.
    type Group: Group;

    /// Seals at most one group into `group`; `None` if nothing can be cut.
    ///
    /// # Errors
    /// Poison the log.
    fn seal(&mut self, group: &mut Self::Group, order: Order) -> Result<Option<Cut>>;
}

/// A sealed group.
pub trait Group: Send {
    /// Writes it; durable when it returns. Beside other groups, and without the lead.
    ///
    /// # Errors
    /// Poison the log.
    fn write(&mut self) -> Result<()>;
}

/// What a leader is to seal.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The group's number, if there is anything to seal.
    pub number: GroupNo,
    /// The cut of the group before.
    pub sealed: Lsn,
    /// The newest group known to be durable together with all before it.
    pub acked: GroupNo,
    /// The lane in which a session wants room, and nothing else. If there is none, somebody waits for more than `sealed`, and a
    /// group without data shall be sealed where that raises the cut.
    pub room: Option<usize>,
}

/// What was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// When this group and all before it are durable, every record up to here is. Not below the cut of the group before;
    /// equal to it in the middle of a cut larger than a group.
    pub upto: Lsn,
    /// There is more to cut.
    pub more: bool,
    /// Bytes of the records in the group.
    pub bytes: usize,
}

/// The flush pipeline over a [`Leader`].
#[derive(Debug)]
pub struct Pipeline<L: Leader> {
    durable: CachePadded<AtomicU64>,
    sealed: CachePadded<AtomicU64>,
    /// The lead. Held while its holder looks around, and while a group is cut and gets its place on disk.
    leading: CachePadded<AtomicBool>,
    poisoned: AtomicBool,
    /// Locked by the holder of the lead only, so it never waits.
    leader: Mutex<L>,
    /// By number modulo their count, which is `D`: locked from seal to completion, so it never waits either.
    groups: Box<[Mutex<L::Group>]>,
    window: Window,
    pace: Pace,
    gather: Gather,
    amass: Amass,
    yields: CachePadded<Yields>,
    waiters: Waiters,
    acks: Acks,
    /// Calls that only give back. They come first: who is called by `acks` may wait for what they give.
    releases: Acks,
    /// Calls that wait for the end of the log.
    stops: Acks,
    cause: Mutex<Option<Error>>,
    /// Greatest LSN that a future waits for.
    polled: AtomicU64,
    slots: Arc<Slots>,
    space: EventCount,
    flushers: Flushers,
    /// Present if waits are measured.
    passages: Option<Passages>,
}

impl<L: Leader> Pipeline<L> {
    /// A pipeline whose log is durable up to `durable` and whose next group is `next`. As many groups may be in flight as
    /// there are in `groups`, one to 64.
    pub fn new(
        leader: L,
        groups: Vec<L::Group>,
        durable: Lsn,
        next: GroupNo,
        slots: Arc<Slots>,
        policy: GroupPolicy,
    ) -> Self {
        Self {
            durable: CachePadded::new(AtomicU64::new(durable.0)),
            sealed: CachePadded::new(AtomicU64::new(durable.0)),
            leading: CachePadded::new(AtomicBool::new(false)),
            poisoned: AtomicBool::new(false),
            leader: Mutex::new(LockRank::LogDrain, leader),
            window: Window::new(groups.len(), next),
            flushers: Flushers::new(groups.len()),
            groups: groups.into_iter().map(|group| Mutex::new(LockRank::LogDrain, group)).collect(),
            pace: Pace::new(policy),
            gather: Gather::default(),
            amass: Amass::default(),
            yields: CachePadded::new(Yields::default()),
            waiters: Waiters::new(),
            acks: Acks::new(slots.len()),
            releases: Acks::new(slots.len()),
            stops: Acks::new(1),
            cause: Mutex::new(LockRank::LogWaiters, None),
            polled: AtomicU64::new(0),
            slots,
            space: EventCount::new(),
            passages: None,
        }
    }

    /// Every record with an LSN up to here survives.
    pub fn durable(&self) -> Lsn {
        // ORDERING: Acquire, who sees the stamp sees the group's completion; pairs with the raise in `Window::complete`.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Every record with an LSN up to here is in a sealed group.
    pub fn sealed(&self) -> Lsn {
        // ORDERING: Acquire, pairs with the store in `seal`.
        Lsn(self.sealed.load(Ordering::Acquire))
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
        // ORDERING: Acquire, the cause is set before; pairs with `poison`.
        self.poisoned.load(Ordering::Acquire)
    }

    /// Why the log has stopped: the error that everybody gets.
    #[inline]
    pub fn poison_error(&self) -> Option<Error> {
        if self.is_poisoned() { Some(self.cause()) } else { None }
    }

    /// What one who waits for `lsn` learns: that it is durable, or that the log has stopped before; `None` while neither is
    /// known. A record that was durable before the log stopped is, whoever asks and however late.
    #[inline]
    pub fn answer(&self, lsn: Lsn) -> Option<Result<()>> {
        // The look at what is durable is the second one: by then all that came before the stop has been counted.
        let stopped = self.is_poisoned();
        let is_sealed = mutant("sabotage: a wait for a group ends when it is sealed") && self.sealed() >= lsn;
        if self.durable() >= lsn || is_sealed { Some(Ok(())) } else { stopped.then(|| Err(self.cause())) }
    }

    #[cold]
    fn cause(&self) -> Error {
        let cause = self.cause.lock().clone();
        Error::poisoned(&cause.expect("the cause is set before the flag"))
    }

    /// Stops the log: the first cause stays. Wakes everybody.
    pub fn poison(&self, cause: &Error) {
        self.stop(cause);
        self.hand_off(HandOff::Full(Calls::Elsewhere));
        self.flushers.ring_all();
    }

    /// Stops the log. A full hand-off follows.
    fn stop(&self, cause: &Error) {
        self.cause.lock().get_or_insert_with(|| cause.clone());
        // ORDERING: Release, publishes the cause; the fence in `hand_off` orders it before the look at the waiters.
        self.poisoned.store(true, Ordering::Release);
    }

    /// Waits until `lsn` is durable, leading where the lead is free.
    ///
    /// # Errors
    /// `Poisoned`: the record may or may not survive.
    pub fn force(&self, lsn: Lsn) -> Result<()> {
        self.force_calling(lsn, Calls::Elsewhere)
    }

    /// As [`Self::force`]; `calls` says which thread calls the callbacks that this has made due.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn force_calling(&self, lsn: Lsn, calls: Calls) -> Result<()> {
        self.yield_once(lsn);
        let forced = self.force_while(lsn, calls, |parker, pause| {
            // WAIT: park - the leader's hand-off ends it, or the pause is over.
            match pause {
                None => parker.park(),
                Some(pause) => drop(parker.park_timeout(pause)),
            }
            true
        })?;
        assert!(forced, "a wait without a limit ends durable");
        Ok(())
    }

    /// As [`Self::force`]; `park` waits for a token, no longer than the pause it is given, and says whether to go on.
    /// Returns whether `lsn` is durable. A group that the caller leads is written to its end whatever the time.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn force_while(
        &self,
        lsn: Lsn,
        calls: Calls,
        mut park: impl FnMut(&Parker, Option<Duration>) -> bool,
    ) -> Result<bool> {
        let (mut parker, mut place, mut owes_calls) = (None, None, false);
        if self.sealed() < lsn {
            self.pace.arrive();
        }
        loop {
            if let Some(answer) = self.answer(lsn) {
                return answer.map(|()| true);
            }
            let led = if self.start_for(lsn) == Start::Now {
                self.lead(Caller::Waiter(calls), || self.sealed() < lsn)
            } else {
                Led::Busy
            };
            if matches!(led, Led::Sealed | Led::Unwanted) {
                owes_calls |= led == Led::Sealed && calls == Calls::Here;
                continue;
            }
            let parker = parker.get_or_insert_with(Parker::current);
            let key = self.waiters.add_thread(place, lsn, parker.unparker());
            place = Some(key);
            // ORDERING: first row of the table above.
            fence(Ordering::SeqCst);
            let start = self.start_for(lsn);
            let may_lead = start == Start::Now && led == Led::Busy && !mutant("pipeline: park without may_lead");
            if self.durable() >= lsn || self.is_poisoned() || may_lead {
                self.waiters.leave(key);
                continue;
            }
            let timer = match start {
                // An appender is stopped inside its copy, and nobody is bound to signal its end: somebody tries again.
                Start::Now if led == Led::Nothing => Some(STALL),
                Start::After(left) => Some(left),
                Start::Now | Start::No => None,
            };
            let timer = timer.filter(|_| {
                // One of those who wait is the timer, and it shall know; who takes the timer along hands off.
                let first = self.waiters.is_first(key, self.sealed());
                if !first && led == Led::Nothing && !mutant("pipeline: leaves the timer to a sleeper") {
                    self.waiters.wake(Lsn::ZERO, Some(self.sealed()));
                }
                first
            });
            // What its own group has made due does not wait for the next one.
            if std::mem::take(&mut owes_calls) && self.has_due_calls() {
                self.flushers.ring();
            }
            // WAIT: window - for the stopped appender; park - for all else, see the callers.
            let go_on = park(parker, timer);
            self.waiters.leave(key);
            if !go_on {
                // This thread may be the one that was to lead.
                self.hand_off(HandOff::Lead);
                return Ok(self.durable() >= lsn);
            }
        }
    }

    /// Leads once for a session that wants room in `lane` of the buffer.
    pub fn lead_for_space(&self, lane: usize) -> Led {
        self.lead(Caller::Space(lane), || true)
    }

    /// Whether a group may be begun for somebody who waits for `lsn`.
    fn start_for(&self, lsn: Lsn) -> Start {
        if self.sealed() < lsn { self.start() } else { Start::No }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
