//! The deadline of a transaction, which ends all its waits: for a session, for locks, for undo memory and for log space.
//!
//! Each wait ends with an error of its own, which says what was waited for. [`Txn::by_deadline`] makes [`Error::Deadline`] of it.
//! Not limited are waits for durability, and what a rollback or the end of a transaction needs.

use crate::txn::{Txn, TxnOptions};
use foreshore_base::Error;
use foreshore_sync::Nanos;
use std::sync::Arc;
use std::time::Duration;

impl TxnOptions {
    /// How long a wait for a session that begins now may last.
    pub(crate) fn time_for_a_session(&self, now: Nanos) -> Duration {
        let left = self.deadline.map(|deadline| (self.attempt.first.unwrap_or(now) + deadline).since(now));
        left.map_or(self.session_timeout, |left| left.min(self.session_timeout))
    }

    /// The answer to a transaction that has not begun because of `error`: [`Error::Deadline`], if it waited up to its deadline.
    #[must_use]
    pub fn by_deadline(&self, now: Nanos, error: Error) -> Error {
        match (self.deadline, self.attempt.first) {
            (Some(deadline), Some(first)) => ended_by(first, first + deadline, now, error),
            _ => error,
        }
    }
}

impl Txn {
    /// What is left for waits, if there is a deadline.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(self.manager.now()))
    }

    /// The answer to an operation that `error` has ended: [`Error::Deadline`] where that ended a wait and the deadline is over.
    #[must_use]
    pub fn by_deadline(&self, error: Error) -> Error {
        match self.deadline {
            Some(deadline) => ended_by(self.first, deadline, self.manager.now(), error),
            None => error,
        }
    }

    /// Limits the waits of the session for log space.
    pub(crate) fn limit_log_waits(&mut self) {
        let left = self.time_left();
        self.session().limit_waits(left);
    }
}

fn ended_by(first: Nanos, deadline: Nanos, now: Nanos, error: Error) -> Error {
    let ends_a_wait = matches!(
        error,
        Error::LockTimeout { .. }
            | Error::UndoMemory { .. }
            | Error::DiskFull { .. }
            | Error::LogSpace
            | Error::TooManyTransactions { .. }
    );
    if !ends_a_wait || now < deadline {
        return error;
    }
    let holder = error.blocker().unwrap_or_default();
    Error::Deadline { holder, runs: 1, elapsed: now.since(first), cause: Arc::new(error) }
}
