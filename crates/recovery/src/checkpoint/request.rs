//! Requests of writers that found the disk full: log is truncated for them.

use super::{Checkpointer, MOST_LOG, Reach, State};
use crate::pace::gains_log;
use foreshore_base::{GroupNo, Result};
use foreshore_sync::NextWake;
use foreshore_txn::Forward;
use std::time::Duration;

/// When the step checks again whether a rollback that retains log is still being tried.
const LOOK: Duration = Duration::from_millis(10);

/// The result of a request for log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// Some was truncated.
    Some,
    /// All of it is needed.
    Nothing,
    /// Known later: a rollback that retains some is just being tried.
    Later,
}

impl Checkpointer {
    /// Answers the requests of writers.
    pub(super) fn answer_request(&self, state: &mut State) -> Result<()> {
        let Some(request) = self.log.space_requested() else { return Ok(()) };
        let archived = self.log.next_to_archive();
        let mut freed = self.give_up_log(state);
        // What is not archived is truncated only if nothing else can be, and the archive fails.
        if matches!(freed, Ok(Freed::Nothing)) && self.log.yield_archive(archived) {
            freed = self.give_up_log(state);
            self.log.hold_for_archive();
        }
        // Without an answer the next round finds the request again, see `unanswered`.
        if !matches!(freed, Ok(Freed::Later)) {
            self.log.answer_space(&request, matches!(freed, Ok(Freed::Some)));
        }
        freed.map(drop)
    }

    /// Returns when the step checks again for an unanswered request, if there is one: the end of a try sends no
    /// signal.
    pub(super) fn unanswered(&self) -> Option<NextWake> {
        self.log.space_requested().map(|_| NextWake::After(LOOK))
    }

    /// Takes two checkpoints if log can be truncated after them. Copies of the database that retain it are cancelled
    /// before, and parked rollbacks are copied forward.
    fn give_up_log(&self, state: &mut State) -> Result<Freed> {
        let begin = self.log.next_group();
        self.put_before_copies(begin);
        if self.is_log_kept(begin) {
            match self.txns.copy_forward(|group, copies| gains_log(self.log.truncatable(group), copies)) {
                // A checkpoint would only use up log.
                Forward::Nothing => return Ok(Freed::Nothing),
                Forward::Busy => return Ok(Freed::Later),
                Forward::Done => {
                    // What the rollbacks no longer need may be retained for copies of the database.
                    self.put_before_copies(begin);
                    if self.is_log_kept(begin) {
                        return Ok(Freed::Nothing);
                    }
                }
            }
        }
        self.take(state, Reach::All)?;
        self.take(state, Reach::None)?;
        Ok(Freed::Some)
    }

    /// Returns whether transactions, or copies of the database, retain all log before `begin`.
    fn is_log_kept(&self, begin: GroupNo) -> bool {
        self.log.truncatable(self.copies.scan_start(self.needed_from(begin))) == 0
    }

    /// Cancels the copies of the database if log before `begin` is retained for them alone.
    fn put_before_copies(&self, begin: GroupNo) {
        let needed = self.needed_from(begin);
        if self.log.truncatable(self.copies.scan_start(needed)) < self.log.truncatable(needed) {
            self.copies.cancel();
        }
    }

    /// Returns the oldest group that transactions need, up to `begin`.
    fn needed_from(&self, begin: GroupNo) -> GroupNo {
        self.txns.xids().oldest_group().map_or(begin, |oldest| oldest.min(begin))
    }

    /// Refuses a checkpoint that lets no log be truncated and would take log that is reserved for rollbacks and
    /// restarts. Callers may request any number of checkpoints.
    ///
    /// # Errors
    /// `DiskFull`, `Poisoned`.
    pub(super) fn admit(&self, state: &mut State) -> Result<()> {
        match self.is_log_kept(self.log.next_group()) {
            true => state.session.admit_copy(MOST_LOG),
            false => Ok(()),
        }
    }
}
