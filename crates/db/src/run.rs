//! Transactions as closures that are repeated when others stood in their way.

use crate::{Db, Durability, Transaction, TxnOptions};
use foreshore_base::{Csn, Error, TableId};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{Clock, Parker, SystemClock, Turn, Turns};
use std::{sync::Arc, time::Duration};

/// How often a transaction is run before it is given up.
const MAX_RUNS: u32 = 100;
/// Longest pause before the second run; it doubles from there.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause at all.
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// After so many runs a transaction does not pause but stands in line: a crowd at one row, of which one gets through at a time
/// and all others meet again, becomes a queue.
const RUNS_BEFORE_LINE: u32 = 8;
/// Longest wait in line. Then it runs anyway, for the one whose turn it is may wait for a lock of this very thread, in whose
/// transaction this one is nested.
const MAX_LINE: Duration = Duration::from_millis(250);

impl Db {
    /// Runs `f` in a transaction and commits it. Durable when it returns.
    ///
    /// A run that others ended (a deadlock, a conflict, a lock timeout, a lack of sessions) is rolled back and `f` is called
    /// again, after a random pause of at most 10 ms; those that have been run often do so one at a time, after a wait of at
    /// most 250 ms. If one was ended by [`LockLimit`](Error::LockLimit) the next lock that table against writes before they call
    /// `f`. Any other error rolls back and is given back, and so does a panic. The result, be it a value or an
    /// error, never rests on a commit that is not durable.
    ///
    /// # Errors
    /// What `f` returned, or why the transaction could not commit. [`Error::Exhausted`] after 100 runs, with what ended the
    /// last one.
    pub fn run<T, E: From<Error>>(&self, f: impl FnMut(&Transaction) -> Result<T, E>) -> Result<T, E> {
        self.run_with(TxnOptions::new(), f)
    }

    /// [`run`](Self::run) with options. With [`Durability::Relaxed`] it returns when the commit record is in the log
    /// buffer, and results may rest on commits that are not durable yet.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        mut f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let is_relaxed = options.durability == Durability::Relaxed;
        let (mut again, mut was_measured): (Option<Again>, bool) = (None, false);
        // Of which an earlier run has read more rows than there is room for locks. They are locked while nothing else is, so
        // that nobody who holds them can be waiting for this transaction.
        let mut whole: Vec<TableId> = Vec::new();
        for runs in 1.. {
            // WAIT: park - see `Again::wait`; not before the first run.
            let turn = again.as_mut().and_then(|again| {
                let mut wait = || again.wait(self, runs);
                if was_measured { self.engine().profiler.between_runs(options.label, wait) } else { wait() }
            });
            let tx = self.begin_with(options);
            let ready = whole.iter().try_for_each(|&table| tx.lock_against_writes(table));
            let result = ready.map_err(E::from).and_then(|()| f(&tx));
            let cause = match (tx.failure().filter(Error::is_retryable), result) {
                // Whatever the closure has made of it.
                (Some(cause), _) => cause,
                (None, Ok(value)) => match tx.pre_commit(is_relaxed) {
                    Ok(ticket) => {
                        // The locks are free: the next one need not wait for the disk.
                        drop(turn);
                        // WAIT: park - for durability, or help by writing the group. Not at all if relaxed.
                        tx.measured(|| ticket.wait())?;
                        return Ok(value);
                    }
                    Err(error) if error.is_retryable() => error,
                    Err(error) => return Err(error.into()),
                },
                (None, Err(error)) => {
                    self.settle(tx.end_without_commit(), is_relaxed)?;
                    return Err(error);
                }
            };
            if runs == MAX_RUNS {
                self.settle(tx.end_without_commit(), is_relaxed)?;
                return Err(Error::Exhausted { runs, cause: Arc::new(cause) }.into());
            }
            if let Error::LockLimit { table, .. } = cause {
                whole.push(table);
            }
            again.get_or_insert_with(|| Again::new(self));
            was_measured = tx.is_measured();
        }
        unreachable!("the last run returns")
    }

    /// An answer that tells what another commit did must not be given while power loss could take that commit back.
    fn settle(&self, watermark: Csn, is_relaxed: bool) -> Result<(), Error> {
        let log = &self.engine().log;
        if is_relaxed || watermark.lsn() <= log.durable() { Ok(()) } else { log.force(watermark.lsn()) }
    }
}

/// What all transactions share that are run again.
#[derive(Debug)]
pub(crate) struct Repeats {
    /// The seed of the next one's pauses.
    seed: AtomicU64,
    /// Those that were run often stand in line here.
    turns: Turns,
}

impl Repeats {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: AtomicU64::new(seed), turns: Turns::default() }
    }
}

/// What a transaction needs that is run again.
struct Again {
    clock: SystemClock,
    /// State of the generator, another one for each transaction.
    random: u64,
}

impl Again {
    fn new(db: &Db) -> Self {
        // ORDERING: ticket, for a seed that nobody else has.
        let seed = db.engine().repeats.seed.fetch_add(1, Ordering::Relaxed);
        Self { clock: SystemClock::new(), random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) }
    }

    /// Waits before run number `runs`, holding nothing. The turn, if it gets one, lasts for the run.
    fn wait<'db>(&mut self, db: &'db Db, runs: u32) -> Option<Turn<'db>> {
        if runs > RUNS_BEFORE_LINE {
            return db.engine().repeats.turns.take(&self.clock, MAX_LINE);
        }
        let until = self.clock.now() + self.pause(runs);
        loop {
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return None;
            }
            // WAIT: park - to the end of the time; nobody wakes this thread early but a stale token.
            Parker::current().park_timeout(left);
        }
    }

    /// A random time, longer after more runs, so that those who met do not meet again.
    fn pause(&mut self, runs: u32) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << runs.min(10)).min(MAX_PAUSE);
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Duration::from_nanos(
            (mixed ^ (mixed >> 31)) % u64::try_from(longest.as_nanos()).expect("at most ten milliseconds"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_random_by_seed_and_bounded() {
        let pauses = |seed| {
            let mut again = Again { clock: SystemClock::new(), random: seed };
            (2..MAX_RUNS).map(|runs| again.pause(runs)).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
        let longest = |at: usize| (0..500).map(|seed| pauses(seed)[at]).max().expect("some");
        assert!(longest(0) <= 4 * FIRST_PAUSE && longest(0) > FIRST_PAUSE);
        assert!(longest(90) <= MAX_PAUSE && longest(90) > MAX_PAUSE / 2);
    }
}
