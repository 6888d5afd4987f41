//! Undo beside new transactions: the database is open, and the losers of the restart still hold their rows.
//!
//! The undo is that of [`crate::undo()`], in small pieces: by a thread, or without one by the transactions that wait
//! for a loser. [`foreshore_txn::Losers`] says what losers hold until they have ended. Transactions wait for them as
//! for any holder of a row, and the undo waits for no transaction.
//!
//! | end of the run | what is left of the undo |
//! |---|---|
//! | close | nothing, if the time for transactions to end suffices |
//! | close, later, or with changes that cannot be undone | the losers that are left are listed by the last checkpoint; the next restart undoes them first, and parks what it cannot undo |
//! | crash | the same, as for a crash in the middle of any undo |
//!
//! The undo stops before a change that cannot be undone now, and tries it again. All that losers hold stays held.
//! After some failures it is *stuck*: until it gets on, transactions are refused instead of waiting for a loser. No
//! rollback is parked beside transactions. An error that a later try would not overcome stops the log, like a failed
//! rollback.

use crate::stats::UndoStats;
use crate::undo::{Next, Undo, UndoParts};
use crate::unended::Unended;
use foreshore_base::{Error, Result, Xid};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{Clock, LockRank, Mutex, NextWake, Parker, Step, SystemClock, pause};
use foreshore_txn::{Losers, LosersHold, ResourceManager, TxnManager};
use foreshore_wal::{Log, Recovered};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Changes that one piece undoes. The end of the thread waits for one piece.
const PIECE: usize = 32;
/// When a change that could not be undone is tried again. Each try costs a descent, and maybe a read or a system call.
const RETRY: Duration = Duration::from_millis(200);
/// How long the undo rests after a piece while the log slows its writers. It is then about a quarter as fast, and
/// leaves them most of the log that checkpoints make room for.
const SLOWED: Duration = Duration::from_millis(1);
/// Failures of one change from which on the undo is stuck. Fewer may be due to the load of a moment.
const STUCK: u64 = 3;

/// The losers of a restart that are undone beside new transactions, if there are any.
pub struct OpenUndo {
    log: Log,
    running: Mutex<Option<Running>>,
    /// Whether a thread undoes them. Without one, their waiters do.
    has_thread: AtomicBool,
    /// Called when all losers have ended.
    on_end: OnceLock<Box<dyn Fn() + Send + Sync>>,
    clock: SystemClock,
    losers: u64,
    pending: AtomicU64,
    undone: AtomicU64,
    /// Failed tries of the next change.
    failures: AtomicU64,
    nanos: AtomicU64,
}

/// The state of the undo.
struct Running {
    undo: Undo,
    losers: Losers,
    recovered: Recovered,
    manager: Arc<dyn ResourceManager>,
}

impl OpenUndo {
    /// Returns the undo of no loser.
    #[must_use]
    pub fn none(log: &Log) -> Arc<Self> {
        Self::of(log, None)
    }

    /// Begins the undo of losers, which hold `hold` from here on. No transaction has begun, but for prepared ones.
    ///
    /// # Errors
    /// Those of [`TxnManager::hold_losers`].
    pub fn begin(
        log: &Log,
        txns: &Arc<TxnManager>,
        manager: Arc<dyn ResourceManager>,
        recovered: Recovered,
        (unended, hold): (Unended, LosersHold),
    ) -> Result<Arc<Self>> {
        let undo = Undo::new(unended);
        assert_eq!(undo.losers(), hold.losers.len(), "each loser is held");
        let losers = txns.hold_losers(hold)?;
        let running = Running { undo, losers, recovered, manager };
        let this = Self::of(log, Some(running));
        let weak = Arc::downgrade(&this);
        txns.help_losers(Box::new(move || weak.upgrade().is_some_and(|this| this.help())));
        pause::point("restart: losers wait for their undo");
        Ok(this)
    }

    fn of(log: &Log, running: Option<Running>) -> Arc<Self> {
        let losers = running.as_ref().map_or(0, |running| running.undo.losers() as u64);
        Arc::new(Self {
            log: log.clone(),
            running: Mutex::new(LockRank::RestartUndo, running),
            has_thread: AtomicBool::new(false),
            on_end: OnceLock::new(),
            clock: SystemClock::new(),
            losers,
            pending: AtomicU64::new(losers),
            undone: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        })
    }

    /// Returns whether losers are left.
    #[must_use]
    pub fn is_running(&self) -> bool {
        // ORDERING: Acquire, pairs with `undo_piece`.
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Notes that a thread runs the step from here on.
    pub fn has_thread(&self) {
        // ORDERING: hint; a waiter that misses it undoes some changes itself.
        self.has_thread.store(true, Ordering::Relaxed);
    }

    /// Sets a function that is called when all losers have ended, without a lock. Later calls have no effect.
    pub fn on_end(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_end.set(Box::new(call));
    }

    /// Undoes all that is left while `may_wait` returns true, and returns whether nothing is left. A thread may run the
    /// step, too.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn finish(&self, may_wait: impl Fn() -> bool) -> Result<bool> {
        while self.is_running() && may_wait() {
            match self.step() {
                NextWake::Now => {}
                NextWake::After(time) if !self.is_stuck() => self.rest(time),
                NextWake::After(_) | NextWake::OnSignal => break,
            }
        }
        match self.log.poisoned() {
            Some(cause) => Err(Error::poisoned(&cause)),
            None => Ok(!self.is_running()),
        }
    }

    /// Rests between two steps of [`finish`](Self::finish). Without threads nothing depends on time.
    fn rest(&self, time: Duration) {
        // ORDERING: hint, as in `has_thread`.
        if self.has_thread.load(Ordering::Relaxed) {
            // WAIT: park - for the time alone, with nothing held.
            Parker::current().park_timeout(time);
        }
    }

    /// Returns the counters of the undo; `None` if there was no loser to undo.
    #[must_use]
    pub fn stats(&self) -> Option<UndoStats> {
        // ORDERING: hint, for statistics.
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (pending_losers, undone) = (count(&self.pending), count(&self.undone));
        let parked = if self.is_stuck() { pending_losers } else { 0 };
        let (losers, undo_time) = (self.losers, Duration::from_nanos(count(&self.nanos)));
        (losers > 0).then_some(UndoStats { losers, pending_losers, undone, parked, undo_time })
    }

    /// Undoes some changes for a transaction that waits for a loser. Returns false if it has to wait instead.
    fn help(&self) -> bool {
        // ORDERING: hint, as in `has_thread`.
        !self.has_thread.load(Ordering::Relaxed)
            && match self.step() {
                NextWake::Now => true,
                NextWake::After(_) => !self.is_stuck(),
                NextWake::OnSignal => false,
            }
    }

    fn is_stuck(&self) -> bool {
        // ORDERING: hint, for statistics, and for a helper that has counted the failures itself.
        self.failures.load(Ordering::Relaxed) >= STUCK
    }

    /// Undoes at most [`PIECE`] changes, and returns what is left.
    fn undo_piece(&self, running: &mut Running) -> Result<Left> {
        let Running { undo, losers, recovered, manager } = running;
        let beside = Some(losers.first_xid());
        for _ in 0..PIECE {
            let mut parts = UndoParts { recovered, manager: &**manager, session: losers.session(), beside };
            match undo.next(&mut parts)? {
                Next::Step { is_undone, ended } => {
                    self.succeeded(losers);
                    // ORDERING: hint, for statistics.
                    self.undone.fetch_add(u64::from(is_undone), Ordering::Relaxed);
                    ended.into_iter().for_each(|loser| self.end(losers, loser));
                }
                Next::Stuck(cause) => {
                    losers.session().release();
                    self.failed(losers, cause);
                    return Ok(Left::Later);
                }
                Next::Over => {
                    losers.session().release();
                    losers.finish()?;
                    pause::point("restart: all losers have ended");
                    return Ok(Left::Nothing);
                }
            }
        }
        // Other sessions may wait for its lane.
        losers.session().release();
        Ok(Left::Changes)
    }

    /// Notes a failed try. Waiters are refused from the one on by which the undo is stuck.
    fn failed(&self, losers: &mut Losers, cause: Error) {
        // ORDERING: hint, as in `is_stuck`. Under the lock.
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == STUCK {
            losers.refuse(cause);
        }
        pause::point("restart: a try of the undo has failed");
    }

    /// Notes that the undo gets on.
    fn succeeded(&self, losers: &mut Losers) {
        if self.is_stuck() {
            losers.wait_again();
        }
        // ORDERING: hint, as in `is_stuck`. Under the lock.
        self.failures.store(0, Ordering::Relaxed);
    }

    fn end(&self, losers: &mut Losers, loser: Xid) {
        losers.end(loser);
        // The last one counts until all is released.
        // ORDERING: hint, for statistics.
        self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some((left - 1).max(1))).ok();
        pause::point("restart: a loser has ended beside transactions");
    }
}

/// What a piece leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Changes,
    /// Changes, and the next one cannot be undone now.
    Later,
    Nothing,
}

impl Step for OpenUndo {
    fn step(&self) -> NextWake {
        let mut running = self.running.lock();
        let Some(state) = running.as_mut().filter(|_| self.log.poisoned().is_none()) else { return NextWake::OnSignal };
        let began = self.clock.now();
        let left = self.undo_piece(state);
        // ORDERING: hint, for statistics.
        self.nanos.fetch_add(self.clock.now().since(began).as_nanos() as u64, Ordering::Relaxed);
        if matches!(left, Ok(Left::Nothing)) {
            *running = None;
            // ORDERING: Release, pairs with `is_running`.
            self.pending.store(0, Ordering::Release);
        }
        drop(running);
        if matches!(left, Ok(Left::Nothing)) {
            self.on_end.get().into_iter().for_each(|call| call());
        }
        match left {
            Ok(Left::Changes) if self.log.slows_writers() => NextWake::After(SLOWED),
            // Also when all is over: a helper then finds its holder ended.
            Ok(Left::Changes | Left::Nothing) => NextWake::Now,
            Ok(Left::Later) => NextWake::After(RETRY),
            Err(cause) => {
                self.log.poison(&cause);
                NextWake::OnSignal
            }
        }
    }
}
