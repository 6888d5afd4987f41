//! The steps of work that a caller waits for, such as a vacuum: how often one is tried, and which error is returned.

use crate::{Error, Result};

/// The number of times that a step which other transactions made fail is repeated.
const RETRIES: u32 = 3;

/// Runs a step. Repeats it a few times if its error is [retryable](Error::is_retryable), but not after it has waited in
/// vain for a lock or a session.
pub(crate) fn retried<T>(mut step: impl FnMut() -> foreshore_base::Result<T>) -> Result<T> {
    let mut left = RETRIES;
    loop {
        let error = match step() {
            Ok(done) => return Ok(done),
            Err(error) => Error::from(error),
        };
        let has_waited = matches!(error, Error::LockTimeout { .. } | Error::TooManyTransactions { .. });
        if left == 0 || has_waited || !error.is_retryable() {
            return Err(error);
        }
        left -= 1;
    }
}

/// Combines the outcomes of two steps. If both have failed, returns the first error that is not
/// [retryable](Error::is_retryable), or else the first error. So an error that a retry may spare hides neither damage
/// nor an error that ends the work.
pub(crate) fn both<T>(first: Result<()>, second: Result<T>) -> Result<T> {
    match (first, second) {
        (Ok(()), second) => second,
        (Err(first), Err(second)) if first.is_retryable() && !second.is_retryable() => Err(second),
        (Err(first), _) => Err(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_base::{Error as Storage, Lockable, PageId, Place, TableId};
    use std::time::Duration;

    fn deadlock() -> Storage {
        Storage::Deadlock { cycle: [].into() }
    }

    fn lock_timeout() -> Storage {
        Storage::LockTimeout { holder: "", what: Lockable::Table(TableId(3).into()), waited: Duration::ZERO }
    }

    #[test]
    fn a_step_is_repeated_a_few_times_unless_it_has_waited_or_cannot_succeed() {
        for (error, expected) in [(deadlock(), 4), (lock_timeout(), 1), (Storage::Closed, 1)] {
            let mut tries = 0;
            let outcome = retried::<()>(|| {
                tries += 1;
                Err(error.clone())
            });
            assert_eq!((outcome.is_err(), tries), (true, expected), "{error:?}");
        }
        let mut tries = 0;
        let second = retried(|| {
            tries += 1;
            if tries == 2 { Ok(tries) } else { Err(deadlock()) }
        });
        assert_eq!(second.unwrap(), 2);
    }

    #[test]
    fn a_retryable_error_hides_no_other_and_otherwise_the_first_counts() {
        let place = Place::Page(PageId(1));
        let damage = Storage::Corrupted { table: None, file: "data".into(), place, why: "torn" };
        let shown = |error: &Storage| Error::from(error.clone()).to_string();
        let both = |[first, second]: [&Storage; 2]| {
            both::<()>(Err(first.clone().into()), Err(second.clone().into())).unwrap_err().to_string()
        };
        for lasting in [&damage, &Storage::Closed] {
            for retryable in [&lock_timeout(), &deadlock()] {
                assert_eq!([both([lasting, retryable]), both([retryable, lasting])], [shown(lasting), shown(lasting)]);
            }
        }
        for pair in [[&damage, &Storage::Closed], [&deadlock(), &lock_timeout()]] {
            let [first, second] = pair;
            assert_eq!([both(pair), both([second, first])], [shown(first), shown(second)]);
        }
    }
}
