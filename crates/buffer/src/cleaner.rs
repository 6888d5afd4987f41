//! The cleaner: writes dirty pages home, in batches, without keeping anyone from them.
//!
//! A round, of which there are two, so that one can be at the doublewrite file while the other's pages go home:
//!
//! 1. note the next group number, **before** any copy;
//! 2. enter the pages in the list of those under way, leaving out what the other round has there, so that two images of a
//!    page never overtake each other; with it goes the sequence number of the batch, so that of two images of a page in the
//!    doublewrite file the newer one has the higher number;
//! 3. copy each page under a shared latch that is only tried for, and note the version of the latch;
//! 4. force the log up to the largest LSN on the copies: the write-ahead rule, which holds for the doublewrite file too;
//! 5. write the copies to the round's doublewrite area, durably; then home; then sync the data file. Where the device writes
//!    a page whole or not at all they go home at once;
//! 6. under a shared latch: if the version is still the one noted the page is clean, else it needs the log from the
//!    noted group on, since all older changes were on the copy. Versions are compared and not LSNs, because a page may
//!    change without a log record. (Redo changes pages by records of older groups; a page that it changed after the
//!    copy keeps the group it had.)
//!
//! A device that offers whole writes may refuse one later on, for want of space for example: XFS writes a page whole by writing
//! it elsewhere. From then on, until the pool is opened again, pages go the way that is left. The round that meets the
//! refusal takes the offer from all rounds that begin later, before it writes an image. So no image in the doublewrite file
//! is older than a page that was written whole after it: a page of the round stays with the round until it is home.
//!
//! Each round has an area of the doublewrite file and is held, by a mutex, until its pages are safe at home; the two take
//! turns. The mutex is never held by a thread that waits for a latch, so a thread may wait for it while it holds one.

use crate::doublewrite::Doublewrite;
use crate::format::{AREA_BYTES, AREA_PAGES, Batch, Entry, page_id, page_lsn, seal_page, verify_page};
use crate::frame::FrameNo;
use crate::guard::{LatchGuard, SharedGuard};
use crate::pool::Core;
use crate::{DoublewriteKind, PageWrites};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{Condvar, LockRank, Mutex, MutexGuard, pause};
use std::io;

/// Both rounds, and what is under way in them.
#[derive(Debug)]
pub(crate) struct Cleaner {
    doublewrite: Doublewrite,
    /// Whether the device was found to write pages whole.
    offers_whole: bool,
    /// How pages are written that the device does not write whole.
    otherwise: PageWrites,
    rounds: [Mutex<Round>; 2],
    flight: Mutex<Flight>,
    /// Notified when a round has ended.
    landed: Condvar,
}

/// Pages on their way home.
#[derive(Debug)]
struct Flight {
    /// Of the newest batch.
    sequence: u64,
    /// The round whose turn it is.
    next: usize,
    /// By round.
    frames: [Vec<FrameNo>; 2],
    /// How the rounds that begin from now on write their pages. [`PageWrites::Whole`] ends, once, when the device refuses.
    way: PageWrites,
}

/// What a thread that cleans works with.
#[derive(Debug)]
pub(crate) struct Round {
    /// Which of the two, and its doublewrite area.
    area: usize,
    /// One block for the header of a doublewrite batch, then the copies.
    buf: AlignedBuf,
    copies: Vec<Copied>,
}

/// A page as it was copied; the n-th one lies in the n-th page of the buffer.
#[derive(Clone, Copy, Debug)]
struct Copied {
    no: FrameNo,
    version: u64,
    entry: Entry,
}

impl Cleaner {
    pub(crate) fn new(doublewrite: Doublewrite, kind: DoublewriteKind, offers_whole: bool) -> Self {
        let round = |area| {
            let round = Round { area, buf: AlignedBuf::new(AREA_BYTES), copies: Vec::with_capacity(AREA_PAGES) };
            Mutex::new(LockRank::Cleaner, round)
        };
        // Not over the newest batch first.
        let (sequence, next) = (doublewrite.sequence, 1 - doublewrite.newest);
        let otherwise = if kind == DoublewriteKind::Off { PageWrites::Plain } else { PageWrites::Doublewrite };
        let way = if offers_whole && kind != DoublewriteKind::On { PageWrites::Whole } else { otherwise };
        let flight = Mutex::new(LockRank::Leaf, Flight { sequence, next, frames: [Vec::new(), Vec::new()], way });
        let rounds = [round(0), round(1)];
        Self { doublewrite, offers_whole, otherwise, rounds, flight, landed: Condvar::new() }
    }

    /// Whether the device offers whole writes, and how pages are written home now.
    pub(crate) fn ways(&self) -> (bool, PageWrites) {
        (self.offers_whole, self.flight.lock().way)
    }

    /// Ends whole writes for all rounds that begin from now on. Comes before an image of the round that was refused one: a
    /// later round that wrote a page of it whole would leave an older image behind.
    fn end_whole_writes(&self) {
        if !mutant("cleaner: a round begins with whole writes after an image") {
            self.flight.lock().way = self.otherwise;
        }
    }

    pub(crate) fn restore(&self, data: &dyn File, durable: Lsn) -> Result<usize> {
        let restored = self.doublewrite.restore(data, durable)?;
        if self.ways().1 != PageWrites::Doublewrite {
            // Pages that are written from now on leave the images behind, and an old image must not mend a newer page.
            self.doublewrite.invalidate()?;
        }
        Ok(restored)
    }

    /// The round whose turn it is, if nobody is at work in it.
    pub(crate) fn try_round(&self) -> Option<MutexGuard<'_, Round>> {
        let round = self.rounds[self.turn()].try_lock()?;
        // Only who holds the round whose turn it is ends that.
        (self.turn() == round.area).then_some(round)
    }

    /// The round whose turn it is; may wait for a batch to come home.
    pub(crate) fn round(&self) -> MutexGuard<'_, Round> {
        loop {
            // WAIT: park - until the batch of that round is home.
            let round = self.rounds[self.turn()].lock();
            if self.turn() == round.area {
                return round;
            }
        }
    }

    fn turn(&self) -> usize {
        self.flight.lock().next
    }

    /// Whether pages are under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.flight.lock().frames.iter().any(|frames| !frames.is_empty())
    }

    /// Whether the next batch has to wait for one that is under way.
    pub(crate) fn is_full(&self) -> bool {
        let flight = self.flight.lock();
        !flight.frames[flight.next].is_empty()
    }

    /// Frames whose pages are under way.
    pub(crate) fn under_way(&self) -> Vec<FrameNo> {
        self.flight.lock().frames.concat()
    }

    /// Enters `frames` as under way in `round`, whose turn it is, and returns them, the number of the batch, and how it is
    /// written. Those that are under way in the other round go to `busy` instead.
    fn board(&self, round: &Round, frames: &[FrameNo], busy: &mut Vec<FrameNo>) -> (Vec<FrameNo>, u64, PageWrites) {
        let mut flight = self.flight.lock();
        assert_eq!(flight.next, round.area, "rounds take turns");
        let is_other = |no: &FrameNo| {
            flight.frames[1 - round.area].contains(no) && !mutant("cleaner: a page may be in two rounds")
        };
        let (others, own): (Vec<_>, Vec<_>) = frames.iter().partition(|&no| is_other(no));
        busy.extend(others);
        flight.frames[round.area].clone_from(&own);
        flight.sequence += 1;
        flight.next = 1 - round.area;
        (own, flight.sequence, flight.way)
    }

    /// Ends what `board` began.
    fn land(&self, area: usize) {
        self.flight.lock().frames[area].clear();
        self.landed.notify_all();
    }

    /// Waits until a frame is not under way.
    pub(crate) fn wait_for(&self, no: FrameNo) {
        let mut flight = self.flight.lock();
        while flight.frames.iter().any(|frames| frames.contains(&no)) {
            // WAIT: park - until the round that writes the page has ended.
            flight = self.landed.wait(flight);
        }
    }
}

impl Round {
    /// Pages copied.
    pub(crate) fn pages(&self) -> usize {
        self.copies.len()
    }

    /// Copies the page of `guard` behind those already copied.
    fn copy(&mut self, guard: &SharedGuard<'_>) {
        let at = BLOCK + self.copies.len() * PAGE_SIZE;
        let page = &mut self.buf[at..at + PAGE_SIZE];
        page.copy_from_slice(guard);
        let version = guard.version();
        assert_eq!(page_id(page), guard.pid(), "a page carries its own id");
        let entry = Entry { pid: guard.pid(), lsn: page_lsn(page), crc: seal_page(page) };
        // What was not to be read back must not be written: type, id and checksum as on the way in.
        debug_assert_eq!(verify_page(page, entry.pid, Lsn(u64::MAX)), Ok(()), "page {} as it is written", entry.pid);
        self.copies.push(Copied { no: guard.slot().no(), version, entry });
    }

    /// Writes the copies home, all at once, and pages that are neighbours there in one piece.
    fn write_home(&self, data: &dyn File) -> Result<()> {
        let mut runs = Vec::with_capacity(self.copies.len());
        let mut start = 0;
        while start < self.copies.len() {
            let first = self.copies[start].entry.pid;
            let is_next = |(n, copied): &(usize, &Copied)| copied.entry.pid.0 == first.0 + *n as u64;
            let run = self.copies[start..].iter().enumerate().take_while(is_next).count();
            let at = BLOCK + start * PAGE_SIZE;
            runs.push((&self.buf[at..at + run * PAGE_SIZE], first.offset()));
            start += run;
        }
        data.write_many(&runs)
    }

    /// Writes the copies home, each whole or not at all. False if the device refuses that for some.
    fn write_whole(&self, data: &dyn File) -> Result<bool> {
        let pages = self.buf[BLOCK..].chunks_exact(PAGE_SIZE);
        let parts: Vec<_> = pages.zip(&self.copies).map(|(page, copied)| (page, copied.entry.pid.offset())).collect();
        data.write_whole(&parts)
    }
}

/// A round from `board` on; lands when it is dropped. One that unwinds stops the log first: its pages may be torn at home, so
/// nothing may be written over their images.
struct Flying<'a> {
    core: &'a Core,
    area: usize,
    /// Whether to ring for the thread that keeps frames free: it may sleep for want of this round. Not for its own about nothing.
    rings: bool,
    unwinds: bool,
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        if self.unwinds {
            let why = io::Error::other("a round of the cleaner unwinds");
            self.core.log.poison(&Error::io("write pages to", self.core.data.path(), why));
        }
        self.core.cleaner.land(self.area);
        if self.rings {
            self.core.low.notify();
        }
        // ORDERING: hint, see `Core::dry`.
        self.core.dry.store(false, Ordering::Relaxed);
    }
}

impl Core {
    /// Writes the dirty ones of `frames`, at most [`AREA_PAGES`], home, in `round`. Returns those whose latch was not free, or
    /// that another round is writing. `provides` if the caller keeps frames free.
    pub(crate) fn clean(&self, round: &mut Round, frames: &mut [FrameNo], provides: bool) -> Result<Vec<FrameNo>> {
        assert!(frames.len() <= AREA_PAGES, "a batch of {} pages", frames.len());
        round.copies.clear();
        // In page order, so that neighbours can be written together. Each id is looked at once: a page that is clean by now may
        // leave its frame meanwhile.
        frames.sort_by_cached_key(|&no| self.memory.frames()[no as usize].pid());
        let group = self.log.next_group();
        let mut busy = Vec::new();
        let (own, sequence, way) = self.cleaner.board(round, frames, &mut busy);
        let mut flying = Flying { core: self, area: round.area, rings: !provides, unwinds: true };
        for no in own {
            let slot = self.memory.slot(no);
            let Some(guard) = SharedGuard::try_latch(slot) else {
                busy.push(no);
                continue;
            };
            if slot.frame().is_dirty() {
                slot.frame().forget_redo();
                round.copy(&guard);
            }
        }
        flying.rings |= !round.copies.is_empty();
        let written = if round.copies.is_empty() { Ok(()) } else { self.write_batch(round, sequence, way) };
        if written.is_ok() {
            self.settle(round, group, &mut busy);
        }
        flying.unwinds = false;
        written.map(|()| busy)
    }

    /// The write-ahead rule: no page reaches any file before the log holds every change on it.
    fn write_ahead(&self, lsn: Lsn) -> Result<()> {
        if mutant("sabotage: a page goes home before its log") {
            return Ok(());
        }
        if lsn > self.log.durable() {
            self.log.force(lsn)?;
        }
        assert!(lsn <= self.log.durable(), "page lsn {lsn} is ahead of the log");
        self.check_runs()
    }

    /// An error if the log has stopped.
    fn check_runs(&self) -> Result<()> {
        self.log.poisoned().map_or(Ok(()), |cause| Err(Error::poisoned(&cause)))
    }

    fn write_batch(&self, round: &mut Round, sequence: u64, way: PageWrites) -> Result<()> {
        let newest = round.copies.iter().map(|copied| copied.entry.lsn).max().unwrap_or_default();
        self.write_ahead(newest)?;
        let pages = round.copies.len() as u64;
        self.counters.batches.add(1);
        if way == PageWrites::Whole {
            if self.fatal(round.write_whole(&*self.data))? {
                self.counters.pages_written.add(pages);
                return self.end_batch();
            }
            // Pages of this round that the device did write are whole, and are written once more with the others.
            self.cleaner.end_whole_writes();
        }
        let is_doubled = self.cleaner.otherwise == PageWrites::Doublewrite;
        if is_doubled && !mutant("sabotage: pages go home without an image") {
            let entries = round.copies.iter().map(|copied| copied.entry).collect();
            let batch = Batch { sequence, entries };
            let area = if mutant("cleaner: both rounds use one area") { 0 } else { round.area };
            self.fatal(self.cleaner.doublewrite.write(area, &batch, &mut round.buf))?;
            self.counters.doublewrite_batches.add(1);
            pause::point("pool: images are durable");
            self.counters.pages_written.add(pages);
        }
        // Space was taken when the pages were allocated, so even a full disk here is a broken promise of the file system.
        self.fatal(round.write_home(&*self.data))?;
        pause::point("pool: pages are written");
        self.counters.pages_written.add(pages);
        self.end_batch()
    }

    fn end_batch(&self) -> Result<()> {
        if !mutant("cleaner: a round ends before its sync") {
            self.fatal(self.sync_data())?;
            pause::point("pool: pages are synced");
        }
        // A sync of the other round that failed may have been the one to hear of lost pages of this one.
        self.check_runs()
    }

    /// Makes the pages clean that are still as they were copied. Adds those whose latch was not free to `busy`.
    fn settle(&self, round: &Round, group: GroupNo, busy: &mut Vec<FrameNo>) {
        for copied in &round.copies {
            let slot = self.memory.slot(copied.no);
            // A dirty page stays in its frame, and nobody else cleans it.
            assert_eq!(slot.frame().pid(), copied.entry.pid, "a dirty page left its frame");
            let Some(guard) = SharedGuard::try_latch(slot) else {
                busy.push(copied.no);
                continue;
            };
            if guard.version() == copied.version || mutant("sabotage: a page that has changed since is clean") {
                slot.set_clean();
            } else {
                slot.frame().advance_rec_group(group);
            }
            // The state of the frame changes under the latch, not after it.
            drop(guard);
        }
    }
}
