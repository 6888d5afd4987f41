//! What a workload is to a run: rows to load and to check, and transactions.

use crate::{Progress, report::Kind};
use foreshore::{Db, Result, Transaction};
use std::path::Path;

/// What an audit of a quiet database found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Whether all that the workload says of its rows is true of them.
    pub is_sound: bool,
    /// What grows by a known number with each commit.
    pub count: u64,
    /// One above the largest run that left a trace, for workloads whose runs must differ.
    pub next_run: u64,
}

/// Whose transactions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    /// Number of the run on this database.
    pub(crate) run: u64,
    pub(crate) thread: u32,
}

impl Worker {
    /// A stream of draws that no other worker of any run on this database has.
    pub(crate) const fn stream(self) -> u64 {
        (self.run << 16) + self.thread as u64
    }
}

/// A workload at its scale.
pub(crate) trait Work: Sync {
    /// Names of the two checks: that the rows are sound, and that their count is that of the commits.
    fn checks(&self) -> [&'static str; 2];

    /// Makes the rows of an empty database. Durable when it returns.
    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()>;

    /// Whether the database in `dir` holds this workload at this scale; adds what more threads need.
    ///
    /// # Errors
    /// `InvalidOption` if the load has another scale; `Foreign` if the database holds anything else, or a load that did
    /// not end.
    fn resume(&self, db: &Db, dir: &Path) -> Result<()>;

    /// Reads the rows that all transactions draw from, so that a short row is not about the first reads of them.
    fn read_in(&self, _: &Db) -> Result<()> {
        Ok(())
    }

    /// Looks at all rows of a quiet database.
    fn audit(&self, db: &Db) -> Result<Audit>;

    /// What an audit counts after `commits` since one that counted `before`.
    fn count_after(&self, before: u64, commits: u64) -> u64;

    /// Takes what the transactions of a row were, by kind. Called once a row, when its workers have ended.
    fn take_kinds(&self) -> Vec<Kind> {
        Vec::new()
    }

    /// Checks of the kinds of a row, by name.
    fn check_kinds(&self, _: &[Kind]) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    /// The transactions of one worker.
    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send>;
}

/// How a transaction ends that the engine did not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    /// The workload itself rolls it back, and does not run it again.
    Rollback,
}

/// Draws transactions and runs them.
pub(crate) trait Transactions {
    /// Whether there is one to draw. Waits a moment where there is none.
    fn wait_due(&mut self) -> bool {
        true
    }

    /// Draws the next one.
    fn draw(&mut self);

    /// Runs the one that was drawn last, again after an error that a retry may cure. Returns how it is to end.
    fn apply(&mut self, tx: &Transaction) -> Result<End>;

    /// The one that was applied last has ended so.
    fn ended(&mut self, _: End) {}
}
