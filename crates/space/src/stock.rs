//! The stock of free pages: which threads take pages, and how more are added.
//!
//! ```text
//! file --growth--> free pages --16 at a time--> magazine of a worker --> a page
//! ```
//!
//! **Magazines.** A worker takes pages from its own magazine. So it takes the shared lock, and searches the maps, once
//! for sixteen pages. Pages in magazines are free like the others. They come back when a truncation needs the end of
//! the file, or when the disk is full and other workers have none.
//!
//! **Growth** is a system call that may wait for the device, so no lock is held over it. One thread at a time changes
//! the length, and says so in [`State::resizing`]; a thread that needs pages parks. With [`Growth::AHEAD`] it is the
//! thread of [`Stock::extend_step`]. That keeps as many pages ready as are used during a few growths, but no more than
//! a small part of the file. A thread that still finds none grows the file by the smallest extent. With inline growth
//! every taker grows the file by one page, as PostgreSQL did before version 9.6, which held the lock on the extension
//! of a table meanwhile.

use crate::free::{Free, GRAIN};
use crate::growth::{Growth, MAGAZINE, MIN_EXTENT, Pace, SpaceOptions, extent, one_more, past_map};
use crate::purpose::{KEPT_BACK, Purpose, Spare};
use foreshore_base::limits::{MAX_PAGES, PAGE_SIZE};
use foreshore_base::{Error, PageId, Result};
use foreshore_io::File;
use foreshore_sync::model::mutant;
use foreshore_sync::{CachePadded, Clock, EventCount, LockRank, Mutex, Nanos, NextWake, Signal, SystemClock, pause};
use std::{mem, sync::Arc, time::Duration};

/// Magazines. Workers beyond that number share.
const MAGAZINES: usize = if foreshore_sync::primitive::MODEL { 2 } else { 64 };
/// When a growth that failed is tried again in the background.
const RETRY: Duration = Duration::from_millis(100);

/// Pages that a worker has taken ahead, the next one last.
type Magazine = Vec<PageId>;

/// What all workers share.
pub(crate) struct State {
    pub(crate) free: Free,
    /// Whether a thread is changing the length of the file.
    resizing: bool,
    /// Number of the newest cut that was started.
    cuts: u64,
    /// What the newest cut leaves.
    spare: Spare,
    /// Whether a truncation has left few pages on purpose, and none was handed out since.
    is_lean: bool,
    cuts_done: u64,
    /// Growths, and those by a thread that needed a page.
    growths: u64,
    growths_inline: u64,
    pace: Pace,
    /// Whether the background thread knows that pages run short.
    asked: bool,
    /// Whether it waits for another thread's change of the length to end.
    passed: bool,
}

impl State {
    /// Pages that may be taken for `purpose`.
    fn ready(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Data => self.free.count().saturating_sub(KEPT_BACK),
            Purpose::Rollback => self.free.count(),
        }
    }
}

/// See the head of the module.
pub(crate) struct Stock {
    file: Arc<dyn File>,
    growth: Growth,
    /// `None` where nothing may depend on time.
    clock: Option<SystemClock>,
    magazines: Box<[CachePadded<Mutex<Magazine>>]>,
    state: Mutex<State>,
    /// Where threads wait for a change of the length to end.
    resized: EventCount,
    /// Rings when pages run short.
    low: Signal,
}

/// Counters of a [`Stock`].
pub(crate) struct StockStats {
    pub(crate) file_pages: u64,
    pub(crate) free_pages: u64,
    pub(crate) growths: u64,
    pub(crate) growths_inline: u64,
    pub(crate) cuts: u64,
}

impl Stock {
    pub(crate) fn new(file: Arc<dyn File>, options: SpaceOptions) -> Self {
        let clock = options.background.then(SystemClock::new);
        let state = State {
            free: Free::new(),
            resizing: false,
            cuts: 0,
            spare: Spare::Growth,
            is_lean: false,
            cuts_done: 0,
            growths: 0,
            growths_inline: 0,
            pace: Pace::new(clock.map_or(Nanos::ZERO, |clock| clock.now())),
            asked: false,
            passed: false,
        };
        let magazine = |_| CachePadded::new(Mutex::new(LockRank::Space, Vec::with_capacity(MAGAZINE)));
        Self {
            file,
            growth: options.growth,
            clock,
            magazines: (0..MAGAZINES).map(magazine).collect(),
            state: Mutex::new(LockRank::Leaf, state),
            resized: EventCount::new(),
            low: Signal::new(),
        }
    }

    fn now(&self) -> Nanos {
        self.clock.map_or(Nanos::ZERO, |clock| clock.now())
    }

    pub(crate) fn signal(&self) -> Signal {
        self.low.clone()
    }

    /// Runs `change` on what all share. Nothing in it waits.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    /// Hands a page to `worker`.
    pub(crate) fn take(&self, worker: usize, purpose: Purpose) -> Result<PageId> {
        loop {
            if let Some(pid) = self.take_ready(worker, purpose) {
                return Ok(pid);
            }
            match self.grow(purpose) {
                Err(Error::DiskFull { .. }) if self.recall() > 0 => {}
                other => other?,
            }
        }
    }

    fn take_ready(&self, worker: usize, purpose: Purpose) -> Option<PageId> {
        let mut magazine = self.magazines[worker % MAGAZINES].lock();
        if let Some(pid) = magazine.pop() {
            return Some(pid);
        }
        let mut state = self.state.lock();
        let want = match state.ready(Purpose::Data) {
            // One of the reserve: pages in a magazine are there for any later caller.
            0 => state.ready(purpose).min(1),
            ready => ready.min(self.growth.magazine_pages),
        };
        state.free.take(want, |pid| magazine.push(pid));
        state.pace.count(want);
        state.is_lean &= want == 0;
        let ring = self.growth.is_ahead && !state.asked && state.pace.is_low(state.ready(Purpose::Data));
        state.asked |= ring;
        drop(state);
        if ring {
            self.low.notify();
        }
        magazine.reverse();
        magazine.pop()
    }

    /// Hands out the lowest free page if it is below `limit` and not one of the reserve.
    pub(crate) fn take_below(&self, limit: PageId) -> Option<PageId> {
        self.with(|state| {
            let mut lowest = None;
            state.free.take(state.ready(Purpose::Data).min(1), |pid| lowest = Some(pid));
            lowest.filter(|&pid| {
                if pid >= limit {
                    state.free.give_back(pid);
                }
                pid < limit
            })
        })
    }

    /// Takes a page back.
    pub(crate) fn give_back(&self, pid: PageId) {
        self.state.lock().free.give_back(pid);
    }

    /// Takes back what lies in magazines, and returns how many pages that were.
    pub(crate) fn recall(&self) -> usize {
        let mut count = 0;
        for magazine in &self.magazines {
            let mut magazine = magazine.lock();
            let mut state = self.state.lock();
            count += magazine.len();
            magazine.drain(..).for_each(|pid| state.free.give_back(pid));
        }
        count
    }

    /// Makes pages for `purpose`: grows the file, gives up a truncation, or waits for another thread's growth.
    fn grow(&self, purpose: Purpose) -> Result<()> {
        let (from, pages) = loop {
            let key = self.resized.prepare();
            let mut state = self.state.lock();
            if state.ready(purpose) > 0 || (!state.resizing && state.free.cancel_truncation()) {
                self.resized.cancel(key);
                return Ok(());
            }
            if !state.resizing || mutant("space: two grow the file at once") {
                self.resized.cancel(key);
                state.resizing = true;
                state.growths_inline += 1;
                let from = state.free.file_pages();
                break (from, self.growth.inline_pages.max(one_more(from)));
            }
            drop(state);
            // WAIT: park - for the thread that changes the length, which is one system call.
            self.resized.wait(key, None);
        };
        self.finish_growth(from, pages)
    }

    /// Grows the file from `from` pages by `pages`. The caller has said that it changes the length.
    fn finish_growth(&self, from: u64, pages: u64) -> Result<()> {
        let begin = self.now();
        let grown = self.allocate(from, pages);
        pause::point("space: the data file has grown");
        let took = self.now().since(begin);
        self.resize(|state| {
            let pages = grown?;
            assert_eq!(state.free.file_pages(), from, "one thread at a time changes the length");
            state.free.extend(from + pages);
            state.growths += 1;
            state.pace.note_growth(took);
            Ok(())
        })
    }

    fn allocate(&self, from: u64, pages: u64) -> Result<u64> {
        let pages = pages.min(MAX_PAGES.saturating_sub(from));
        if pages == 0 {
            return Err(Error::DiskFull { path: self.file.path().to_owned(), held_by: None });
        }
        let allocate = |pages: u64| {
            let pages = past_map(from, pages);
            self.file.allocate(PageId(from).offset(), pages * PAGE_SIZE as u64).map(|()| pages)
        };
        match allocate(pages) {
            // The last room of a disk is used in small pieces.
            Err(Error::DiskFull { .. }) if pages > MIN_EXTENT => allocate(MIN_EXTENT),
            other => other,
        }
    }

    /// Ends a change of the length: notes its result, and wakes the waiters.
    fn resize<T>(&self, note: impl FnOnce(&mut State) -> T) -> T {
        let (noted, passed) = {
            let mut state = self.state.lock();
            debug_assert!(
                state.resizing,
                "the length of a file of {} pages was not to change",
                state.free.file_pages()
            );
            state.resizing = false;
            (note(&mut state), mem::take(&mut state.passed))
        };
        self.resized.notify_all();
        if passed {
            self.low.notify();
        }
        noted
    }

    /// The first growth of a new file.
    pub(crate) fn create(&self) -> Result<()> {
        self.with(|state| {
            assert!(state.free.is_empty(), "the space is in use");
            state.resizing = true;
        });
        self.finish_growth(0, MIN_EXTENT)
    }

    /// Grows the file if fewer pages are ready than should be. For one thread at a time.
    pub(crate) fn extend_step(&self) -> NextWake {
        if !self.growth.is_ahead {
            return NextWake::OnSignal;
        }
        let plan = self.with(|state| {
            if state.is_lean || state.free.cut().is_some() && state.spare == Spare::Least {
                // Few pages are left on purpose. A thread that finds none cancels the truncation.
                state.asked = false;
                return Err(NextWake::OnSignal);
            }
            let file_pages = state.free.file_pages();
            let want = state.pace.look(self.now(), file_pages);
            let ready = state.ready(Purpose::Data);
            if !state.pace.is_low(ready) {
                state.asked = false;
                return Err(NextWake::OnSignal);
            }
            if state.resizing {
                state.passed = true;
                return Err(NextWake::OnSignal);
            }
            if state.free.cancel_truncation() {
                return Err(NextWake::Now);
            }
            state.resizing = true;
            Ok((file_pages, extent(file_pages, want - ready)))
        });
        match plan.map(|(from, pages)| self.finish_growth(from, pages)) {
            Ok(Ok(())) => NextWake::Now,
            // The thread that needs a page meets the error.
            Ok(Err(_)) => NextWake::After(RETRY),
            Err(wake) => wake,
        }
    }

    /// Keeps the free pages at the end of the file back, except `spare`. Then runs `work` on the first region whose
    /// map lies beyond the truncation, while no thread can cancel it. Returns its number; `None` if there is too
    /// little to truncate or another thread changes the length.
    pub(crate) fn start_truncation(&self, spare: Spare, work: impl FnOnce(u64) -> Result<()>) -> Result<Option<u64>> {
        self.recall();
        let started = self.with(|state| {
            if state.resizing {
                return None;
            }
            state.free.cancel_truncation();
            let (reserve, grain) = match spare {
                // Twice of what growth keeps ready: it does not set in again at once.
                Spare::Growth => (2 * state.pace.look(self.now(), state.free.file_pages()) + KEPT_BACK, GRAIN),
                Spare::Least => (KEPT_BACK, 1),
            };
            (state.spare, state.is_lean) = (spare, spare == Spare::Least);
            state.free.start_truncation(reserve, MIN_EXTENT, grain)?;
            state.resizing = true;
            state.cuts += 1;
            Some((state.cuts, state.free.first_region_beyond_truncation().expect("just started")))
        });
        let Some((number, region)) = started else { return Ok(None) };
        let done = work(region);
        self.resize(|state| {
            if done.is_err() {
                state.free.cancel_truncation();
            }
        });
        done.map(|()| Some(number))
    }

    /// Returns whether a truncation would leave only [`Spare::Least`] and make the file shorter.
    pub(crate) fn has_free_end(&self) -> bool {
        self.recall();
        self.with(|state| state.free.cut().is_none() && state.free.find_truncation(KEPT_BACK, MIN_EXTENT, 1).is_some())
    }

    /// Truncates the file, unless truncation `number` was given up meanwhile. Returns how many pages are gone.
    pub(crate) fn finish_truncation(&self, number: u64) -> Result<u64> {
        let end = self.with(|state| {
            let end = state.free.cut().filter(|_| !state.resizing && state.cuts == number)?;
            state.resizing = !mutant("space: a truncation ends while the file grows");
            Some(end)
        });
        let Some(end) = end else { return Ok(0) };
        let cut = self.file.set_len(PageId(end).offset());
        pause::point("space: the data file is cut off");
        self.resize(|state| {
            // After an error, too: the file may have the new length all the same, so nothing beyond is relied on.
            let gone = state.free.finish_truncation();
            cut?;
            state.cuts_done += 1;
            Ok(gone)
        })
    }

    /// Gives up truncation `number`, if it is under way.
    pub(crate) fn cancel_truncation(&self, number: u64) {
        self.with(|state| {
            if !state.resizing && state.cuts == number {
                state.free.cancel_truncation();
            }
        });
    }

    pub(crate) fn stats(&self) -> StockStats {
        let held: usize = self.magazines.iter().map(|magazine| magazine.lock().len()).sum();
        let state = self.state.lock();
        let file_pages = state.free.file_pages();
        // What lies beyond a truncation is free, too. A page that came back from a magazine just now may count twice.
        let free_pages = held as u64 + state.free.count() + state.free.beyond_truncation();
        StockStats {
            file_pages,
            free_pages: free_pages.min(file_pages),
            growths: state.growths,
            growths_inline: state.growths_inline,
            cuts: state.cuts_done,
        }
    }
}

#[cfg(test)]
mod tests;
