//! Transactions as closures that are repeated when others stood in their way.

use crate::{Db, Durability, Transaction, TxnOptions};
use foreshore_base::{Csn, Error, TableId};
use foreshore_sync::Parker;
use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// How often a transaction is run before its error is given back.
const MAX_RUNS: u32 = 100;
/// Longest pause before the second run; it doubles from there.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause at all.
const MAX_PAUSE: Duration = Duration::from_millis(10);

impl Db {
    /// Runs `f` in a transaction and commits it. Durable when it returns.
    ///
    /// A run that a deadlock, a lock timeout or a lack of sessions ended is rolled back and `f` is called again, after a
    /// short random pause, at most 100 times. If it was ended by [`LockLimit`](Error::LockLimit) the next runs lock that table
    /// against writes before they call `f`. Any other error rolls back and is given back, and so does a panic. The
    /// result, be it a value or an error, never rests on a commit that is not durable.
    ///
    /// # Errors
    /// What `f` returned, or why the transaction could not commit.
    pub fn run<T, E: From<Error>>(&self, f: impl FnMut(&Transaction) -> Result<T, E>) -> Result<T, E> {
        self.run_with(TxnOptions::new(), f)
    }

    /// [`run`](Self::run) with options. With [`Durability::Relaxed`] it returns when the commit record is in the log
    /// buffer, and results may rest on commits that are not durable yet.
    ///
    /// # Errors
    /// What `f` returned, or why the transaction could not commit.
    pub fn run_with<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        mut f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut run = 1;
        // Of which an earlier run has read more rows than there is room for locks. They are locked while nothing else is, so
        // that nobody who holds them can be waiting for this transaction.
        let mut whole: Vec<TableId> = Vec::new();
        loop {
            let tx = self.begin_with(options);
            let ready = whole.iter().try_for_each(|&table| tx.lock_against_writes(table));
            let result = ready.map_err(E::from).and_then(|()| f(&tx));
            let failure = tx.failure().filter(Error::is_retryable);
            if let Some(error) = failure.filter(|_| run < MAX_RUNS) {
                drop(tx);
                if let Error::LockLimit { table, .. } = error {
                    whole.push(table);
                }
            } else {
                match result {
                    Ok(value) => match tx.commit() {
                        Ok(_) => return Ok(value),
                        Err(error) if error.is_retryable() && run < MAX_RUNS => {}
                        Err(error) => return Err(error.into()),
                    },
                    Err(error) => {
                        let watermark = tx.end_without_commit();
                        if options.durability == Durability::Durable {
                            self.wait_for(watermark)?;
                        }
                        return Err(error);
                    }
                }
            }
            pause(run);
            run += 1;
        }
    }

    /// An answer that tells what another commit did must not be given while power loss could take that commit back.
    fn wait_for(&self, watermark: Csn) -> Result<(), Error> {
        let log = &self.engine().log;
        if watermark.lsn() <= log.durable() { Ok(()) } else { log.force(watermark.lsn()) }
    }
}

/// Waits for a random time, longer after more runs, so that those who met do not meet again.
fn pause(run: u32) {
    let longest = FIRST_PAUSE.saturating_mul(1 << run.min(10)).min(MAX_PAUSE);
    let random = RandomState::new().hash_one(run);
    let nanos = random % u64::try_from(longest.as_nanos()).expect("at most ten milliseconds");
    // WAIT: park - back off from a conflict, holding nothing; nobody wakes this thread early but a stale token, which
    // does no harm.
    Parker::current().park_timeout(Duration::from_nanos(nanos));
}
