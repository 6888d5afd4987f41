//! The segments of a log in use: prepared ahead of need, filled in order, recycled when the log before a group is no
//! longer needed.
//!
//! One thread at a time prepares or recycles a segment, or moves the control slots: the one that has `control` locked.
//! A log without files has no control file and no segments, and its budget is never short.

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
use foreshore_sync::{LockRank, Mutex, MutexGuard, NextWake, Signal, pause};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the preparer rests after a failure, unless it is signalled.
const RETRY: Duration = Duration::from_millis(100);

/// Takes what idle sessions were granted for compensations, in blocks.
type TakeIdle = Box<dyn Fn() -> u64 + Send + Sync>;

/// The segments of a log in use.
pub(crate) struct Segments {
    budget: Budget,
    files: Files,
    /// Segments kept ready at least.
    ready_segments: usize,
    /// None of a log without files.
    control: Mutex<Option<Control>>,
    list: Mutex<List>,
    /// The last attempt to prepare a segment found the disk full.
    is_full: AtomicBool,
    preparer: Signal,
    returns: Returns,
    idle: OnceLock<TakeIdle>,
}

impl Segments {
    /// The segments in `list` of the log in `home`.
    pub(crate) fn new(home: Home, options: &LogOptions, control: Control, list: List) -> Self {
        let left = list.live.back().map_or(0, |live| live.size - live.end);
        let ready: u64 = list.ready.iter().map(|ready| ready.size - FIRST_GROUP).sum();
        Self::with(home, options, Some(control), list, Budget::new(options, ready, left))
    }

    /// No segments, of a log without files.
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
        }
    }

    /// The directory of the log.
    pub(crate) fn home(&self) -> &Home {
        &self.files.home
    }

    /// Locks the list of the files.
    pub(crate) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }

    /// The signal of the preparer.
    pub(crate) fn preparer_signal(&self) -> &Signal {
        &self.preparer
    }

    /// Where sessions wait for space that others give back.
    pub(crate) fn returns(&self) -> &Returns {
        &self.returns
    }

    /// Names the function that takes from idle sessions what they were granted. The first call counts.
    pub(crate) fn on_shortage(&self, take: TakeIdle) {
        let _ = self.idle.set(take);
    }

    /// Takes what idle sessions were granted.
    pub(crate) fn take_from_idle(&self) {
        if let Some(take) = self.idle.get() {
            self.take_back(take());
        }
    }

    /// Whether less space is prepared than is set aside, or a session waits for some.
    pub(crate) fn is_wanted(&self) -> bool {
        self.budget.is_short() || self.returns.is_waited_for()
    }

    /// Has space prepared for `sessions` at once. It is kept back once they are at work.
    pub(crate) fn expect_sessions(&self, sessions: usize) {
        if self.budget.expect_sessions(sessions) {
            self.preparer.notify();
        }
    }

    /// Keeps space back for `sessions` at once, before the last of them appends. `frees`: for ordinary work that frees
    /// space or does not, only if the space is there; `None` for work that is never refused. So sessions that begin on
    /// a full disk take nothing from rollbacks and checkpoints.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    #[cold]
    pub(crate) fn count_session(&self, sessions: usize, frees: Option<bool>) -> Result<()> {
        self.budget.count_session(sessions, || frees.map_or(Ok(()), |frees| self.admit(frees)))
    }

    /// Whether an ordinary reservation may go on. Where less space is prepared than is set aside, the caller helps to
    /// prepare a segment. On a full disk it is refused then; one that `frees` space is refused only when the margin is
    /// used up, too.
    ///
    /// # Errors
    /// `DiskFull`, or what else preparing a segment failed with.
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

    /// Whether a reservation of a rollback may go on: more space is prepared than what is in flight may take.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) fn admit_rollback(&self) -> Result<()> {
        self.prepare_while(Budget::is_at_end)
    }

    /// Whether `bytes` may be logged at the expense of `own` granted blocks, so that all that others may use stays.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) fn admit_copy(&self, own: u64, bytes: u64) -> Result<()> {
        self.prepare_while(|budget| budget.lacks_copy(own, bytes))
    }

    /// Grants space for compensations, in blocks of [`GRANT`](super::GRANT) bytes.
    ///
    /// # Errors
    /// As [`admit`](Self::admit): nothing is granted then.
    pub(crate) fn grant(&self, blocks: u64, frees: bool) -> Result<()> {
        self.grant_again(blocks);
        self.admit(frees).inspect_err(|_| self.budget.take_back(blocks))
    }

    /// Grants what had been granted in the run before.
    pub(crate) fn grant_again(&self, blocks: u64) {
        self.budget.grant(blocks);
        if self.budget.is_short() {
            self.preparer.notify();
        }
    }

    /// Takes granted blocks back. Sessions that wait for them try again.
    pub(crate) fn take_back(&self, blocks: u64) {
        self.budget.take_back(blocks);
        self.returns.notify();
    }

    /// Returns the next segment to fill, whose first group is `first`. Prepares it if none is ready.
    ///
    /// # Errors
    /// `DiskFull` if what was kept back is used up too, or what preparing failed with.
    pub(crate) fn roll(&self, first: GroupNo, prev_crc: u32) -> Result<Ready> {
        let ready = loop {
            if let Some(ready) = self.list.lock().ready.pop_front() {
                break ready;
            }
            // WAIT: help - or park for the thread that prepares a segment just now.
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
            // The error reaches a session when it needs the space; until then the log goes on.
            Err(_) => NextWake::After(RETRY),
        }
    }

    fn wants_more(&self, control: &Option<Control>) -> bool {
        control.is_some() && self.list.lock().ready.len() < self.budget.ready_target()
    }

    /// Prepares segments as long as space `is_missing`, or waits for the thread that does.
    fn prepare_while(&self, is_missing: impl Fn(&Budget) -> bool) -> Result<()> {
        while is_missing(&self.budget) {
            // WAIT: park - behind the thread that prepares a segment just now.
            let control = self.control.lock();
            if is_missing(&self.budget) {
                self.prepare_one(&control)?;
            }
        }
        Ok(())
    }

    /// Prepares the next segment, from a spare file where there is one. `_control` excludes other preparers.
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
            // The disk does not have what this file lacks. The next one may do with what it gives back.
            if self.home().fs.remove(&self.home().segment_path(old)).is_err() {
                // That the disk is full says more.
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
                // Under the lock: it is counted before it is filled.
                self.budget.add_ready(self.files.size - FIRST_GROUP);
                list.add_ready(Ready { number, size: self.files.size, file });
                drop(list);
                self.returns.notify();
                Ok(())
            }
            Err(error) => {
                // On a full disk there may be no other. One that fails twice running may be bad, and is not tried
                // again.
                let path = |spare: &Spare| self.home().segment_path(spare.number);
                let is_there = |spare: &Spare| self.home().fs.kind(&path(spare)).is_ok_and(|kind| kind.is_some());
                let failed = std::mem::replace(&mut list.failed, spare.map(|spare| spare.number));
                list.spare.extend(spare.filter(|spare| failed != Some(spare.number)).filter(is_there));
                Err(error)
            }
        }
    }

    /// Gives up the groups before `before`, segment by segment: the control file moves first, then files that neither
    /// of its slots needs become spare. `durable` is the newest group that is durable together with all before it.
    pub(crate) fn truncate(&self, before: GroupNo, durable: GroupNo) -> Result<()> {
        let mut control = self.control.lock();
        let Some(control) = control.as_mut() else { return Ok(()) };
        // A segment whose first group is still on its way to disk is no place to start from.
        let slot = self.list.lock().slot_before(before.min(durable), control.newest());
        let Some(slot) = slot else { return Ok(()) };
        if slot.segment > control.newest().segment || slot.segment > control.oldest_segment() {
            control.advance(slot)?;
        }
        // A checkpoint gives up several segments at once, and a spare file need not be filled with zeros.
        let most = self.budget.ready_target() + self.ready_segments;
        let surplus = self.list.lock().retire(control.oldest_segment(), most);
        pause::point("wal: log is given up");
        surplus.iter().try_for_each(|&number| self.home().fs.remove(&self.home().segment_path(number)))?;
        self.preparer.notify();
        Ok(())
    }
}
