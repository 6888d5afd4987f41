//! How long a transaction waits: for a session, for locks, for undo space and for log space.
//!
//! A deadline ends all waits of a transaction. Each wait ends with an error of its own, which says what was waited for.
//! Waits for durability, and what a rollback or the end of a transaction needs, have no limit.

use foreshore_lock::Patience;
use foreshore_sync::Nanos;
use std::time::Duration;

/// The limits of the waits of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// When all its waits are over.
    deadline: Option<Nanos>,
    lock_timeout: Duration,
    /// The time of the operation that runs for its waits for locks, from the first of them on.
    patience: Option<Patience>,
}

impl Waits {
    /// Returns the waits of a transaction whose first attempt was asked for at `first`, all of them over `deadline`
    /// later.
    pub(crate) fn new(first: Nanos, deadline: Option<Duration>, lock_timeout: Duration) -> Self {
        Self { deadline: deadline.map(|deadline| first + deadline), lock_timeout, patience: None }
    }

    /// Returns what is left for waits, if there is a deadline. `now` reads the clock.
    pub(crate) fn left(&self, now: impl FnOnce() -> Nanos) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(now()))
    }

    /// Returns the time of the operation that runs for all its waits for locks.
    pub(crate) fn patience(&mut self, now: Nanos) -> &mut Patience {
        let timeout = self.left(|| now).map_or(self.lock_timeout, |left| left.min(self.lock_timeout));
        self.patience.get_or_insert(Patience::new(timeout))
    }

    /// Ends the operation: the next one has the time for locks anew.
    pub(crate) const fn end_operation(&mut self) {
        self.patience = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_the_time_for_locks_once() {
        let mut waits = Waits::new(Nanos(0), Some(Duration::from_nanos(50)), Duration::from_nanos(20));
        assert_eq!(waits.patience(Nanos(10)).left(Nanos(10)), Duration::from_nanos(20));
        assert_eq!(waits.patience(Nanos(15)).left(Nanos(15)), Duration::from_nanos(15), "it goes on");
        waits.end_operation();
        assert_eq!(waits.patience(Nanos(40)).left(Nanos(40)), Duration::from_nanos(10), "the deadline is nearer");
    }
}
