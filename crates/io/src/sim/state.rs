//! The running simulated machine: live names and contents, counters, planned faults, the record.

use super::{
    fault::{Class, Fault, FaultKind, OpNo},
    flights::Flights,
    media::{Ino, Media, Op},
    rng::Rng,
};
use crate::content::Content;
use crate::names::Names;
use foreshore_sync::{Condvar, LockRank, Mutex, MutexGuard};
use std::{collections::BTreeMap, io, path::Path, time::Duration};

/// The record: the media when recording began, and every operation since.
#[derive(Clone)]
pub(super) struct Journal {
    base: Media,
    first: OpNo,
    ops: Vec<Op>,
}

#[derive(Clone)]
pub(super) struct State {
    seed: u64,
    pub(super) names: Names<Ino>,
    pub(super) files: BTreeMap<Ino, Content>,
    /// Counts of open handles by file. A file without names and handles is removed.
    handles: BTreeMap<Ino, usize>,
    next_ino: Ino,
    pub(super) media: Media,
    pub(super) journal: Option<Journal>,
    pub(super) ops: OpNo,
    pub(super) reads: u64,
    /// The operations that `ENOSPC` could have struck.
    pub(super) space_ops: Vec<OpNo>,
    pub(super) faults: Vec<Fault>,
    pub(super) read_faults: Vec<(u64, bool)>,
    pub(super) faults_met: u64,
    pub(super) lying: bool,
    /// Whether writes that are whole or not at all are possible.
    pub(super) whole_writes: bool,
    /// Whether writes go to a page cache that syncs write back.
    pub(super) buffered: bool,
    /// Whether no read bypasses the page cache.
    pub(super) opaque: bool,
    /// Write-back errors by file.
    pub(super) errors: BTreeMap<Ino, Errors>,
    /// The operations that synced a file or a directory.
    pub(super) sync_ops: Vec<OpNo>,
    pub(super) crashed: bool,
    pub(super) flights: Flights,
}

/// Counts of the write-back errors of a file. A handle that has seen fewer than `met` reports one at its next sync.
#[derive(Clone, Copy, Default)]
pub(super) struct Errors {
    met: u64,
    reported: u64,
}

/// The state, and the condition for its changes.
pub(super) struct Machine {
    state: Mutex<State>,
    /// Signalled when a write was issued or has landed, or power is lost.
    pub(super) changed: Condvar,
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
        if state.crashed {
            self.changed.notify_all();
        }
    }
}

/// Returns the error of every call after a power loss.
pub(super) fn off() -> io::Error {
    io::Error::other("the simulated machine has lost power")
}

/// Returns `EIO`.
fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

impl State {
    /// Creates a machine that has just started with these names and contents.
    pub(super) fn new(seed: u64, mut names: Names<Ino>, files: BTreeMap<Ino, Content>) -> Self {
        names.unlock_all();
        let next_ino = files.keys().next_back().map_or(0, |last| last + 1);
        let media = Media::new(names.clone(), files.clone());
        let journal = Some(Journal { base: media.clone(), first: 0, ops: Vec::new() });
        Self {
            seed,
            names,
            files,
            handles: BTreeMap::new(),
            next_ino,
            media,
            journal,
            ops: 0,
            reads: 0,
            space_ops: Vec::new(),
            faults: Vec::new(),
            read_faults: Vec::new(),
            faults_met: 0,
            lying: false,
            whole_writes: false,
            buffered: false,
            opaque: false,
            errors: BTreeMap::new(),
            sync_ops: Vec::new(),
            crashed: false,
            flights: Flights::default(),
        }
    }

    /// Returns a copy of the machine with no program on it: no handles, no locks.
    pub(super) fn fork(&self) -> Self {
        let mut fork = self.clone();
        fork.names.unlock_all();
        fork.handles.clear();
        fork.flights = Flights::default();
        let named: Vec<_> = fork.names.files().collect();
        fork.files.retain(|ino, _| named.contains(ino));
        fork
    }

    pub(super) fn need_power(&self) -> io::Result<()> {
        if self.crashed { Err(off()) } else { Ok(()) }
    }

    /// Numbers and runs one operation. `run` gets the fault that strikes it and returns what it did.
    pub(super) fn operation<T>(
        &mut self,
        class: Class,
        run: impl FnOnce(&mut Self, Option<FaultKind>) -> io::Result<(T, Op)>,
    ) -> io::Result<T> {
        self.need_power()?;
        let number = self.ops;
        if (Fault { at: number, kind: FaultKind::Enospc, sticky: false }).strikes(number, class) {
            self.space_ops.push(number);
        }
        if class == Class::Sync {
            self.sync_ops.push(number);
        }
        let fault = self.faults.iter().find(|fault| fault.strikes(number, class)).map(|fault| fault.kind);
        self.faults_met += u64::from(fault.is_some());
        let result = run(self, fault);
        if self.ops != number {
            // `refuse` has noted the operation already.
            return result.map(|(value, _)| value);
        }
        match result {
            Ok((_, op)) if fault == Some(FaultKind::Crash) => {
                if let Some(effect) = op.effect() {
                    self.media.push(effect.clone());
                }
                self.record(op);
                self.crashed = true;
                Err(off())
            }
            Ok((value, op)) => {
                self.note(op);
                Ok(value)
            }
            Err(e) => {
                self.note(Op::Nothing);
                self.crashed = fault == Some(FaultKind::Crash);
                Err(e)
            }
        }
    }

    /// Ends the operation with the error of `fault`, if it has one. `failed` is what an `EIO` leaves.
    pub(super) fn refuse(&mut self, fault: Option<FaultKind>, failed: Op) -> io::Result<()> {
        let (left, error) = match fault {
            Some(FaultKind::Eio | FaultKind::LateEio) => (failed, eio()),
            Some(FaultKind::LateEnospc) => (failed, rustix::io::Errno::NOSPC.into()),
            Some(FaultKind::Enospc) => (Op::Nothing, rustix::io::Errno::NOSPC.into()),
            Some(FaultKind::Eintr) => (Op::Nothing, rustix::io::Errno::INTR.into()),
            Some(FaultKind::ShortWrite(_) | FaultKind::Crash) | None => return Ok(()),
        };
        self.note(left);
        Err(error)
    }

    /// Records a completed operation and applies it to the media.
    pub(super) fn note(&mut self, op: Op) {
        self.media.complete(op.clone());
        self.record(op);
    }

    fn record(&mut self, op: Op) {
        if let Some(journal) = &mut self.journal {
            journal.ops.push(op);
        }
        self.ops += 1;
    }

    /// Starts the record anew, from the media as they are now.
    pub(super) fn restart_record(&mut self) {
        if let Some(journal) = &mut self.journal {
            *journal = Journal { base: self.media.clone(), first: self.ops, ops: Vec::new() };
        }
    }

    /// Returns the record: the media before it, the number of its first operation, and its operations. Without a
    /// record, returns the present state and no operations.
    pub(super) fn recorded(&self) -> (Media, OpNo, Vec<Op>) {
        match &self.journal {
            Some(journal) => (journal.base.clone(), journal.first, journal.ops.clone()),
            None => (self.media.clone(), self.ops, Vec::new()),
        }
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Ino> {
        let ino = self.next_ino;
        self.names.create(path, ino)?;
        self.next_ino += 1;
        self.files.insert(ino, Content::default());
        Ok(ino)
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<Ino> {
        self.need_power()?;
        let ino = self.names.file(path)?;
        self.hold(ino);
        Ok(ino)
    }

    /// Counts a handle.
    pub(super) fn hold(&mut self, ino: Ino) {
        *self.handles.entry(ino).or_default() += 1;
    }

    /// Releases a handle.
    pub(super) fn release(&mut self, ino: Ino) {
        let handles = self.handles.get_mut(&ino).expect("an open file has a handle");
        *handles -= 1;
        if *handles == 0 {
            self.handles.remove(&ino);
            self.reap(ino);
        }
    }

    /// Removes a file that has neither name nor handle.
    pub(super) fn reap(&mut self, ino: Ino) {
        if !self.handles.contains_key(&ino) && !self.names.files().any(|named| named == ino) {
            self.files.remove(&ino);
            self.errors.remove(&ino);
        }
    }

    /// Returns the live content of an open file.
    pub(super) fn content(&mut self, ino: Ino) -> &mut Content {
        self.files.get_mut(&ino).expect("an open file has content")
    }

    /// Shuffles `items` by the seed and the operations so far.
    pub(super) fn shuffle<T>(&self, items: &mut [T]) {
        let mut rng = Rng::new(&[self.seed, self.ops]);
        for last in (1..items.len()).rev() {
            items.swap(last, rng.below(last as u64 + 1) as usize);
        }
    }

    /// Returns the error count that a new handle has seen. An error that no handle has reported counts as unseen, so
    /// the new handle reports it, too (`errseq_sample`).
    pub(super) fn sample_errors(&self, ino: Ino) -> u64 {
        self.errors.get(&ino).map_or(0, |errors| errors.reported)
    }

    /// Notes that the write-back of a file has failed.
    pub(super) fn add_error(&mut self, ino: Ino) {
        self.errors.entry(ino).or_default().met += 1;
    }

    /// Returns whether a file has an error that a handle has not `seen`, and marks it as seen.
    pub(super) fn report_error(&mut self, ino: Ino, seen: &mut u64) -> bool {
        let Some(errors) = self.errors.get_mut(&ino) else { return false };
        let is_new = *seen < errors.met;
        (*seen, errors.reported) = (errors.met, errors.met);
        is_new
    }

    /// Decides which bytes of failed write-backs are on the medium, and drops about half of the cache.
    pub(super) fn drop_cache(&mut self, ino: Ino) {
        let mut rng = self.resolve_stranded(ino);
        let medium = self.medium(ino);
        self.content(ino).refresh(&medium, |_| rng.chance(0.5));
    }

    /// Does the same for every file, and drops all of the cache.
    pub(super) fn empty_cache(&mut self) {
        let inos: Vec<_> = self.files.keys().copied().collect();
        for ino in inos {
            self.resolve_stranded(ino);
            let medium = self.medium(ino);
            self.content(ino).refresh(&medium, |_| true);
        }
    }

    /// Decides which bytes of failed write-backs are on the medium. Returns the numbers that it has drawn from.
    fn resolve_stranded(&mut self, ino: Ino) -> Rng {
        let mut rng = Rng::new(&[self.seed, self.ops, ino]);
        if let Some(landed) = self.media.resolve_stranded(ino, &mut rng) {
            self.note(Op::ResolveStranded(ino, landed));
        }
        rng
    }

    /// Returns what a read past the cache shows, after the cache has written back.
    fn medium(&self, ino: Ino) -> Content {
        let mut medium = self.media.written(ino);
        medium.grow(self.files.get(&ino).map_or(0, Content::len));
        medium
    }

    /// Counts a read and does it, past the cache or not.
    pub(super) fn read(&mut self, ino: Ino, buf: &mut [u8], offset: u64, past_cache: bool) -> io::Result<usize> {
        self.need_power()?;
        let number = self.reads;
        self.reads += 1;
        if self.read_faults.iter().any(|&(at, sticky)| number == at || sticky && number > at) {
            self.faults_met += 1;
            return Err(eio());
        }
        Ok(if past_cache { self.medium(ino).read(buf, offset) } else { self.content(ino).read(buf, offset) })
    }
}
