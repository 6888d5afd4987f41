//! From appended to durable: who leads, who waits, who wakes whom.
//!
//! One group is in flight at a time. Whoever takes the *lead* cuts a group and writes it, then gives the lead up and hands
//! off. Threads that wait for durability lead when the lead is free and park otherwise; pipelined commits only leave their
//! LSN in their session's slot, and the parked flusher is the waiter of last resort for them.
//!
//! Every wait and its waker form a store-buffering pair with a `SeqCst` fence on both sides:
//!
//! | waiter: writes, fences, then reads | waker: writes, fences, then reads |
//! |---|---|
//! | registers; reads durable, poisoned, and whether it may lead | raises durable, frees the lead; reads the waiters |
//! | space waiter: prepares; reads free credit, poisoned, lead | gives credit, frees the lead; reads the event count |
//! | `flush_soon`: stores the LSN in its slot; reads the lead | frees the lead; reads the slots |
//!
//! Re-reading `durable` alone is not enough: a leader may finish between a waiter's failed attempt to lead and its
//! registration, and then nobody is left to lead (the lost wake-up of the plain leader/follower protocol).
//!
//! A wake-up is a hint. Who is woken to lead and goes away instead hands off again. Leadership is offered to parked
//! threads and to the flusher, never to a future: nobody can make an executor poll.

mod waiters;

pub use waiters::Key;

use crate::slots::Slots;
use foreshore_base::{Error, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use foreshore_sync::{CachePadded, EventCount, LockRank, Mutex, NextWake, Parker, Signal};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use waiters::Waiters;

/// How long a leader pauses when an appender below its target is stopped in its copy.
const STALL: Duration = Duration::from_micros(50);

/// What the holder of the lead does. Not shared: the pipeline calls it for one leader at a time.
pub trait Leader: Send {
    /// Seals at most one group and returns its cut, greater than `sealed`; `None` if nothing can be cut.
    ///
    /// # Errors
    /// Poison the log.
    fn seal(&mut self, sealed: Lsn) -> Result<Option<Lsn>>;

    /// Writes the sealed group; durable when it returns.
    ///
    /// # Errors
    /// Poison the log.
    fn write(&mut self) -> Result<()>;
}

/// How an attempt to lead ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Led {
    /// Somebody else leads, and will hand off.
    Busy,
    /// The caller's wish was fulfilled before it had the lead, or the log is poisoned.
    Unwanted,
    /// Nothing could be cut.
    Nothing,
    /// A group was sealed and written, or the attempt poisoned the log.
    Sealed,
}

/// Who leads. A lead that could cut nothing has changed nothing, so its end wakes only those who would take the duty to try
/// again off the caller; whoever wakes its own kind, or itself, would spin until the stopped appender goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// A thread that waits for durability, and that keeps the duty itself.
    Waiter,
    /// A thread that wants ring space.
    Space,
    /// The flusher, which tries again after a pause.
    Flusher,
}

/// Whom the end of a lead wakes to lead next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandOff {
    /// A waiting thread, the flusher, a thread that wants space.
    Full,
    /// As the kind of caller says, after a lead without a group.
    Nothing(Caller),
}

/// The flush pipeline over a [`Leader`].
#[derive(Debug)]
pub struct Pipeline<L> {
    durable: CachePadded<AtomicU64>,
    sealed: CachePadded<AtomicU64>,
    /// The lead. Held from the cut to the completion of a group.
    leading: CachePadded<AtomicBool>,
    poisoned: AtomicBool,
    /// Locked by the holder of the lead only, so it never waits.
    leader: Mutex<L>,
    waiters: Waiters,
    cause: Mutex<Option<Error>>,
    /// Greatest LSN that a future waits for.
    polled: AtomicU64,
    slots: Arc<Slots>,
    space: EventCount,
    flusher: Signal,
}

impl<L: Leader> Pipeline<L> {
    /// A pipeline whose log is durable up to `durable`.
    pub fn new(leader: L, durable: Lsn, slots: Arc<Slots>) -> Self {
        Self {
            durable: CachePadded::new(AtomicU64::new(durable.0)),
            sealed: CachePadded::new(AtomicU64::new(durable.0)),
            leading: CachePadded::new(AtomicBool::new(false)),
            poisoned: AtomicBool::new(false),
            leader: Mutex::new(LockRank::LogDrain, leader),
            waiters: Waiters::new(),
            cause: Mutex::new(LockRank::LogWaiters, None),
            polled: AtomicU64::new(0),
            slots,
            space: EventCount::new(),
            flusher: Signal::new(),
        }
    }

    /// Every record with an LSN up to here survives.
    pub fn durable(&self) -> Lsn {
        // ORDERING: Acquire, who sees the stamp sees the group's completion; pairs with the raise in `lead`.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Every record with an LSN up to here is in a sealed group.
    pub fn sealed(&self) -> Lsn {
        // ORDERING: Acquire, pairs with the store in `lead`.
        Lsn(self.sealed.load(Ordering::Acquire))
    }

    /// Whether the log has stopped.
    pub fn is_poisoned(&self) -> bool {
        // ORDERING: Acquire, the cause is set before; pairs with `poison`.
        self.poisoned.load(Ordering::Acquire)
    }

    /// Why the log has stopped: the error that everybody gets.
    pub fn poison_error(&self) -> Option<Error> {
        if !self.is_poisoned() {
            return None;
        }
        let cause = self.cause.lock().clone();
        Some(Error::poisoned(&cause.expect("the cause is set before the flag")))
    }

    /// Stops the log: the first cause stays. Wakes everybody.
    pub fn poison(&self, cause: &Error) {
        self.cause.lock().get_or_insert_with(|| cause.clone());
        // ORDERING: Release, publishes the cause; the fence in `hand_off` orders it before the look at the waiters.
        self.poisoned.store(true, Ordering::Release);
        self.hand_off(HandOff::Full);
        self.flusher.notify();
    }

    /// The bell of the flusher.
    pub fn flusher_signal(&self) -> &Signal {
        &self.flusher
    }

    /// Where threads wait for ring space.
    pub fn space(&self) -> &EventCount {
        &self.space
    }

    /// Waits until `lsn` is durable, leading where the lead is free.
    ///
    /// # Errors
    /// `Poisoned`: the record may or may not survive.
    pub fn force(&self, lsn: Lsn) -> Result<()> {
        let forced = self.force_while(lsn, |parker, pause| {
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
    pub fn force_while(&self, lsn: Lsn, mut park: impl FnMut(&Parker, Option<Duration>) -> bool) -> Result<bool> {
        let mut parker = None;
        loop {
            if self.durable() >= lsn {
                return Ok(true);
            }
            if let Some(error) = self.poison_error() {
                return Err(error);
            }
            let go_on = match self.lead(Caller::Waiter, || self.sealed() < lsn) {
                Led::Sealed | Led::Unwanted => continue,
                // WAIT: window - an appender is stopped inside its copy; nobody is bound to signal its end, and this thread
                // alone keeps the duty to lead.
                Led::Nothing => park(parker.get_or_insert_with(Parker::current), Some(STALL)),
                Led::Busy => {
                    let parker = parker.get_or_insert_with(Parker::current);
                    let key = self.waiters.add_thread(lsn, parker.unparker());
                    // ORDERING: first row of the table above.
                    fence(Ordering::SeqCst);
                    let may_lead = self.may_lead(lsn) && !mutant("pipeline: park without may_lead");
                    if self.durable() >= lsn || self.is_poisoned() || may_lead {
                        self.waiters.remove_thread(key);
                        continue;
                    }
                    let go_on = park(parker, None);
                    self.waiters.remove_thread(key);
                    go_on
                }
            };
            if !go_on {
                // This thread may be the one that was to lead.
                self.hand_off(HandOff::Full);
                return Ok(self.durable() >= lsn);
            }
        }
    }

    /// Leads once for somebody who wants ring space.
    pub fn lead_for_space(&self) -> Led {
        self.lead(Caller::Space, || true)
    }

    /// Whether nobody leads.
    pub fn lead_is_free(&self) -> bool {
        // ORDERING: Relaxed, the callers' fences order it.
        !self.leading.load(Ordering::Relaxed)
    }

    /// Asks for `lsn` to be flushed without waiting for it. `slot` is the caller's own.
    pub fn flush_soon(&self, slot: usize, lsn: Lsn) {
        self.slots.get(slot).want(lsn);
        self.ring_flusher();
    }

    /// Wakes the flusher unless a leader will do so at the end of its group.
    fn ring_flusher(&self) {
        if !mutant("pipeline: flush_soon without fence") {
            // ORDERING: third row of the table above.
            fence(Ordering::SeqCst);
        }
        if self.lead_is_free() {
            self.flusher.notify();
        }
    }

    /// One step of the flusher: one group if a pipelined commit waits for one.
    pub fn flush_step(&self) -> NextWake {
        // ORDERING: pairs with the fence in `ring_flusher`, as the signal does where there is one.
        fence(Ordering::SeqCst);
        if self.is_poisoned() || !self.is_pending() {
            return NextWake::OnSignal;
        }
        match self.lead(Caller::Flusher, || self.is_pending()) {
            // The holder of the lead rings if something is left.
            Led::Busy => NextWake::OnSignal,
            Led::Nothing => NextWake::After(STALL),
            Led::Sealed | Led::Unwanted => NextWake::Now,
        }
    }

    /// Whether somebody who does not lead waits for what is not sealed. Behind a `SeqCst` fence.
    fn is_pending(&self) -> bool {
        let sealed = self.sealed();
        // ORDERING: Relaxed, ordered by the caller's fence and the one in `ring_flusher`.
        self.polled.load(Ordering::Relaxed) > sealed.0 || self.slots.wants_beyond(sealed)
    }

    fn may_lead(&self, lsn: Lsn) -> bool {
        self.sealed() < lsn && self.lead_is_free()
    }

    /// Takes the lead if it is free and cuts and writes one group, if that is still `wanted`.
    fn lead(&self, caller: Caller, wanted: impl FnOnce() -> bool) -> Led {
        // ORDERING: Acquire, the previous leader's state; pairs with the release in `Turn::drop`.
        if self.leading.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Led::Busy;
        }
        let mut turn = Turn { pipeline: self, after: HandOff::Full, done: false };
        let mut leader = self.leader.try_lock().expect("the holder of the lead alone locks the leader");
        let stopped = self.is_poisoned() && !mutant("pipeline: lead though poisoned");
        let led = if stopped || !wanted() {
            Led::Unwanted
        } else {
            match self.seal_and_write(&mut *leader) {
                Ok(true) => Led::Sealed,
                Ok(false) => Led::Nothing,
                Err(cause) => {
                    self.poison(&cause);
                    Led::Sealed
                }
            }
        };
        if led == Led::Nothing {
            turn.after = HandOff::Nothing(caller);
        }
        turn.done = true;
        drop(leader);
        led
    }

    fn seal_and_write(&self, leader: &mut L) -> Result<bool> {
        let sealed = self.sealed();
        let Some(cut) = leader.seal(sealed)? else { return Ok(false) };
        assert!(cut >= sealed, "cut {cut} falls below {sealed}");
        // ORDERING: Release, pairs with `sealed`.
        self.sealed.store(cut.0, Ordering::Release);
        // Draining gave credit back.
        self.space.notify_all();
        leader.write()?;
        // ORDERING: Release, the group is durable before its stamp shows; pairs with `durable`. Never lowered.
        let before = self.durable.fetch_max(cut.0, Ordering::Release);
        assert_eq!(before, sealed.0, "a group was acknowledged out of turn");
        Ok(true)
    }

    /// Wakes whoever can go on: all satisfied waiters, and who can take the lead.
    fn hand_off(&self, mode: HandOff) {
        // ORDERING: the waker's side of all rows of the table above.
        fence(Ordering::SeqCst);
        if !self.waiters.is_empty() {
            let upto = if self.is_poisoned() { Lsn(u64::MAX) } else { self.durable() };
            let next = (mode != HandOff::Nothing(Caller::Waiter) && self.lead_is_free()).then(|| self.sealed());
            self.waiters.wake(upto, next);
        }
        let rings = matches!(mode, HandOff::Full | HandOff::Nothing(Caller::Space)) && self.lead_is_free();
        if rings && self.is_pending() && !mutant("pipeline: leader forgets the flusher") {
            self.flusher.notify();
        }
        // Who waits for space while nothing can be cut looks again by itself: it waits for an append.
        if mode == HandOff::Full && self.lead_is_free() {
            self.space.notify_one();
        }
    }

    /// Registers a future's waker, in place of the one under `old`; `None` if there is nothing to wait for.
    pub fn register_waker(&self, lsn: Lsn, old: Option<Key>, waker: &Waker) -> Option<Key> {
        if let Some(old) = old {
            self.waiters.remove_future(old);
        }
        let key = self.waiters.add_future(lsn, waker.clone());
        // ORDERING: Relaxed, ordered by the fence in `ring_flusher`.
        self.polled.fetch_max(lsn.0, Ordering::Relaxed);
        if !mutant("pipeline: future does not ring") {
            self.ring_flusher();
        }
        // ORDERING: first row of the table above.
        fence(Ordering::SeqCst);
        if self.durable() >= lsn || self.is_poisoned() {
            self.waiters.remove_future(key);
            return None;
        }
        Some(key)
    }

    /// Takes a future's waker out, if it is still there.
    pub fn deregister_waker(&self, key: Key) {
        self.waiters.remove_future(key);
    }
}

/// The lead, given up on drop. A leader that unwinds poisons the log: its group may be anywhere.
struct Turn<'a, L: Leader> {
    pipeline: &'a Pipeline<L>,
    after: HandOff,
    done: bool,
}

impl<L: Leader> Drop for Turn<'_, L> {
    fn drop(&mut self) {
        if !self.done {
            // Before the lead is free, so that nobody writes behind a group in an unknown state.
            let source = std::io::Error::other("the leader of a log group panicked");
            self.pipeline.poison(&Error::io("write", "log", source));
        }
        // ORDERING: Release, the next leader sees this one's state; pairs with the exchange in `lead`.
        self.pipeline.leading.store(false, Ordering::Release);
        self.pipeline.hand_off(self.after);
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
