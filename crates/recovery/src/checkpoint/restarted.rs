//! The checkpoint behind a restart, which begins when the database is already in use.
//!
//! A restart leaves pages in memory that differ from their homes. It need not wait until they are written: what has to
//! be true at any moment is that a restart finds the log that a page lacks.
//!
//! 1. *The log stays.* Redo marks a page dirty with the group of the first record that it lacked. The superblock still
//!    names the start of the log that was redone, or an earlier place, and nothing is truncated without a checkpoint.
//!    So a crash before the first checkpoint leaves what a crash in the middle of the restart leaves.
//!    A page that waits for its redo counts as one that needs the log from the redo start on. So nothing is truncated
//!    for it, and no checkpoint that writes pages ends before it is redone.
//! 2. *The page cache is passed.* It may hold newer bytes of a page than the medium, and no sync would write them. The
//!    restart has read the medium, and redone what that lacks. So until these pages are written again and synced, the
//!    data file is read past the cache.
//! 3. *Restarts get on.* A crash before this checkpoint makes the next restart redo the same log once more, and each
//!    one adds some log. So a restart that is not the first one for its log writes the pages before it ends
//!    ([`Replayed::is_repeated`](crate::Replayed::is_repeated)).

use super::{Checkpointer, Reach, State};
use crate::budget::{Restart, behind};
use crate::pace::limits;
use crate::stats::RecoveryStats;
use foreshore_base::{GroupNo, PageId, Result};
use foreshore_space::{MAX_LISTED, SuperBlock};
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{model::mutant, pause};
use std::collections::BTreeSet;
use std::time::Duration;

impl Checkpointer {
    /// Takes over what a restart says of the speed of this machine, `time` after the call of open. Its first checkpoint
    /// is not taken yet, and stores the speed.
    pub fn measure(&self, restart: &RecoveryStats, time: Duration) {
        let RecoveryStats { redo_bytes, scanned_bytes, prepared, undo_time, .. } = *restart;
        let time = time.saturating_sub(undo_time);
        let mut state = self.state.lock();
        let restart = Restart { redo_bytes, scanned_bytes, prepared, time };
        state.newest.restart_speed = state.restarts.speed_after(state.newest.restart_speed, restart);
        self.taken.set_speed(state.newest.restart_speed);
        self.set_budget(&mut state);
    }

    /// Puts the budget in effect that follows from the options and the speed.
    ///
    /// It may be smaller than the one by which the log was kept that the restart has redone. So until those pages are
    /// home, writers are slowed by a budget that this log does not use up.
    fn set_budget(&self, state: &mut State) {
        let least = if state.restarted.is_some() { behind(state.redone_bytes) } else { 0 };
        let budget = state.restarts.bytes(state.newest.restart_speed).max(least);
        if budget == self.budget() {
            return;
        }
        state.pace.resize(budget, self.log.written_bytes());
        // ORDERING: hint, a measure.
        self.budget.store(budget, Ordering::Relaxed);
        if state.is_served {
            self.log.limit_backlog(Some(limits(budget)));
        }
    }

    /// Leaves the first checkpoint to the step, which takes it at once.
    pub fn begin_in_background(&self) {
        // The superblock may name older log than any page needs. Writers are slowed for pages only.
        let oldest = self.pool.min_rec_group().unwrap_or_else(|| self.log.next_group());
        let redo_start = self.state.lock().newest.redo_start;
        assert!(oldest >= redo_start, "a page needs group {oldest}, and redo has begun at {redo_start}");
        self.pages_from(oldest);
        if mutant("sabotage: a start reads the page cache before its pages are home") {
            self.data.read_cached();
        }
    }

    /// Returns what is known of the restart by now: redo may have gone on.
    #[must_use]
    pub fn redone(&self, restart: RecoveryStats) -> RecoveryStats {
        let ((pending_pages, pending_bytes), (redone, quarantined)) = (self.redo.left(), self.redo.redone());
        RecoveryStats { redone, pending_pages, pending_bytes, quarantined, ..restart }
    }

    /// Returns the first pages that the redo of this restart has quarantined, at most `most`.
    #[must_use]
    pub fn redo_quarantined(&self, most: usize) -> Vec<PageId> {
        self.redo.quarantined(most)
    }

    /// Ends the threads of redo. The pages that wait are left to the next start.
    pub fn end_redo(&self) {
        self.redo.end_threads();
    }

    /// Redoes the pages that still wait, as all checkpoints that write pages do first. The state is not locked
    /// meanwhile: pages that wait do not keep a writer waiting for log, nor a due checkpoint, a backup or a close.
    pub(super) fn redo_rest(&self) -> Result<()> {
        self.redo.finish(|| {
            pause::point("checkpoint: some pages are redone");
            let mut state = self.state.lock();
            let _ = self.answer_request(&mut state);
            let _ = self.take_due(&mut state);
        })
    }

    /// Writes all pages that need the log before `begin`. A page may only wait if the checkpoint is to free log for a
    /// writer.
    pub(super) fn write_pages(&self, begin: GroupNo) -> Result<()> {
        self.redo.finish(|| ())?;
        self.pool.flush_older_than(begin, |oldest| {
            self.pages_from(oldest);
            Ok(())
        })
    }

    /// Returns the quarantined pages that the superblock after `newest` lists.
    pub(super) fn quarantined(&self, newest: &SuperBlock) -> Vec<PageId> {
        let mut listed = newest.quarantined.clone();
        let known: BTreeSet<PageId> = listed.iter().copied().collect();
        // The first ones suffice to fill the list: no more of them are listed already than it has entries.
        let more = self.redo_quarantined(MAX_LISTED).into_iter().filter(|pid| !known.contains(pid));
        listed.extend(more.take(MAX_LISTED.saturating_sub(known.len())));
        listed
    }

    /// Writes the pages that the restart has changed, and takes a checkpoint, if none has found them home yet.
    pub(super) fn finish_restart(&self, state: &mut State) -> Result<()> {
        let Some(end) = state.restarted else { return Ok(()) };
        self.pool.flush_older_than(end, |oldest| {
            self.pages_from(oldest);
            // The pages may take longer than a writer waits for space, and than the log may grow between checkpoints.
            let _ = self.answer_request(state);
            let _ = self.take_due(state);
            Ok(())
        })?;
        // One may have been taken meanwhile.
        if state.restarted.is_none() {
            return Ok(());
        }
        // On a full disk each start would take log for it that is reserved.
        self.admit(state)?;
        self.take(state, Reach::None)
    }

    /// Ends the reads past the page cache when a superblock says that the pages of the restart are home.
    pub(super) fn end_restart(&self, state: &mut State) {
        if state.restarted.is_some_and(|end| end <= state.newest.redo_start) {
            self.data.read_cached();
            state.restarted = None;
            // Writers are slowed by what is known. The pages that needed earlier log are home.
            self.pages_from(self.page_start().max(state.newest.redo_start));
            self.set_budget(state);
            pause::point("checkpoint: the pages of a restart are home");
        }
    }
}
