//! The limits of a transaction's waits for a session, for locks, for undo space and for log space.
//!
//! A deadline ends all waits of a transaction. Each kind of wait ends with its own error, which says what was waited
//! for. Waits for durability have no limit, nor have those that a rollback or the end of a transaction needs.

use foreshore_lock::Patience;
use foreshore_sync::Nanos;
use std::time::Duration;

/// The limits of the waits of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The time at which all its waits end.
    deadline: Option<Nanos>,
    lock_timeout: Duration,
    /// The limit for all lock waits of the current operation, from the first wait on.
    patience: Option<Patience>,
}

impl Waits {
    /// Returns the limits of a transaction whose first attempt was requested at `first`. `deadline` counts from there.
    pub(crate) fn new(first: Nanos, deadline: Option<Duration>, lock_timeout: Duration) -> Self {
        Self { deadline: deadline.map(|deadline| first + deadline), lock_timeout, patience: None }
    }

    /// Returns the time left until the deadline, if there is one. `now` reads the clock.
    pub(crate) fn left(&self, now: impl FnOnce() -> Nanos) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(now()))
    }

    /// Returns the limit for all lock waits of the current operation.
    pub(crate) fn patience(&mut self, now: Nanos) -> &mut Patience {
        let timeout = self.left(|| now).map_or(self.lock_timeout, |left| left.min(self.lock_timeout));
        self.patience.get_or_insert(Patience::new(timeout))
    }

    /// Ends the operation. The next one has the full lock timeout again.
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
