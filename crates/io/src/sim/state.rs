//! The running simulated machine: the live image, the record with the media, planned faults, writes in flight.

use super::{
    fault::{Class, FaultKind, OpNo},
    flights::Flights,
    live::Live,
    media::{Ino, Media, Op},
    plan::Plan,
    record::Record,
    rng::Rng,
};
use crate::content::Content;
use crate::names::Names;
use foreshore_sync::{Condvar, LockRank, Mutex, MutexGuard};
use rustix::io::Errno;
use std::{collections::BTreeMap, io, path::Path, time::Duration};

#[derive(Clone)]
pub(super) struct State {
    seed: u64,
    pub(super) live: Live,
    pub(super) record: Record,
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    pub(super) flights: Flights,
    is_off: bool,
}

/// What the device and its page cache do.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    /// Whether syncs succeed and make nothing durable.
    pub(super) lying: bool,
    /// Whether writes that are whole or not at all are possible.
    pub(super) whole_writes: bool,
    /// Whether writes go to a page cache that syncs write back.
    pub(super) buffered: bool,
    /// Whether no read bypasses the page cache.
    pub(super) opaque: bool,
}

/// The state, and the condition for its changes.
pub(super) struct Machine {
    state: Mutex<State>,
    /// Signalled when a write was issued or has landed, or power is lost.
    changed: Condvar,
}

impl Machine {
    pub(super) fn new(state: State) -> Self {
        Self { state: Mutex::new(LockRank::File, state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Runs [`State::operation`] for a class that does not depend on the state.
    pub(super) fn operation<T>(
        &self,
        class: Class,
        run: impl FnOnce(&mut State, Option<FaultKind>) -> io::Result<(T, Op)>,
    ) -> io::Result<T> {
        let mut state = self.lock();
        let result = state.operation(class, run);
        self.notify_power_loss(&state);
        result
    }

    /// Waits for a change for at most `patience`; true if there was none. Under a model checker or a scheduler it waits
    /// without a limit, since those detect a wait that no thread ends.
    pub(super) fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        patience: Duration,
    ) -> (MutexGuard<'a, State>, bool) {
        if cfg!(any(foreshore_loom, foreshore_shuttle, foreshore_sim)) {
            // WAIT: park - until the state has changed.
            (self.changed.wait(state), false)
        } else {
            // WAIT: park - until the state has changed, or the test that uses this has failed.
            self.changed.wait_timeout(state, patience)
        }
    }

    /// Wakes held writes if power is lost.
    pub(super) fn notify_power_loss(&self, state: &State) {
        if state.need_power().is_err() {
            self.notify();
        }
    }

    /// Wakes all that wait for a change.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }
}

/// Returns the error of every call after a power loss.
pub(super) fn off() -> io::Error {
    io::Error::other("the simulated machine has lost power")
}

/// Returns `EIO`.
fn eio() -> io::Error {
    Errno::IO.into()
}

impl State {
    /// Creates a machine that has just started with these names and contents.
    pub(super) fn new(seed: u64, mut names: Names<Ino>, files: BTreeMap<Ino, Content>) -> Self {
        names.unlock_all();
        let record = Record::new(Media::new(names.clone(), files.clone()));
        let (plan, settings, flights) = (Plan::default(), Settings::default(), Flights::default());
        Self { seed, live: Live::new(names, files), record, plan, settings, flights, is_off: false }
    }

    /// Returns a copy of the machine with no program on it: no handles, no locks.
    pub(super) fn fork(&self) -> Self {
        Self { live: self.live.fork(), flights: Flights::default(), ..self.clone() }
    }

    pub(super) fn need_power(&self) -> io::Result<()> {
        if self.is_off { Err(off()) } else { Ok(()) }
    }

    /// Loses power: every later call fails.
    pub(super) const fn power_off(&mut self) {
        self.is_off = true;
    }

    /// Numbers and runs one operation. `run` gets the fault that strikes it and returns what it did.
    pub(super) fn operation<T>(
        &mut self,
        class: Class,
        run: impl FnOnce(&mut Self, Option<FaultKind>) -> io::Result<(T, Op)>,
    ) -> io::Result<T> {
        self.need_power()?;
        let number = self.record.ops();
        let fault = self.plan.strike(number, class);
        let result = run(self, fault);
        if self.record.ops() != number {
            // `refuse` has noted the operation already.
            return result.map(|(value, _)| value);
        }
        match result {
            Ok((_, op)) if fault == Some(FaultKind::Crash) => {
                self.record.note_in_flight(op);
                self.is_off = true;
                Err(off())
            }
            Ok((value, op)) => {
                self.record.note(op);
                Ok(value)
            }
            Err(e) => {
                self.record.note(Op::Nothing);
                self.is_off = fault == Some(FaultKind::Crash);
                Err(e)
            }
        }
    }

    /// Ends the operation with the error of `fault`, if it has one. `failed` is what an `EIO` leaves.
    pub(super) fn refuse(&mut self, fault: Option<FaultKind>, failed: Op) -> io::Result<()> {
        let (left, error) = match fault {
            Some(FaultKind::Eio | FaultKind::LateEio) => (failed, eio()),
            Some(FaultKind::LateEnospc) => (failed, Errno::NOSPC.into()),
            Some(FaultKind::Enospc) => (Op::Nothing, Errno::NOSPC.into()),
            Some(FaultKind::Eintr) => (Op::Nothing, Errno::INTR.into()),
            Some(FaultKind::ShortWrite(_) | FaultKind::Crash) | None => return Ok(()),
        };
        self.record.note(left);
        Err(error)
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<Ino> {
        self.need_power()?;
        let ino = self.live.names().file(path)?;
        self.live.hold(ino);
        Ok(ino)
    }

    /// Shuffles `items` by the seed and the operations so far.
    pub(super) fn shuffle<T>(&self, items: &mut [T]) {
        let mut rng = Rng::new(&[self.seed, self.record.ops()]);
        for last in (1..items.len()).rev() {
            items.swap(last, rng.below(last as u64 + 1) as usize);
        }
    }

    /// Decides which bytes of failed write-backs are on the medium, and drops about half of the cache.
    pub(super) fn drop_cache(&mut self, ino: Ino) {
        let mut rng = self.resolve_stranded(ino);
        let medium = self.medium(ino);
        self.live.content(ino).refresh(&medium, |_| rng.chance(0.5));
    }

    /// Does the same for every file, and drops all of the cache.
    pub(super) fn empty_cache(&mut self) {
        for ino in self.live.inos() {
            self.resolve_stranded(ino);
            let medium = self.medium(ino);
            self.live.content(ino).refresh(&medium, |_| true);
        }
    }

    /// Decides which bytes of failed write-backs are on the medium. Returns the numbers that it has drawn from.
    fn resolve_stranded(&mut self, ino: Ino) -> Rng {
        let mut rng = Rng::new(&[self.seed, self.record.ops(), ino]);
        if let Some(landed) = self.record.media().resolve_stranded(ino, &mut rng) {
            self.record.note(Op::ResolveStranded(ino, landed));
        }
        rng
    }

    /// Returns what a read past the cache shows, after the cache has written back.
    fn medium(&self, ino: Ino) -> Content {
        let mut medium = self.record.media().written(ino);
        medium.grow(self.live.len_of(ino));
        medium
    }

    /// Counts a read and does it, past the cache or not.
    pub(super) fn read(&mut self, ino: Ino, buf: &mut [u8], offset: u64, past_cache: bool) -> io::Result<usize> {
        self.need_power()?;
        if self.plan.strike_read() {
            return Err(eio());
        }
        Ok(if past_cache { self.medium(ino).read(buf, offset) } else { self.live.content(ino).read(buf, offset) })
    }

    /// Lets a flight land, with `fault` if it has none of its own. After a power loss nothing lands.
    pub(super) fn land(&mut self, no: OpNo, fault: Option<FaultKind>) {
        if self.need_power().is_err() {
            return;
        }
        let held = self.flights.find(no);
        let (effect, len, own_fault) = (held.effect.clone(), held.flight.len, held.fault);
        let landed = |state: &mut Self, n: usize| {
            if n == 0 {
                return Op::Nothing;
            }
            let Some(effect) = effect.part(0, n) else { return Op::Nothing };
            if let Some(ino) = effect.file() {
                effect.apply(state.live.content(ino));
            }
            if state.settings.lying { Op::Effect(effect) } else { Op::Durable(effect) }
        };
        let (op, result) = match own_fault.or(fault) {
            Some(FaultKind::Eio) => (Op::FailedWrite(effect.clone()), Err(Errno::IO)),
            Some(FaultKind::Enospc) => (Op::Nothing, Err(Errno::NOSPC)),
            Some(FaultKind::Eintr) => (Op::Nothing, Err(Errno::INTR)),
            Some(FaultKind::ShortWrite(n)) => (landed(self, n.min(len)), Ok(n.min(len))),
            Some(FaultKind::LateEio | FaultKind::LateEnospc | FaultKind::Crash) | None => (landed(self, len), Ok(len)),
        };
        self.record.note(Op::Land(no, Box::new(op)));
        self.flights.find(no).result = Some(result);
    }
}
