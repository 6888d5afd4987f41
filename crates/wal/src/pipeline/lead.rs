//! Leading: one group from its cut to its completion, and who goes on after.

use super::passage::Passage;
use super::{Group, Leader, Order, Pipeline, Start};
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_sync::Nanos;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};

/// How an attempt to lead ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Led {
    /// Somebody else leads, or as many groups as may be are in flight; who ends that will hand off.
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
pub(super) enum Caller {
    /// A thread that waits for durability, and that keeps the duty itself.
    Waiter(Calls),
    /// A session that wants space in that lane of the buffer.
    Space(usize),
    /// The flusher, which tries again after a pause.
    Flusher,
}

/// Which thread calls the callbacks and wakers that a group has made due. They are the code of users, and a group may be completed deep
/// inside the engine, with locks held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// This one, after it has returned from the log.
    Here,
    /// A flusher.
    Elsewhere,
}

/// Whom the end of a lead or of a group wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOff {
    /// Wakes the satisfied waiters and one that may lead: a waiting thread, the flusher, or a thread that wants space. Due
    /// callbacks are left to a flusher, unless the thread calls them itself once it holds nothing.
    Full(Calls),
    /// Who may lead.
    Lead,
    /// As the kind of caller says, after a lead without a group.
    Nothing(Caller),
}

impl<L: Leader> Pipeline<L> {
    /// Takes the lead if it is free and a group may be sealed, cuts one if that is still `wanted`, gives the lead up, and
    /// writes the group.
    pub(super) fn lead(&self, caller: Caller, wanted: impl FnOnce() -> bool) -> Led {
        // ORDERING: Acquire, the previous leader's state; pairs with the release in `Turn::drop`.
        if self.leading.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Led::Busy;
        }
        let mut turn = Turn { pipeline: self, after: HandOff::Lead, done: false };
        let mut leader = self.leader.try_lock().expect("the holder of the lead alone locks the leader");
        let stopped = || self.is_poisoned() && !mutant("pipeline: lead though poisoned");
        let out = if stopped() || !wanted() {
            Err(Led::Unwanted)
        } else if self.window.is_full(self.groups.len()) {
            // What was read before the lead was taken was a hint.
            Err(Led::Busy)
        } else if self.gather(caller) && stopped() {
            Err(Led::Unwanted)
        } else {
            self.seal(&mut *leader, caller)
        };
        turn.after = match out {
            Err(Led::Nothing) => HandOff::Nothing(caller),
            // It stopped the log.
            Err(Led::Sealed) => HandOff::Full(Calls::Elsewhere),
            _ => HandOff::Lead,
        };
        turn.done = true;
        drop(leader);
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

    /// Seals a group. Under the lead.
    fn seal<'a>(&'a self, leader: &mut L, caller: Caller) -> Result<Flight<'a, L>, Led> {
        let (number, sealed) = (self.window.next(), self.sealed());
        let place = (number.0 % self.groups.len() as u64) as usize;
        let mut group = self.groups[place].try_lock().expect("a group has its place to itself from seal to completion");
        let acked = GroupNo(self.window.head().0 - 1);
        assert!(acked < number, "group {acked} is durable, and {number} is sealed next");
        let room = match caller {
            Caller::Space(lane) => Some(lane),
            Caller::Waiter(_) | Caller::Flusher => None,
        };
        let order = Order { number, sealed, acked, room };
        let came = self.pace.came();
        let cut = match leader.seal(&mut group, order) {
            Ok(Some(cut)) => cut,
            Ok(None) => return Err(Led::Nothing),
            Err(cause) => {
                self.stop(&cause);
                return Err(Led::Sealed);
            }
        };
        assert!(cut.upto >= sealed, "cut {} falls below {sealed}", cut.upto);
        // ORDERING: Release, pairs with `sealed`.
        self.sealed.store(cut.upto.0, Ordering::Release);
        self.window.seal(number);
        let calls = match caller {
            Caller::Waiter(calls) => calls,
            Caller::Space(_) => Calls::Elsewhere,
            Caller::Flusher => Calls::Here,
        };
        let (now, raises) = (self.pace.now(), cut.upto > sealed);
        self.pace.sealed(now, came, cut.more, cut.bytes);
        self.gather.sealed(cut.bytes, raises);
        // Draining made room.
        self.space.notify_all();
        Ok(Flight {
            pipeline: self,
            group: Some(group),
            number,
            cut: cut.upto,
            raises,
            sealed: now,
            calls,
            done: false,
        })
    }

    /// Whether nobody leads.
    pub(super) fn lead_is_free(&self) -> bool {
        // ORDERING: Relaxed, the callers' fences order it.
        !self.leading.load(Ordering::Relaxed)
    }

    /// Whether a group may be sealed for somebody who cannot wait for the policy: the lead is free and the window open.
    pub fn can_lead(&self) -> bool {
        self.lead_is_free() && !self.window.is_full(self.groups.len())
    }

    /// Whether a group may be begun for somebody who waits, now or when it is due.
    pub(super) fn is_open(&self) -> bool {
        self.can_lead() && self.pace.allows(self.window.in_flight())
    }

    /// When a group may be begun for somebody who waits.
    pub(super) fn start(&self) -> Start {
        match self.is_open() {
            true => self.pace.due(self.pace.now(), || self.slots.totals().1),
            false => Start::No,
        }
    }

    /// Wakes whoever can go on: all satisfied waiters, and who can take the lead.
    pub(super) fn hand_off(&self, mode: HandOff) {
        // ORDERING: the waker's side of all rows of the table above.
        fence(Ordering::SeqCst);
        let start = self.is_open();
        if !self.waiters.is_empty() {
            let is_waiter = matches!(mode, HandOff::Nothing(Caller::Waiter(_)));
            let next = (start && !is_waiter).then(|| self.sealed());
            let upto = match mode {
                HandOff::Full(_) if self.is_poisoned() => Lsn(u64::MAX),
                HandOff::Full(_) => self.durable(),
                HandOff::Lead | HandOff::Nothing(_) => Lsn::ZERO,
            };
            if next.is_some() || matches!(mode, HandOff::Full(_)) {
                self.waiters.wake(upto, next);
            }
        }
        let rings = start && !matches!(mode, HandOff::Nothing(Caller::Waiter(_) | Caller::Flusher));
        let rings = rings && self.is_pending() && !mutant("pipeline: leader forgets the flusher");
        if rings && !self.is_amassing() {
            self.flushers.ring();
        }
        // Who waits for space while nothing can be cut looks again by itself: it waits for an append.
        if matches!(mode, HandOff::Full(_)) && self.is_poisoned() {
            self.space.notify_all();
        } else if !matches!(mode, HandOff::Nothing(_)) && self.can_lead() {
            self.space.notify_one();
        }
        if let HandOff::Full(calls) = mode {
            self.releases.call_all(|| self.acknowledged());
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
            // Before the lead is free, so that nobody seals behind it.
            self.pipeline.stop(&unwinding());
            self.after = HandOff::Full(Calls::Elsewhere);
        }
        // ORDERING: Release, the next leader sees this one's state; pairs with the exchange in `lead`.
        self.pipeline.leading.store(false, Ordering::Release);
        self.pipeline.hand_off(self.after);
    }
}

/// A sealed group on its way to disk. Whoever leaves it before its end, unwinding, poisons the log: the group may be
/// anywhere.
struct Flight<'a, L: Leader> {
    pipeline: &'a Pipeline<L>,
    group: Option<foreshore_sync::MutexGuard<'a, L::Group>>,
    number: GroupNo,
    cut: Lsn,
    /// Whether its cut lies above the one before.
    raises: bool,
    sealed: Nanos,
    calls: Calls,
    done: bool,
}

impl<L: Leader> Flight<'_, L> {
    /// Writes the group and completes it, or poisons the log.
    fn write(mut self) {
        let pipeline = self.pipeline;
        let began = pipeline.pace.now();
        let written = self.group.as_mut().expect("present until the end").write();
        // The place is free before the window says so.
        self.group = None;
        match written {
            // Not even in front of the group that failed: the kernel tells of lost pages once, so the success of another
            // sync of the same file means nothing after that.
            Ok(()) if pipeline.is_poisoned() && !mutant("pipeline: acknowledges though poisoned") => self.done = true,
            Ok(()) => {
                let ended = pipeline.pace.now();
                pipeline.pace.written(began, ended);
                if let Some(passages) = &pipeline.passages {
                    let Self { number, cut, sealed, .. } = self;
                    passages.note(Passage { number, cut, sealed, began, ended });
                }
                pipeline.window.complete(self.number, self.cut, &pipeline.durable);
                let (durable, sealed) = (pipeline.durable(), pipeline.sealed());
                assert!(durable <= sealed, "the log is durable up to {durable} and sealed up to {sealed}");
                self.done = true;
                if self.raises {
                    pipeline.note_completion(ended);
                }
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
