//! The transaction manager: what all transactions of a database share.

use crate::ceiling::{Bound, RAISE_COST, Xids};
use crate::kept::KeptPages;
use crate::last_row::LastRow;
use crate::leases::Leases;
use crate::line::Line;
use crate::parked::ParkedList;
use crate::pins::Pins;
use crate::readers::{Readers, SnapshotLimits};
use crate::resource::ResourceManager;
use crate::slot::{self, ActiveSlots};
use crate::status::{Status, StatusWindow};
use crate::status_table::StatusTable;
use crate::undo::{Arena, SpillFile, Undo};
use crate::view::{KeptView, View, Views};
use foreshore_base::{Csn, Error, GroupNo, Result, Xid};
use foreshore_lock::{LockManager, Owner};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::AtomicBool;
use foreshore_sync::{EventCount, Nanos, ShardedCounter, SystemClock, pause};
use foreshore_wal::{Log, Session};
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

/// Xids drawn between two moves of the status window.
pub(crate) const SLIDE_STRIDE: u64 = 4096;

/// Sizes of a transaction manager.
#[derive(Clone, Debug)]
pub struct TxnManagerOptions {
    /// Transactions at once: with the engine's own no more than the log has sessions and the lock manager owners.
    pub max_sessions: usize,
    /// Transactions of the engine's own at once, beside those (see [`TxnManager::begin_own`]).
    pub own_sessions: usize,
    /// Snapshots in use at once that need no lock to be taken.
    pub snapshot_slots: usize,
    /// Words of the status window, 8 bytes each, a power of two. A transaction that still runs when half as many xids were drawn after
    /// its own is pinned, and at most half of the words may be those of pinned ones. Sessions may have drawn an eighth of them
    /// for later.
    pub status_capacity: usize,
    /// Bytes that the undo of all transactions may take together: 16 KiB at least.
    pub undo_limit_bytes: usize,
    /// Where undo goes when those are spent.
    pub spill: Option<SpillFile>,
    /// How long a transaction waits for undo memory that others hold. [`Duration::MAX`] is no limit.
    pub undo_patience: Duration,
    /// Snapshots beyond these are given up by writers that look for old versions that no transaction needs.
    pub snapshot_limits: SnapshotLimits,
    /// Xids handed out between two moves of the ceiling, at least 2. A restart skips up to as many.
    pub xid_block: u64,
    /// `None`: a commit releases its locks when its record is appended. With a function, which is called then and may release
    /// some, it holds the others until it is durable, and with them its session.
    pub hold_until_durable: Option<PrecommitRelease>,
}

/// Releases what a commit need not hold until it is durable. Locks of written rows are their headers, and stay.
pub type PrecommitRelease = fn(&LockManager, &mut Owner);

impl Default for TxnManagerOptions {
    fn default() -> Self {
        Self {
            max_sessions: 1024,
            own_sessions: 0,
            snapshot_slots: 1024,
            status_capacity: 1 << 20,
            undo_limit_bytes: 128 << 20,
            spill: None,
            undo_patience: Duration::from_secs(10),
            snapshot_limits: SnapshotLimits::NONE,
            xid_block: 1 << 16,
            hold_until_durable: None,
        }
    }
}

/// Where a manager takes up after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The largest xid ceiling seen; 1 in a new database.
    pub next_xid: Xid,
    /// The largest commit number seen.
    pub clock: Csn,
}

/// The transactions as a checkpoint has to record them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointView {
    /// A transaction with an xid below it that is not in `active` has ended, with its last LSN at or below `clock`.
    pub next_xid: Xid,
    /// Running transactions that have an xid, each with the first log group that may hold a record of it. `None`: its first record
    /// comes in the log's next group as of before the look, or later. An xid at or above `next_xid` may be among them.
    pub active: Vec<(Xid, Option<GroupNo>)>,
    /// No xid at or above it has been handed out.
    pub ceiling: Xid,
    /// At or above the last LSN of every transaction that counts as ended.
    pub clock: Csn,
    /// Xids below it that are not in `active` are frozen: their fate is durable.
    pub window_lo: Xid,
}

/// What a transaction leases for its time.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) session: Session,
    pub(crate) owner: Owner,
    pub(crate) undo: Undo,
    pub(crate) view: KeptView,
    /// Whether it is for the engine's own transactions.
    pub(crate) is_own: bool,
    pub(crate) last_row: LastRow,
    /// Where a change is encoded.
    pub(crate) buffer: Vec<u8>,
    /// The shard of [`Leases`] that it goes back to.
    pub(crate) home: usize,
}

/// Makes transactions and knows what became of them.
pub struct TxnManager {
    pub(crate) log: Log,
    pub(crate) locks: Arc<LockManager>,
    pub(crate) window: StatusWindow,
    pub(crate) xids: Xids,
    pub(crate) active: ActiveSlots,
    /// Xids that a session draws at once, at most (see [`slot::draws`]).
    pub(crate) draws: u64,
    pub(crate) readers: Readers,
    pub(crate) pins: Pins,
    pub(crate) views: Views,
    pub(crate) time: SystemClock,
    pub(crate) kept_pages: KeptPages,
    /// The largest commit number at the start.
    first_clock: Csn,
    /// A rollback was given up: the rows of its transaction stay locked for ever, and no transaction may wait for them.
    pub(crate) halted: AtomicBool,
    pub(crate) parked: ParkedList,
    resources: OnceLock<Arc<dyn ResourceManager>>,
    pub(crate) table: OnceLock<Arc<dyn StatusTable>>,
    leases: Leases,
    own_leases: Leases,
    /// Where threads wait for a lease to come back.
    pub(crate) returned: EventCount,
    pub(crate) line: Line,
    pub(crate) undo: Arc<Arena>,
    pub(crate) max_sessions: usize,
    pub(crate) hold_until_durable: Option<PrecommitRelease>,
    pub(crate) undo_patience: Duration,
    pub(crate) snapshot_limits: SnapshotLimits,
    pub(crate) kills: ShardedCounter,
    pub(crate) commits: ShardedCounter,
    pub(crate) aborts: ShardedCounter,
}

impl TxnManager {
    /// A manager that takes up at `start`.
    ///
    /// # Errors
    /// `Io` when memory cannot be mapped.
    ///
    /// # Panics
    /// When an option is outside its range.
    pub fn new(options: TxnManagerOptions, log: Log, locks: Arc<LockManager>, start: Start) -> Result<Arc<Self>> {
        let sessions = options.max_sessions + options.own_sessions;
        assert!(sessions > 0, "somebody may begin a transaction");
        assert!(options.status_capacity >= 16, "the window is moved by eighths");
        assert!(options.snapshot_slots > 0, "a transaction may read");
        let window = StatusWindow::new(options.status_capacity, sessions, start.next_xid)?;
        let (readers, pins) = (Readers::new(options.snapshot_slots), Pins::new(sessions));
        let first_view = View::of(&readers, &pins, window.late(), || log.durable().csn());
        let undo = Arc::new(Arena::new(options.undo_limit_bytes, options.spill)?);
        locks.watch_waits(undo.changed().clone());
        let manager = Arc::new(Self {
            log,
            locks,
            window,
            xids: Xids::new(start.next_xid, options.xid_block),
            active: ActiveSlots::new(sessions),
            draws: slot::draws(options.status_capacity, sessions),
            readers,
            pins,
            views: Views::new(first_view),
            time: SystemClock::new(),
            kept_pages: KeptPages::default(),
            first_clock: start.clock,
            halted: AtomicBool::new(false),
            parked: ParkedList::new(),
            resources: OnceLock::new(),
            table: OnceLock::new(),
            leases: Leases::at_most(options.max_sessions),
            own_leases: Leases::at_most(options.own_sessions),
            returned: EventCount::new(),
            line: Line::default(),
            undo,
            max_sessions: options.max_sessions,
            hold_until_durable: options.hold_until_durable,
            undo_patience: options.undo_patience,
            snapshot_limits: options.snapshot_limits,
            kills: ShardedCounter::new(),
            commits: ShardedCounter::new(),
            aborts: ShardedCounter::new(),
        });
        let weak = Arc::downgrade(&manager);
        manager.log.on_stop(move || {
            if let Some(manager) = weak.upgrade() {
                manager.stop(&manager.log.poisoned().unwrap_or(Error::Closed));
            }
        });
        let weak = Arc::downgrade(&manager);
        manager.log.on_shortage(move || weak.upgrade().map_or(0, |manager| manager.take_idle_undo_log()));
        Ok(manager)
    }

    /// Names the manager that undoes changes. Once, before the first transaction writes.
    ///
    /// # Panics
    /// The second time.
    pub fn set_resource_manager(&self, resources: Arc<dyn ResourceManager>) {
        assert!(self.resources.set(resources).is_ok(), "the resource manager is wired once");
    }

    pub(crate) const fn leases(&self, is_own: bool) -> &Leases {
        if is_own { &self.own_leases } else { &self.leases }
    }

    /// What a checkpoint has to record. The caller has loaded the log's next group before. Xids that sessions keep for later are
    /// taken from them, so that none below the next one is still to be used.
    #[must_use]
    pub fn checkpoint_view(&self) -> CheckpointView {
        // The next xid before the slots: see `ActiveSlots`. The clock after them: a thread that has left its slot is in it.
        let next_xid = self.xids.next();
        let active = self.void_left(next_xid).iter().map(|active| (active.xid, active.first_group)).collect();
        let (clock, window_lo) = (self.clock(), self.window.lo());
        let ceiling = self.xids.ceiling();
        assert!(next_xid <= ceiling, "a checkpoint with the xid {next_xid} next, and {ceiling} as the ceiling");
        CheckpointView { next_xid, active, ceiling, clock, window_lo }
    }

    /// The first record of the transaction with this number of an owner is about to be appended.
    pub(crate) fn note_first_record(&self, owner: usize) {
        if !mutant("txn: checkpoints overlook the first record") {
            self.active.note_first_record(owner, || self.log.next_group());
        }
    }

    /// The time by the clock that stamps the begins of transactions.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.locks.now()
    }

    /// At or above the last LSN and the commit number of every transaction that has ended.
    #[must_use]
    pub fn clock(&self) -> Csn {
        self.log.current().csn().max(self.first_clock)
    }

    /// Makes room for the next xid, which was refused. `kept_back`: from the log space for rollbacks, if need be.
    pub(crate) fn raise_limit(&self, session: &mut Session, kept_back: bool) -> Result<()> {
        match self.xids.settle(&self.log, &self.window) {
            Bound::None => return Ok(()),
            Bound::Ceiling => {
                if kept_back {
                    session.reserve_rollback(RAISE_COST)?
                } else {
                    session.reserve(RAISE_COST)?
                }
                if let Some(lsn) = self.xids.raise(session, &self.log)? {
                    // WAIT: help - or park behind the leader. Only when half a block of xids went faster than one write.
                    self.log.force(lsn)?;
                }
            }
            Bound::Window => {
                if self.slide(u64::MAX) == 0 {
                    // WAIT: help - or park behind the leader: the oldest commit in the window is not durable.
                    self.log.force(self.log.current())?;
                    pause::point("txn: the window is full");
                    if self.is_window_held() && self.xids.settle(&self.log, &self.window) == Bound::Window {
                        let oldest = self.oldest_transaction().map_or("", |active| active.label);
                        return Err(Error::TooManyTransactions { max: self.window.capacity(), oldest });
                    }
                }
            }
        }
        self.xids.settle(&self.log, &self.window);
        Ok(())
    }

    /// Whether transactions that run hold the window: as many as it can pin, and one more. One that has only just committed keeps
    /// it until that is durable.
    fn is_window_held(&self) -> bool {
        let lo = self.window.lo();
        if self.is_window_waiting() {
            self.void_left(self.xids.next());
        }
        self.slide(u64::MAX) == 0 && self.window.lo() == lo && self.window.get(lo) == Status::Live
    }

    /// Moves window and ceiling on ahead of need, by the thread that drew `xid`.
    pub(crate) fn keep_ahead(&self, xid: Xid, session: &mut Session) -> Result<()> {
        let stride = SLIDE_STRIDE.min(self.window.capacity() as u64 / 8);
        if xid.0.is_multiple_of(stride) {
            self.void_old();
            // Faster than xids are drawn, so that it catches up after an old transaction has ended.
            self.slide(4 * stride);
            self.prepare_status(xid)?;
        }
        if self.xids.is_near(xid) {
            session.reserve(RAISE_COST)?;
            if let Some(lsn) = self.xids.raise(session, &self.log)? {
                self.log.flush_soon(session, lsn);
            }
        }
        Ok(())
    }

    /// Has the status table, if there is one, make itself ready for xids ahead of `xid`.
    pub(crate) fn prepare_status(&self, xid: Xid) -> Result<()> {
        self.table.get().map_or(Ok(()), |table| table.prepare(xid))
    }

    fn slide(&self, most: u64) -> u64 {
        self.window.slide(self.xids.next(), self.log.durable().csn(), most, &self.readers)
    }

    /// Whether the rows of a commit still count as locked by it.
    pub(crate) fn keeps_rows_until_durable(&self, csn: Csn) -> bool {
        let is_kept = self.hold_until_durable.is_some() && csn.lsn() > self.log.durable();
        is_kept && !mutant("sabotage: rows are free before their commit is durable")
    }

    pub(crate) fn resources(&self) -> &dyn ResourceManager {
        &**self.resources.get().expect("the resource manager is wired before the first write")
    }
}

impl fmt::Debug for TxnManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxnManager").field("xids", &self.xids).field("clock", &self.clock()).finish_non_exhaustive()
    }
}
