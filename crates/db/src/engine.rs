//! The layers of an open database and how they are connected.

use crate::close::Idle;
use crate::damage::Damage;
use crate::fence::Gate;
use crate::files::Files;
use crate::max_age::AgingTransactions;
use crate::options::check_limits;
use crate::prepared::PreparedList;
use crate::profile::Profiler;
use crate::purge::Purger;
use crate::reclaim::Reclaimer;
use crate::run::Queues;
use crate::tables::{TableInfo, Tables};
use crate::{MemoryShares, Options, TxnOptions};
use foreshore_base::{Error, Result};
use foreshore_btree::{Tree, Trees};
use foreshore_buffer::Pool;
use foreshore_io::{DirLock, File, Fs};
use foreshore_recovery::{Checkpointer, RecoveryStats};
use foreshore_space::Space;
use foreshore_sync::primitive::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use foreshore_sync::{BiasedRef, Daemon, LockRank, Mutex, Nanos, ShardedCounter, Step};
use foreshore_txn::{ManagerRef, SnapshotLimits, Txn, TxnManager};
use foreshore_wal::Log;
use std::sync::Arc;
use std::time::Duration;

/// State of an engine.
///
/// ```text
/// OPEN -> CLOSING -> CLOSED
/// ```
///
/// Only `close` writes it, under the `closing` mutex. In CLOSING no transaction begins and running ones go on; in
/// CLOSED every operation is refused.
pub(crate) const OPEN: u8 = 0;
pub(crate) const CLOSING: u8 = 1;
pub(crate) const CLOSED: u8 = 2;

/// Parts that the first `close` takes apart.
pub(crate) struct Closing {
    /// Threads that the engine itself drives.
    pub(crate) daemons: Vec<Daemon>,
    /// The directory's lock.
    pub(crate) lock: Option<Box<dyn DirLock>>,
}

/// A transaction's reference to the engine.
pub(crate) type EngineRef = BiasedRef<Arc<Engine>>;

/// An open database.
pub(crate) struct Engine {
    pub(crate) files: Files,
    pub(crate) options: Options,
    pub(crate) memory: MemoryShares,
    /// The file system as given, without the gate, to open the directory again.
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) backend: String,
    pub(crate) gate: Arc<Gate>,
    pub(crate) data: Arc<dyn File>,
    pub(crate) log: Log,
    pub(crate) pool: Pool,
    pub(crate) space: Arc<Space>,
    pub(crate) txns: Arc<TxnManager>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) catalogue: Tree,
    pub(crate) tables: Tables<TableInfo>,
    /// Dropped tables whose pages are not all free yet.
    pub(crate) reclaimer: Reclaimer,
    /// Leaves with deleted rows.
    pub(crate) purger: Purger,
    /// Transactions that wait to be resolved.
    pub(crate) prepared: PreparedList,
    /// Damaged pages.
    pub(crate) damage: Damage,
    /// Last table id given out.
    pub(crate) last_table: AtomicU32,
    pub(crate) checkpointer: Arc<Checkpointer>,
    pub(crate) recovery: RecoveryStats,
    pub(crate) state: AtomicU8,
    pub(crate) closing: Mutex<Closing>,
    /// Transactions that asked to begin, and those that ended: two sums, so that no counter is written by two threads.
    pub(crate) begun: ShardedCounter,
    pub(crate) ended: ShardedCounter,
    /// The wait of `close` for the last transaction.
    pub(crate) idle: Idle,
    /// Transactions that may become too old.
    pub(crate) aging: AgingTransactions,
    /// The queues of retried transactions and of checks. A single check runs at a time, since one session is reserved
    /// for it.
    pub(crate) queues: Queues,
    pub(crate) profiler: Profiler,
    /// State of the random generator of [`step`](Self::step).
    pub(crate) steps: Mutex<u64>,
}

impl Engine {
    /// Refuses operations on a database that is closed or stopped.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        // ORDERING: hint. An operation that is let through although `close` has just stored CLOSED meets a stopped log.
        if self.state.load(Ordering::Relaxed) == CLOSED {
            return Err(Error::Closed);
        }
        match self.log.poisoned() {
            None => Ok(()),
            Some(cause) => Err(Error::poisoned(&cause)),
        }
    }

    /// Begins a transaction of the layer `txn`.
    pub(crate) fn begin(&self, options: TxnOptions) -> Result<Txn> {
        self.begin_by(self.txns.reference(), options)
    }

    /// Begins a transaction that holds the manager by `txns`.
    pub(crate) fn begin_by(&self, txns: ManagerRef, options: TxnOptions) -> Result<Txn> {
        self.begun.add(1);
        // ORDERING: store, fence, look: counted above, pairs with `close`, which stores CLOSING and then looks at the
        // counters. One of the two sees the other.
        fence(Ordering::SeqCst);
        let begun = match self.state.load(Ordering::Relaxed) {
            OPEN => self.below(options).and_then(|below| match TxnManager::begin_by(txns, below) {
                Err(Error::TooManyTransactions { .. }) if options.is_check => self.txns.begin_system(below),
                begun => begun,
            }),
            _ => Err(Error::Closed),
        };
        begun.inspect_err(|_| self.transaction_ended())
    }

    /// Returns when the transaction that `error` kept from beginning was requested.
    pub(crate) fn failed_to_begin(&self, options: TxnOptions, error: &crate::Error) -> Nanos {
        let now = options.attempt.first.unwrap_or_else(|| self.txns.now());
        match self.below(options) {
            _ if options.attempt.first.is_some() => now,
            Ok(below) if matches!(error, crate::Error::TooManyTransactions { .. }) => now - below.session_timeout,
            _ => now,
        }
    }

    /// Begins a transaction of background work. It uses no session of users and is not counted: `close` waits for its
    /// thread before the last checkpoint.
    pub(crate) fn begin_own(&self, options: TxnOptions) -> Result<Txn> {
        // ORDERING: hint. The thread ends soon, even if it misses that the database closes.
        match self.state.load(Ordering::Relaxed) {
            OPEN => self.below(options).and_then(|below| self.txns.begin_system(below)),
            _ => Err(Error::Closed),
        }
    }

    /// Runs `work`, for which `close` waits as for a transaction, also where the log has stopped.
    pub(crate) fn working<T>(&self, work: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        self.begun.add(1);
        // ORDERING: store, fence, look: as in `begin`.
        fence(Ordering::SeqCst);
        let done = match self.state.load(Ordering::Relaxed) {
            OPEN => work(),
            _ => Err(crate::Error::Closed),
        };
        self.transaction_ended();
        done
    }

    /// Returns the options for the layer `txn`. Refuses what [`Self::check_open`] does, and limits out of range.
    fn below(&self, options: TxnOptions) -> Result<foreshore_txn::TxnOptions> {
        self.check_open()?;
        let SnapshotLimits { max_age, max_bytes } = self.options.snapshot_limits;
        let snapshot_limits = SnapshotLimits {
            max_age: options.snapshot_max_age.unwrap_or(max_age),
            max_bytes: options.snapshot_max_bytes.unwrap_or(max_bytes),
        };
        check_limits(snapshot_limits)?;
        let lock_timeout = options.lock_timeout.unwrap_or(self.options.lock_timeout);
        // A check has a reserved session where none is free.
        let session_timeout = if options.is_check { Duration::ZERO } else { lock_timeout };
        Ok(foreshore_txn::TxnOptions {
            label: options.label,
            lock_timeout,
            session_timeout: options.deadline.map_or(session_timeout, |deadline| deadline.min(session_timeout)),
            deadline: options.deadline,
            attempt: options.attempt,
            isolation: options.isolation,
            reads: options.reads,
            snapshot_limits: Some(snapshot_limits),
        })
    }

    /// Counts the end of a transaction that has begun.
    #[inline]
    pub(crate) fn transaction_ended(&self) {
        self.ended.add(1);
        self.idle.event.notify_all();
    }

    /// Returns whether no transaction runs. Exact once the state refuses new ones.
    pub(crate) fn is_idle(&self) -> bool {
        // The ends are read first: if they equal the begins read after, no transaction runs.
        let ended = self.ended.sum();
        ended == self.begun.sum()
    }

    /// Runs one piece of background work, drawn by the seed.
    pub(crate) fn step(&self) {
        let draw = {
            let mut state = self.steps.lock();
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *state >> 33
        };
        match draw % 5 {
            0 => {
                self.log.flush_step();
            }
            1 => {
                self.log.prepare_step();
            }
            // A failure of these stops the log, which all callers learn.
            2 => drop(self.pool.clean_step()),
            3 => drop(self.pool.reclaim_step()),
            _ => {
                Step::step(&*self.checkpointer);
                self.space.extend_step();
                drop(self.reclaim_some());
                self.purge_step();
                self.end_old_transactions();
                self.txns.retry_parked();
            }
        }
    }
}

impl Closing {
    pub(crate) fn new(lock: Box<dyn DirLock>) -> Mutex<Self> {
        Mutex::new(LockRank::Database, Self { daemons: Vec::new(), lock: Some(lock) })
    }
}
