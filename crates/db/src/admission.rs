//! Admission of transactions while a database is open, and the wait for their end when it closes.

use crate::TxnOptions;
use crate::options::{Options, check_limits};
use foreshore_base::{Error, Result};
use foreshore_sync::primitive::atomic::{AtomicU8, AtomicU64, Ordering};
use foreshore_sync::{Clock, EventCount, Nanos, ShardedCounter, SparingFence, SystemClock};
use foreshore_txn::{ManagerRef, SnapshotLimits, Txn, TxnManager};
use foreshore_wal::Log;
use std::{sync::Arc, time::Duration};

/// State of a database.
///
/// ```text
/// OPEN -> CLOSING -> CLOSED
/// ```
///
/// Only [`Admission::close`] writes it, and one thread at a time calls that. In CLOSING no transaction begins and
/// running ones go on; in CLOSED every operation is refused.
const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// Begins transactions while the database is open, and counts those that run.
pub(crate) struct Admission {
    txns: Arc<TxnManager>,
    log: Log,
    /// For transactions that set none.
    lock_timeout: Duration,
    snapshot_limits: SnapshotLimits,
    state: AtomicU8,
    /// Transactions that asked to begin, and those that ended: two sums, so that no counter is written by two threads.
    begun: ShardedCounter,
    ended: ShardedCounter,
    /// Transactions that begin are the light side, `close` is the heavy one.
    fence: SparingFence,
    /// The wait of `close` for the last transaction.
    idle: Idle,
}

impl Admission {
    pub(crate) fn new(txns: Arc<TxnManager>, log: Log, options: &Options) -> Self {
        let (lock_timeout, snapshot_limits) = options.for_transaction();
        let (begun, ended) = (ShardedCounter::wide(), ShardedCounter::wide());
        let (state, fence, idle) = (AtomicU8::new(OPEN), SparingFence::new(), Idle::new());
        Self { txns, log, lock_timeout, snapshot_limits, state, begun, ended, fence, idle }
    }

    /// Returns the transaction manager.
    pub(crate) const fn txns(&self) -> &Arc<TxnManager> {
        &self.txns
    }

    /// Returns the time by the clock of the lock manager.
    pub(crate) fn now(&self) -> Nanos {
        self.txns.now()
    }

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
        // Store, fence, look: pairs with the fence of `close`. If this one is first, `close` counts the transaction and
        // waits for it. If that one is first, the transaction finds CLOSING and does not begin. Two that begin need no
        // order.
        self.fence.light();
        // ORDERING: Relaxed, ordered by the fence.
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

    /// Begins a transaction that serves a running one, for which `close` waits. Like [`begin_own`](Self::begin_own)
    /// otherwise.
    pub(crate) fn begin_for_running(&self, options: TxnOptions) -> Result<Txn> {
        // Refuses what is closed, and not what is closing.
        self.below(options).and_then(|below| self.txns.begin_system(below))
    }

    /// Runs `work`, also if the log has stopped. `close` waits for it as for a transaction.
    pub(crate) fn delaying_close<T>(&self, work: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        self.begun.add(1);
        // Store, fence, look: as in `begin_by`.
        self.fence.light();
        // ORDERING: Relaxed, ordered by the fence.
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
        let SnapshotLimits { max_age, max_bytes } = self.snapshot_limits;
        let snapshot_limits = SnapshotLimits {
            max_age: options.snapshot_max_age.unwrap_or(max_age),
            max_bytes: options.snapshot_max_bytes.unwrap_or(max_bytes),
        };
        check_limits(snapshot_limits)?;
        let lock_timeout = options.lock_timeout.unwrap_or(self.lock_timeout);
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
    fn is_idle(&self) -> bool {
        // The ends are read first: if they equal the begins read after, no transaction runs.
        let ended = self.ended.sum();
        ended == self.begun.sum()
    }

    /// Asks for an end of the wait of [`close`](Self::close), at the latest `wait` from now.
    pub(crate) fn lower_wait(&self, wait: Duration) {
        self.idle.lower(wait);
    }

    /// Returns whether the time is left that callers of [`close`](Self::close) give to transactions.
    pub(crate) fn has_time(&self) -> bool {
        !self.idle.left().is_zero()
    }

    /// Refuses new transactions, waits for running ones, and then refuses all operations and ends their waits. Returns
    /// whether all transactions have ended; `None` if the database is closed already.
    pub(crate) fn close(&self) -> Option<bool> {
        // ORDERING: hint. The caller's mutex orders the writers, and this is one.
        if self.state.load(Ordering::Relaxed) == CLOSED {
            return None;
        }
        // Store, fence, look: pairs with the fence of `begin_by`. A transaction that is not counted below finds the new
        // state and does not begin.
        // ORDERING: Relaxed, ordered by the fence.
        self.state.store(CLOSING, Ordering::Relaxed);
        self.fence.heavy();
        let is_quiet = self.wait_for_transactions();
        // ORDERING: hint, see `check_open`.
        self.state.store(CLOSED, Ordering::Relaxed);
        self.txns.stop(&self.log.poisoned().unwrap_or(Error::Closed));
        Some(is_quiet)
    }

    /// Waits for all transactions until the deadline, and returns whether they have ended.
    fn wait_for_transactions(&self) -> bool {
        loop {
            let key = self.idle.event.prepare();
            if self.is_idle() {
                self.idle.event.cancel(key);
                return true;
            }
            let left = self.idle.left();
            if left.is_zero() {
                self.idle.event.cancel(key);
                return false;
            }
            // WAIT: park - for transactions to end or the deadline to be lowered, each of which notifies, or until that
            // time.
            self.idle.event.wait(key, Some(left));
        }
    }
}

/// The wait of a close for running transactions, until the earliest end that any call of `close` asks for.
///
/// **Invariant:** the end never moves to a later time. So a call waits no longer than it asks for, even if another call
/// closes.
struct Idle {
    /// Notified when a transaction has ended.
    event: EventCount,
    clock: SystemClock,
    until: AtomicU64,
}

impl Idle {
    fn new() -> Self {
        Self { event: EventCount::with_rare_waits(), clock: SystemClock::new(), until: AtomicU64::new(Nanos::MAX.0) }
    }

    /// Asks for an end `wait` from now.
    fn lower(&self, wait: Duration) {
        // ORDERING: Relaxed, the notification orders it before the check of the thread that waits.
        self.until.fetch_min((self.clock.now() + wait).0, Ordering::Relaxed);
        self.event.notify_all();
    }

    /// The time that is left.
    fn left(&self) -> Duration {
        // ORDERING: Relaxed, as in `lower`: read between `prepare` and `wait`.
        Nanos(self.until.load(Ordering::Relaxed)).since(self.clock.now())
    }
}
