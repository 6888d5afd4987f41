//! The segments of an open log: prepared ahead of need, filled in order, recycled when their groups are no longer
//! needed.
//!
//! The thread that has locked `control` prepares or recycles a segment, or moves the control slots; no two do so at a
//! time. A log without files has no control file and no segments, and its budget is never short.

use super::budget::Budget;
use super::control::Control;
use super::files::Files;
use super::home::Home;
use super::list::{List, Ready, Spare};
use super::live::Live;
use crate::format::FIRST_GROUP;
use crate::options::LogOptions;
use crate::returns::Returns;
use foreshore_base::{Error, GroupNo, Result, Uuid};
use foreshore_io::Mem;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{LockRank, Mutex, MutexGuard, Nanos, NextWake, Signal, pause, wall_clock};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the preparer sleeps after a failure, unless it is signalled.
const RETRY: Duration = Duration::from_millis(100);

/// A function that takes the blocks granted to idle sessions for compensations, and returns how many.
type TakeIdle = Box<dyn Fn() -> u64 + Send + Sync>;

/// The segments of an open log.
pub(crate) struct Segments {
    budget: Budget,
    files: Files,
    /// The least segments to keep ready.
    ready_segments: usize,
    /// The control file; `None` in a log without files.
    control: Mutex<Option<Control>>,
    list: Mutex<List>,
    /// Whether the last attempt to prepare a segment found the disk full.
    is_full: AtomicBool,
    preparer: Signal,
    returns: Returns,
    idle: OnceLock<TakeIdle>,
    /// The clock that groups are stamped with, if it is not that of the system.
    clock: OnceLock<fn() -> Nanos>,
    /// Notified when a segment is complete.
    rolled: Signal,
}

impl Segments {
    /// Creates the state of the segments in `list` of the log in `home`.
    pub(crate) fn new(home: Home, options: &LogOptions, control: Control, list: List) -> Self {
        let left = list.live.back().map_or(0, |live| live.size - live.end);
        let ready: u64 = list.ready.iter().map(|ready| ready.size - FIRST_GROUP).sum();
        Self::with(home, options, Some(control), list, Budget::new(options, ready, left))
    }

    /// Creates the state of a log without files.
    pub(crate) fn none(options: &LogOptions) -> Self {
        let home = Home { fs: Arc::new(Mem::null()), dir: PathBuf::new(), uuid: Uuid([0; 16]) };
        Self::with(home, options, None, List::default(), Budget::new(options, 0, u64::MAX / 2))
    }

    fn with(home: Home, options: &LogOptions, control: Option<Control>, list: List, budget: Budget) -> Self {
        Self {
            budget,
            files: Files::new(home, options.segment_bytes),
            ready_segments: options.ready_segments,
            control: Mutex::new(LockRank::LogCtl, control),
            list: Mutex::new(LockRank::LogSegments, list),
            is_full: AtomicBool::new(false),
            preparer: Signal::new(),
            returns: Returns::default(),
            idle: OnceLock::new(),
            clock: OnceLock::new(),
            rolled: Signal::new(),
        }
    }

    /// Returns the directory of the log.
    pub(crate) fn home(&self) -> &Home {
        &self.files.home
    }

    /// Returns the time since 1970.
    pub(crate) fn wall_clock(&self) -> Nanos {
        self.clock.get().map_or_else(wall_clock, |clock| clock())
    }

    /// Sets the clock of [`wall_clock`](Self::wall_clock). Only the first call has an effect.
    pub(crate) fn stamp_by(&self, clock: fn() -> Nanos) {
        let _ = self.clock.set(clock);
    }

    /// Returns the signal that a segment is complete.
    pub(crate) const fn rolled_signal(&self) -> &Signal {
        &self.rolled
    }

    /// Locks the list of the files.
    pub(crate) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }

    /// Returns the signal of the preparer.
    pub(crate) fn preparer_signal(&self) -> &Signal {
        &self.preparer
    }

    /// Returns the waits for space that other sessions return.
    pub(crate) fn returns(&self) -> &Returns {
        &self.returns
    }

    /// Sets the function that takes granted blocks from idle sessions. Only the first call has an effect.
    pub(crate) fn on_shortage(&self, take: TakeIdle) {
        let _ = self.idle.set(take);
    }

    /// Takes the granted blocks of idle sessions.
    pub(crate) fn take_from_idle(&self) {
        if let Some(take) = self.idle.get() {
            self.take_back(take());
        }
    }

    /// Whether less space is prepared than is set aside, or a session waits for some.
    pub(crate) fn is_wanted(&self) -> bool {
        self.budget.is_short() || self.returns.is_waited_for()
    }

    /// Requests prepared space for `sessions` at once. It is kept back once they are at work.
    pub(crate) fn expect_sessions(&self, sessions: usize) {
        if self.budget.expect_sessions(sessions) {
            self.preparer.notify();
        }
    }

    /// Keeps space back for `sessions` at once, before the last of them appends. For ordinary work this fails if there
    /// is no space; `frees` says whether the work frees space. `None` is for work that is never refused. So sessions
    /// that begin on a full disk take no space from rollbacks and checkpoints.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    #[cold]
    pub(crate) fn count_session(&self, sessions: usize, frees: Option<bool>) -> Result<()> {
        self.budget.count_session(sessions, || frees.map_or(Ok(()), |frees| self.admit(frees)))
    }

    /// Admits an ordinary reservation. If less space is prepared than is set aside, the caller helps to prepare a
    /// segment. If the disk is full, the reservation is refused. A reservation that `frees` space is only refused when
    /// the margin is used up, too.
    ///
    /// # Errors
    /// `DiskFull`, or another error of preparing a segment.
    #[inline]
    pub(crate) fn admit(&self, frees: bool) -> Result<()> {
        if self.budget.is_short() { self.admit_short(frees) } else { Ok(()) }
    }

    #[cold]
    fn admit_short(&self, frees: bool) -> Result<()> {
        // ORDERING: Relaxed, a flag about the disk that every attempt sets anew.
        if !self.is_full.load(Ordering::Relaxed) {
            // WAIT: help - one caller at a time prepares; the others go on while the disk was not known to be full.
            match self.control.try_lock() {
                Some(control) if self.budget.is_short() => match self.prepare_one(&control) {
                    Ok(()) | Err(Error::DiskFull { .. }) => {}
                    Err(error) => return Err(error),
                },
                _ => {}
            }
        }
        // ORDERING: Relaxed, as above.
        let keeps_margin = self.is_full.load(Ordering::Relaxed) && !frees;
        self.prepare_while(if keeps_margin { Budget::is_short } else { Budget::is_spent }).map_err(
            |error| match error {
                Error::DiskFull { .. } => Error::DiskFull { path: self.home().dir.clone(), held_by: None },
                error => error,
            },
        )
    }

    /// Admits a reservation of a rollback if more space is prepared than records in flight may take.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub(crate) fn admit_rollback(&self) -> Result<()> {
        self.prepare_while(Budget::is_at_end)
    }

    /// Admits a copy of `bytes` from `own` granted blocks, if it uses no space of others.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub(crate) fn admit_copy(&self, own: u64, bytes: u64) -> Result<()> {
        self.prepare_while(|budget| budget.lacks_copy(own, bytes))
    }

    /// Grants space for compensations, in blocks of [`GRANT`](super::GRANT) bytes.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit); nothing is granted then.
    pub(crate) fn grant(&self, blocks: u64, frees: bool) -> Result<()> {
        self.grant_again(blocks);
        self.admit(frees).inspect_err(|_| self.budget.take_back(blocks))
    }

    /// Grants blocks that had been granted in the run before.
    pub(crate) fn grant_again(&self, blocks: u64) {
        self.budget.grant(blocks);
        if self.budget.is_short() {
            self.preparer.notify();
        }
    }

    /// Returns granted blocks to the account. Sessions that wait for them try again.
    pub(crate) fn take_back(&self, blocks: u64) {
        self.budget.take_back(blocks);
        self.returns.notify();
    }

    /// Returns the next segment to fill, whose first group is `first`. Prepares it if none is ready.
    ///
    /// # Errors
    /// `DiskFull` if the space kept back is used up, too; or another error of preparing a segment.
    pub(crate) fn roll(&self, first: GroupNo, prev_crc: u32) -> Result<Ready> {
        let ready = loop {
            if let Some(ready) = self.list.lock().ready.pop_front() {
                break ready;
            }
            // WAIT: help - or park for another thread that is preparing a segment.
            let control = self.control.lock();
            if self.list.lock().ready.is_empty() {
                self.prepare_one(&control)?;
            }
        };
        assert!(ready.size > FIRST_GROUP, "segment {} has no place for a group: {} bytes", ready.number, ready.size);
        let mut list = self.list.lock();
        assert!(list.live.back().is_none_or(|live| live.number + 1 == ready.number), "segments follow each other");
        list.live.push_back(Live::new(ready.number, ready.size, first, prev_crc));
        pause::point("wal: a segment begins");
        drop(list);
        self.budget.begin_segment(ready.size - FIRST_GROUP);
        self.preparer.notify();
        self.rolled.notify();
        Ok(ready)
    }

    /// Notes that `group` goes to `offset` of the segment being filled and ends at `end`.
    pub(crate) fn placed(&self, group: GroupNo, offset: u64, end: u64) {
        let mut list = self.list.lock();
        let live = list.live.back_mut().expect("a group goes into a live segment");
        live.push(group, offset, end);
        self.budget.set_left(live.size - end);
    }

    /// Runs one step of the preparer: at most one segment.
    pub(crate) fn prepare_step(&self) -> NextWake {
        let control = self.control.lock();
        if !self.wants_more(&control) {
            return NextWake::OnSignal;
        }
        match self.prepare_one(&control) {
            Ok(()) if self.wants_more(&control) => NextWake::Now,
            Ok(()) => NextWake::OnSignal,
            // A session gets the error when it needs the space. Until then the log goes on.
            Err(_) => NextWake::After(RETRY),
        }
    }

    fn wants_more(&self, control: &Option<Control>) -> bool {
        control.is_some() && self.list.lock().ready.len() < self.budget.ready_target()
    }

    /// Prepares segments while space `is_missing`, or waits for another thread that does.
    fn prepare_while(&self, is_missing: impl Fn(&Budget) -> bool) -> Result<()> {
        while is_missing(&self.budget) {
            // WAIT: park - for another thread that is preparing a segment.
            let control = self.control.lock();
            if is_missing(&self.budget) {
                self.prepare_one(&control)?;
            }
        }
        Ok(())
    }

    /// Prepares the next segment, from a spare file if there is one. `_control` excludes other preparers.
    fn prepare_one(&self, _control: &MutexGuard<'_, Option<Control>>) -> Result<()> {
        let take_spare = || self.list.lock().take_spare();
        let number = self.list.lock().next_number;
        let mut spare = take_spare();
        let prepare = |spare: Option<Spare>| match spare {
            Some(spare) => self.files.recycle(spare, number),
            None => self.files.create(number),
        };
        let mut prepared = prepare(spare);
        while let (Err(Error::DiskFull { .. }), Some(Spare { number: old, size })) = (&prepared, spare)
            && size < self.files.size
        {
            // The disk has too little space for the growth of this file. Its removal may free enough for the next one.
            if self.home().fs.remove(&self.home().segment_path(old)).is_err() {
                // `DiskFull` is the more useful error.
                break;
            }
            spare = take_spare();
            prepared = prepare(spare);
        }
        // ORDERING: Relaxed, a flag about the disk that every attempt sets anew.
        self.is_full.store(matches!(prepared, Err(Error::DiskFull { .. })), Ordering::Relaxed);
        let mut list = self.list.lock();
        match prepared {
            Ok(file) => {
                *(if spare.is_some() { &mut list.recycled } else { &mut list.made }) += 1;
                // Under the lock, so that the segment is counted before it is filled.
                self.budget.add_ready(self.files.size - FIRST_GROUP);
                list.add_ready(Ready { number, size: self.files.size, file });
                drop(list);
                self.returns.notify();
                Ok(())
            }
            Err(error) => {
                // On a full disk there may be no other file. A file that fails twice in a row may be damaged, and is
                // not tried again.
                let path = |spare: &Spare| self.home().segment_path(spare.number);
                let is_there = |spare: &Spare| self.home().fs.kind(&path(spare)).is_ok_and(|kind| kind.is_some());
                let failed = std::mem::replace(&mut list.failed, spare.map(|spare| spare.number));
                list.spare.extend(spare.filter(|spare| failed != Some(spare.number)).filter(is_there));
                Err(error)
            }
        }
    }

    /// Truncates the log before group `before`, in whole segments. The control file moves first. Then files that
    /// neither of its slots needs become spare. `durable` is the newest group that is durable together with all before
    /// it.
    pub(crate) fn truncate(&self, before: GroupNo, durable: GroupNo) -> Result<()> {
        let mut control = self.control.lock();
        let Some(control) = control.as_mut() else { return Ok(()) };
        // Recovery cannot start from a segment whose first group is still in flight.
        let slot = self.list.lock().slot_before(before.min(durable), control.newest());
        let Some(slot) = slot else { return Ok(()) };
        if slot.segment > control.newest().segment || slot.segment > control.oldest_segment() {
            control.advance(slot)?;
        }
        // A checkpoint releases several segments at once. Spare files are kept, because they need not be filled with
        // zeros.
        let most = self.budget.ready_target() + self.ready_segments;
        let surplus = self.list.lock().retire(control.oldest_segment(), most);
        pause::point("wal: log is given up");
        surplus.iter().try_for_each(|&number| self.home().fs.remove(&self.home().segment_path(number)))?;
        self.preparer.notify();
        Ok(())
    }

    /// Removes the spare files, and returns how many bytes they had. Segments that are needed later are made anew.
    pub(crate) fn remove_spare(&self) -> Result<u64> {
        // Excludes preparers, which take spare files.
        let _control = self.control.lock();
        let mut removed = 0;
        loop {
            let mut list = self.list.lock();
            let spare = list.take_spare();
            let Some(Spare { number, size }) = spare else { return Ok(removed) };
            let is_used = list.live.iter().any(|live| live.number == number);
            assert!(!is_used && list.ready.iter().all(|ready| ready.number != number), "segment {number} is in use");
            drop(list);
            if let Err(error) = self.home().fs.remove(&self.home().segment_path(number)) {
                self.list.lock().spare.extend(spare);
                return Err(error);
            }
            removed += size;
        }
    }
}
