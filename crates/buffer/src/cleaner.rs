//! The cleaner: writes dirty pages home in batches, while other threads use the pages.
//!
//! A batch is a round. There are two rounds, so that one can write the doublewrite file while the pages of the other go
//! home. The steps of a round:
//!
//! 1. Note the next group number, **before** any copy.
//! 2. Enter the pages as under way, except those that the other round has.
//! 3. Copy each page whose shared latch is free, and note the version of the latch. Then number the batch: of two
//!    images of a page in the doublewrite file the newer one has the higher number.
//! 4. Force the log up to the largest LSN of the copies. This is the write-ahead rule; it holds for the doublewrite
//!    file too.
//! 5. Write the copies durably to the round's doublewrite area, and pass the turn on. Write them home and sync the data
//!    file. If the device writes a page whole or not at all, they go home at once.
//! 6. Note the LSNs of the copies, which are durable at home ([`stamps`](crate::stamps)).
//! 7. Under a shared latch, compare the version of each page with the noted one. If it is the same, the page is clean.
//!    Otherwise the page needs the log from the noted group on, since the copy had all older changes.
//!
//! Step 7 compares versions and not LSNs, because a page may change without a log record. Redo is an exception: its
//! records are of older groups. So a page that redo changed after the copy keeps its group.
//!
//! **Refused whole writes.** A device that offers whole writes may refuse one later, for example because the disk is
//! full: XFS writes a whole page to a new place. The pool then uses the other way of writing until it is opened again.
//! The round that meets the refusal switches all batches with later numbers, before it writes an image. So no image in
//! the doublewrite file is older than a whole write of its page: a page stays with its round until it is home.

use crate::flush_order::{Dirty, Place};
use crate::format::AREA_PAGES;
use crate::frame::FrameNo;
use crate::guard::{ExclusiveGuard, LatchGuard, SharedGuard};
use crate::home::Home;
use crate::pass::Pass;
use crate::residency::Residency;
use crate::rounds::{Round, Rounds};
use crate::stats::PageWrites;
use foreshore_base::{GroupNo, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex, NextWake, Signal, Step};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Cleaner {
    residency: Arc<Residency>,
    home: Home,
    rounds: Rounds,
    /// The pass that the background thread helps with.
    pass: Mutex<Option<Arc<Pass>>>,
    /// Notified when a pass begins.
    passes: Signal,
}

impl Cleaner {
    pub(crate) fn new(residency: Arc<Residency>, home: Home) -> Self {
        let (sequence, newest) = home.newest_batch();
        Self {
            residency,
            // The first batch must not overwrite the newest one.
            rounds: Rounds::new(sequence, 1 - newest, home.writes()),
            home,
            pass: Mutex::new(LockRank::Leaf, None),
            passes: Signal::new(),
        }
    }

    /// Returns the signal of the thread that helps with passes.
    pub(crate) fn passes(&self) -> &Signal {
        &self.passes
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Writes the dirty pages of `frames` home, at most [`AREA_PAGES`], if a round is free; returns false if none is.
    /// It does not wait, since the caller may hold latches that the other rounds need. `is_reclaimer`: the caller is
    /// the thread that keeps frames free.
    pub(crate) fn try_clean(&self, frames: &mut [FrameNo], is_reclaimer: bool) -> Result<bool> {
        let Some(round) = self.rounds.try_take() else { return Ok(false) };
        self.clean(round, frames, is_reclaimer).map(|_| true)
    }

    /// Writes the dirty pages of `frames`, at most [`AREA_PAGES`], home in `round`. Returns how many were copied, and
    /// the frames that were skipped because they are latched or under way in the other round.
    fn clean(&self, mut round: Round<'_>, frames: &mut [FrameNo], is_reclaimer: bool) -> Result<(usize, Vec<FrameNo>)> {
        assert!(frames.len() <= AREA_PAGES, "a batch of {} pages", frames.len());
        let unwinds = Unwinds(&self.home);
        let memory = self.residency.memory();
        // In page order, so that neighbours can be written together. Each id is read once: a page that is clean by now
        // may leave its frame meanwhile.
        frames.sort_by_cached_key(|&no| memory.slot(no).frame().pid());
        let group = memory.log().next_group();
        let mut busy = Vec::new();
        for no in round.enter(frames, &mut busy) {
            let slot = memory.slot(no);
            match SharedGuard::try_latch(slot) {
                None => busy.push(no),
                Some(guard) if slot.frame().is_dirty() => {
                    slot.frame().forget_redo();
                    round.copy(&guard);
                }
                Some(_) => {}
            }
        }
        let copied = round.copies().len();
        let mut written = Ok(());
        if copied > 0 {
            if mutant("sabotage: stamps are written before the sync") {
                self.home.note(&round);
                self.home.stamps().write(GroupNo(u64::MAX), 0);
            }
            written = self.write(&mut round);
        } else if mutant("cleaner: a round without pages passes its turn on") {
            round.pass_on();
        }
        if written.is_ok() {
            // Before a page can leave memory and be read again.
            self.home.note(&round);
            self.set_clean(&round, group, &mut busy);
        }
        std::mem::forget(unwinds);
        drop(round);
        // The reclaimer may be waiting for this round. An empty round of its own does not wake it, or it would repeat
        // empty rounds for ever.
        if copied > 0 || !is_reclaimer {
            self.residency.low().notify();
        }
        written.map(|()| (copied, busy))
    }

    /// Writes one dirty page home, which the caller has latched exclusively since it came into memory. Waits for the
    /// disk under that latch. No round waits for a latch, so one is free in the end.
    pub(crate) fn write_latched(&self, page: &ExclusiveGuard<'_>) -> Result<()> {
        assert!(page.is_dirty(), "page {} is written home and clean", page.pid());
        let unwinds = Unwinds(&self.home);
        let mut round = self.rounds.take();
        page.slot().frame().forget_redo();
        round.copy_latched(page);
        let written = self.write(&mut round);
        if written.is_ok() {
            self.home.note(&round);
            page.slot().set_clean();
        }
        std::mem::forget(unwinds);
        drop(round);
        self.residency.low().notify();
        written
    }

    /// Frees the frame of a latched page that no thread has pinned, without writing it.
    pub(crate) fn discard(&self, page: ExclusiveGuard<'_>) {
        // A round may have copied an earlier state of it, and expects the page in its frame.
        self.rounds.wait_for(page.slot().no());
        self.residency.discard(page);
    }

    fn write(&self, round: &mut Round<'_>) -> Result<()> {
        let (sequence, writes) = round.number();
        let early =
            writes != PageWrites::Doublewrite || mutant("cleaner: a round passes its turn on before its images");
        if early {
            round.pass_on();
        }
        self.home.write_ahead(round)?;
        if writes == PageWrites::Whole {
            if self.home.write_whole(round)? {
                return self.home.sync();
            }
            // This comes before an image of this round: a later round that wrote one of its pages whole would leave an
            // older image behind. Pages that the device has written whole are written once more with the others.
            if !mutant("cleaner: a round begins with whole writes after an image") {
                self.rounds.set_writes(self.home.torn_writes());
            }
        }
        let has_images = self.home.torn_writes() == PageWrites::Doublewrite;
        if has_images && !mutant("sabotage: pages go home without an image") {
            self.home.write_images(round, sequence)?;
        }
        if !early {
            round.pass_on();
        }
        self.home.write(round)?;
        self.home.sync()
    }

    /// Marks the pages clean that have not changed since the copy. Adds those whose latch was not free to `busy`.
    fn set_clean(&self, round: &Round<'_>, group: GroupNo, busy: &mut Vec<FrameNo>) {
        for copied in round.copies() {
            let slot = self.residency.memory().slot(copied.no);
            // A dirty page stays in its frame, and no other thread cleans it.
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
        }
    }

    /// Returns the dirty pages, the oldest first.
    fn dirty_pages(&self) -> Vec<Dirty> {
        let frames = (0..).zip(self.residency.memory().frames());
        let mut dirty: Vec<_> = frames
            .filter_map(|(no, frame)| frame.rec_group().map(|group| Dirty { group, pid: frame.pid(), no }))
            .collect();
        dirty.sort_unstable();
        dirty
    }

    /// Writes the oldest dirty pages home, one batch of them. Returns how many were written.
    pub(crate) fn clean_oldest(&self) -> Result<usize> {
        let mut dirty: Vec<_> = self.dirty_pages().iter().take(AREA_PAGES).map(|page| page.no).collect();
        Ok(self.clean(self.rounds.take(), &mut dirty, false)?.0)
    }

    /// Writes home the pages that `order` chooses from the dirty ones, sorted by age. After each batch it calls
    /// `progress` with the oldest group that a remaining page needs; an error of that call ends the flush. `is_alone`:
    /// the background thread does not help.
    pub(crate) fn flush(
        &self,
        is_alone: bool,
        order: impl FnOnce(&[Dirty]) -> Vec<Place>,
        mut progress: impl FnMut(GroupNo) -> Result<()>,
    ) -> Result<()> {
        let since = self.residency.memory().log().next_group();
        let dirty = self.dirty_pages();
        let pass = Arc::new(Pass::new(&dirty, &order(&dirty), since));
        if !is_alone && pass.is_long() {
            self.pass.lock().get_or_insert_with(|| pass.clone());
            self.passes.notify();
        }
        let mut told = Ok(());
        while told.is_ok() && pass.write_next(|frames| self.clean_all(frames)) {
            told = progress(pass.oldest());
        }
        let joined = pass.join();
        self.pass.lock().take_if(|helped| Arc::ptr_eq(helped, &pass));
        joined.and(told)?;
        progress(pass.oldest())
    }

    /// Writes a waiting batch of the current pass, if there is one.
    pub(crate) fn help(&self) -> NextWake {
        let pass = self.pass.lock().clone();
        // The caller that began the pass gets the error.
        if pass.is_some_and(|pass| pass.write_next(|frames| self.clean_all(frames))) {
            NextWake::Now
        } else {
            NextWake::OnSignal
        }
    }

    /// Writes a batch of pages home, and waits for the latches that are not free at first.
    fn clean_all(&self, mut left: Vec<FrameNo>) -> Result<()> {
        while !left.is_empty() {
            let (_, busy) = self.clean(self.rounds.take(), &mut left, false)?;
            // A thread that needs a frame finds pages to evict now.
            self.residency.freed().notify_one();
            for &no in &busy {
                self.rounds.wait_for(no);
                // WAIT: park - until the latch is free, then try again. This thread has no round meanwhile.
                drop(SharedGuard::latch(self.residency.memory().slot(no)));
            }
            left = busy;
        }
        Ok(())
    }
}

/// The background step that helps with a pass.
impl Step for Cleaner {
    fn step(&self) -> NextWake {
        self.help()
    }
}

/// A guard that stops the log when a round unwinds.
struct Unwinds<'a>(&'a Home);

impl Drop for Unwinds<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
