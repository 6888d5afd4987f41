//! The parts of an open database.

use crate::admission::Admission;
use crate::catalogue::Catalogue;
use crate::damage::Damage;
use crate::live::Live;
use crate::max_age::AgingTransactions;
use crate::prepared::PreparedList;
use crate::profile::Profiler;
use crate::purge::Purger;
use crate::queues::Queues;
use crate::reclaim::Reclaimer;
use crate::storage::Storage;
use crate::workers::WorkerPool;
use crate::{Error, Options, trace};
use foreshore_base::{Csn, Result};
use foreshore_sync::{BiasedRef, Daemon, LockRank, Mutex, pause};
use std::{sync::Arc, time::Duration};

/// A transaction's reference to the engine.
pub(crate) type EngineRef = BiasedRef<Arc<Engine>>;

/// An open database.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) storage: Storage,
    pub(crate) admission: Admission,
    pub(crate) catalogue: Catalogue,
    /// Dropped tables whose pages are not all free yet.
    pub(crate) reclaimer: Reclaimer,
    /// Leaves with deleted rows.
    pub(crate) purger: Purger,
    /// Transactions that wait to be resolved.
    pub(crate) prepared: PreparedList,
    /// Damaged pages.
    pub(crate) damage: Damage,
    /// Transactions that may become too old.
    pub(crate) aging: AgingTransactions,
    pub(crate) queues: Queues,
    pub(crate) profiler: Profiler,
    pub(crate) background: Background,
}

impl Engine {
    /// Closes the database once. Later calls wait for the first and find nothing to do. A later call with a shorter
    /// wait shortens the wait of the first.
    ///
    /// Callbacks of users run on the threads of the log, and may close the database themselves. So those threads are
    /// ended, and the callbacks that are left are called, when the lock is free.
    pub(crate) fn close(&self, wait: Duration) -> Result<()> {
        self.admission.lower_wait(wait);
        // These wake code of users, so the lock is free.
        self.background.workers.close();
        self.catalogue.watches().stop(&Error::Closed);
        let closed = self.close_under_lock();
        self.storage.log().end_threads();
        closed
    }

    fn close_under_lock(&self) -> Result<()> {
        let mut daemons = self.background.daemons.lock();
        let Some(is_quiet) = self.admission.close() else { return Ok(()) };
        self.queues.close();
        // Losers of the restart are transactions, too. Their undo may need log that a checkpoint frees.
        let is_quiet = is_quiet && self.storage.undo().finish(|| self.admission.has_time()).unwrap_or(false);
        self.storage.checkpointer().retire();
        // Its thread does not rest from here on.
        self.storage.log().drive_archive(false);
        daemons.clear();
        let finished = self.storage.finish(is_quiet);
        pause::point("close: the last checkpoint is taken");
        let closed = finished.and(self.storage.stop());
        trace::closed(&self.storage.files().dir, &closed);
        closed
    }

    /// Rolls a transaction back, and counts its end. Returns the newest commit that it has seen.
    pub(crate) fn roll_back(&self, live: Live) -> Result<Csn> {
        let signals = live.signals_of_rollback();
        let txn = live.into_txn();
        let label = txn.label();
        let ended = txn.rollback();
        trace::rolled_back(label, &ended);
        self.admission.transaction_ended();
        self.catalogue.watches().signal(&signals);
        ended
    }

    /// Puts names into an error of a transaction: of tables, and of the oldest snapshot if a full data file keeps pages
    /// of dropped tables for it.
    pub(crate) fn put_names(&self, live: &Live, error: &mut Error) {
        self.catalogue.name_tables(live, error);
        if let Error::DiskFull { path, held_by: held_by @ None } = error
            && *path == self.storage.files().data
        {
            let oldest = self.admission.txns().visibility().oldest_snapshot();
            *held_by = oldest.filter(|oldest| self.reclaimer.holds_for(oldest.csn)).map(|oldest| oldest.label);
        }
    }
}

/// Background work of the engine itself, and closures of users.
pub(crate) struct Background {
    workers: Arc<WorkerPool>,
    /// Its threads. Locked while the database is closed.
    daemons: Mutex<Vec<Daemon>>,
    /// State of the random generator that draws a piece of work where there are no threads.
    draws: Mutex<u64>,
}

impl Background {
    pub(crate) fn new(seed: u64, has_threads: bool) -> Self {
        let daemons = Mutex::new(LockRank::Database, Vec::new());
        Self { workers: WorkerPool::new(has_threads), daemons, draws: Mutex::new(LockRank::Leaf, seed) }
    }

    /// Returns the threads that run closures of users.
    pub(crate) const fn workers(&self) -> &Arc<WorkerPool> {
        &self.workers
    }

    /// Adds a thread, which ends when the database is closed.
    pub(crate) fn add(&self, daemon: Daemon) {
        self.daemons.lock().push(daemon);
    }

    /// Draws a number.
    pub(crate) fn draw(&self) -> u64 {
        let mut state = self.draws.lock();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }
}
