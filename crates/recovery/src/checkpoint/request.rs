//! Requests of writers that the full disk has refused: log is given up for them.

use super::{Checkpointer, MOST_LOG, Reach, State};
use crate::pace::gains_log;
use foreshore_base::{GroupNo, Result};
use foreshore_sync::NextWake;
use foreshore_txn::Forward;
use std::time::Duration;

/// When the step looks again whether a rollback that keeps log is still being tried.
const LOOK: Duration = Duration::from_millis(10);

/// What came of a request for log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// Some was given up.
    Some,
    /// All of it is needed.
    Nothing,
    /// It is known later: a rollback that keeps some is just being tried.
    Later,
}

impl Checkpointer {
    /// Answers what writers have asked for.
    pub(super) fn answer_request(&self, state: &mut State) -> Result<()> {
        let Some(request) = self.log.space_requested() else { return Ok(()) };
        let freed = self.give_up_log(state);
        // Without an answer the next look finds the request again, see `unanswered`.
        if !matches!(freed, Ok(Freed::Later)) {
            self.log.answer_space(&request, matches!(freed, Ok(Freed::Some)));
        }
        freed.map(drop)
    }

    /// When the step looks again for a request that has no answer, if there is one: the end of a try signals nothing.
    pub(super) fn unanswered(&self) -> Option<NextWake> {
        self.log.space_requested().map(|_| NextWake::After(LOOK))
    }

    /// Takes two checkpoints if log can be given up after them. Parked rollbacks that keep it are copied forward before.
    fn give_up_log(&self, state: &mut State) -> Result<Freed> {
        let begin = self.log.next_group();
        if self.is_log_kept(begin) {
            match self.txns.copy_forward(|group, copies| gains_log(self.log.truncatable(group), copies)) {
                // A checkpoint would only use up log.
                Forward::Nothing => return Ok(Freed::Nothing),
                Forward::Busy => return Ok(Freed::Later),
                Forward::Done if self.is_log_kept(begin) => return Ok(Freed::Nothing),
                Forward::Done => {}
            }
        }
        self.take(state, Reach::All)?;
        self.take(state, Reach::None)?;
        Ok(Freed::Some)
    }

    /// Whether transactions keep all log before `begin`.
    fn is_log_kept(&self, begin: GroupNo) -> bool {
        let transactions = self.txns.xids().oldest_group();
        self.log.truncatable(transactions.map_or(begin, |oldest| oldest.min(begin))) == 0
    }

    /// Refuses a checkpoint that lets no log go and would take log that is kept back for rollbacks and restarts: callers
    /// may ask for any number of them.
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
