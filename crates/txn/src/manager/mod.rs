//! The transaction manager: what all transactions of a database share.

mod forward;
mod rollback;
mod txn;

pub use forward::Forward;
pub use txn::{
    InDoubt, Losers, LosersHold, MAX_PREPARED_NAME, Prepared, RowHolder, TakenOver, Txn, TxnOptions, Unfinished,
};

use crate::halt::Halt;
use crate::parked::ParkedList;
use crate::resource::ResourceManager;
use crate::sessions::Sessions;
use crate::undo::{Arena, Holders, SpillFile, UndoSpace};
use crate::visibility::status::StatusWindow;
use crate::visibility::{SnapshotLimits, Visibility};
use crate::xids::Xids;
use foreshore_base::{Csn, Error, GroupNo, Lockable, Result, Xid};
use foreshore_lock::{LockManager, LockStats, Owner};
use foreshore_sync::model::mutant;
use foreshore_sync::{BiasedRef, EventCount, Hot, Nanos, ShardedCounter};
use foreshore_wal::Log;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sizes of a transaction manager.
#[derive(Clone, Debug)]
pub struct TxnManagerOptions {
    /// Most transactions at once. The sum of this and `system_sessions` must exceed neither the sessions of the log nor
    /// the owners of the lock manager.
    pub max_sessions: usize,
    /// Most system transactions at once, beside `max_sessions` (see [`TxnManager::begin_system`]).
    pub system_sessions: usize,
    /// Snapshots in use at once that are taken without a lock. A snapshot beyond these takes a lock.
    pub snapshot_slots: usize,
    /// Words of the status window, 8 bytes each, a power of two. Sessions may hold an eighth of them for xids that they
    /// have drawn for later. A transaction is pinned if it still runs when half a window of later xids has been drawn.
    /// Pinned transactions hold at most half of the words.
    pub status_capacity: usize,
    /// Bytes of undo of all transactions together, at least 16 KiB.
    pub undo_limit_bytes: usize,
    /// Where undo goes when that memory is full.
    pub spill: Option<SpillFile>,
    /// How long a transaction waits for undo memory that others hold. [`Duration::MAX`] is no limit.
    pub undo_timeout: Duration,
    /// A writer that looks for old versions without readers cancels the snapshots that exceed these limits.
    pub snapshot_limits: SnapshotLimits,
    /// Xids handed out between two moves of the ceiling, at least 2. A restart skips up to as many.
    pub xid_block: u64,
    /// How long a commit holds its locks. `None`: until its record is appended. With a function, the commit calls it at
    /// that point, and it may release some locks. The commit holds the others, and its session, until it is durable.
    pub hold_until_durable: Option<PrecommitRelease>,
    /// Refuses every xid, so that no transaction changes or locks a row.
    pub read_only: bool,
}

/// Releases the locks that a commit need not hold until it is durable. It cannot release the write locks of rows, which
/// lie in the headers of rows.
pub type PrecommitRelease = fn(&LockManager, &mut Owner);

impl Default for TxnManagerOptions {
    fn default() -> Self {
        Self {
            max_sessions: 1024,
            system_sessions: 0,
            snapshot_slots: 1024,
            status_capacity: 1 << 20,
            undo_limit_bytes: 128 << 20,
            spill: None,
            undo_timeout: Duration::from_secs(10),
            snapshot_limits: SnapshotLimits::NONE,
            xid_block: 1 << 16,
            hold_until_durable: None,
            read_only: false,
        }
    }
}

/// Where a manager continues after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The largest xid ceiling seen; 1 in a new database.
    pub next_xid: Xid,
    /// The largest commit number seen.
    pub clock: Csn,
}

/// The transactions for a checkpoint record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointView {
    /// A transaction with an xid below it that is not in `active` has ended, with its last LSN at or below `clock`.
    pub next_xid: Xid,
    /// Running transactions that have an xid, each with the first log group that may hold a record of it. `None`: it
    /// has no record yet. Its first one comes in the next group that the checkpoint loaded before, or later. An xid at
    /// or above `next_xid` may be among them.
    pub active: Vec<(Xid, Option<GroupNo>)>,
    /// No xid at or above it has been drawn.
    pub ceiling: Xid,
    /// At or above the last LSN of every transaction that counts as ended.
    pub clock: Csn,
    /// Xids below it that are not in `active` are frozen: their fate is durable.
    pub window_lo: Xid,
}

/// What the transaction manager has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back.
    pub aborts: u64,
    /// Rollbacks that are parked now: they wait for free space, or for a restart where a page is damaged (see
    /// [`TxnManager::parked`]).
    pub parked: usize,
    /// Sessions created. They are reused.
    pub sessions: usize,
    /// Lock waits, deadlocks and lock time-outs.
    pub locks: LockStats,
    /// Xids that have a word in the status window, pinned ones included.
    pub status_used: u64,
    /// Pinned xids: their transactions still run after half a window of later xids was drawn.
    pub status_pinned: u64,
    /// Words of the status window.
    pub status_capacity: u64,
    /// Bytes of undo memory in use, in chunks of 8 KiB.
    pub undo_bytes: usize,
    /// Bytes of undo in its file.
    pub undo_spilled_bytes: usize,
    /// Chunks of undo that were read back from there.
    pub undo_fetches: u64,
    /// Old versions of rows that were removed from inside a version chain because no reader sees them, while an older
    /// one stayed.
    pub versions_pruned: u64,
    /// Snapshots that were cancelled, because they were too old or what they kept took too much space.
    pub snapshots_cancelled: u64,
}

/// A transaction's reference to its manager. It is counted with the [`BiasedOwner`](foreshore_sync::BiasedOwner) that
/// handed it out. Only threads that begin or end transactions by that owner write its counts.
pub type ManagerRef = BiasedRef<Arc<TxnManager>>;

/// Makes transactions, and owns what they share.
///
/// | part | answers |
/// |---|---|
/// | [`Visibility`] | what became of a transaction, and which readers may still ask for old versions? |
/// | [`Xids`] | which xid is next, and which transactions run? |
/// | `Sessions` | what does a transaction run in? |
/// | `UndoSpace` | where does its undo go? |
/// | `ParkedList` | which rollbacks wait for space or a restart? |
/// | `Halt` | have all transactions stopped? |
pub struct TxnManager {
    log: Log,
    locks: Arc<LockManager>,
    halt: Arc<Halt>,
    visibility: Arc<Visibility>,
    xids: Xids,
    sessions: Sessions,
    undo: UndoSpace,
    parked: ParkedList,
    resources: OnceLock<Arc<dyn ResourceManager>>,
    hold_until_durable: Option<PrecommitRelease>,
    /// The largest commit number at the start.
    first_clock: Csn,
    ended: Ended,
}

/// Transactions that have ended.
struct Ended {
    commits: ShardedCounter,
    rollbacks: ShardedCounter,
}

impl TxnManager {
    /// Returns a manager that continues from `start`.
    ///
    /// # Errors
    /// `Io` when memory cannot be mapped.
    ///
    /// # Panics
    /// When an option is outside its range.
    pub fn new(options: TxnManagerOptions, log: Log, locks: Arc<LockManager>, start: Start) -> Result<Arc<Self>> {
        let (max, system, capacity) = (options.max_sessions, options.system_sessions, options.status_capacity);
        let count = max + system;
        assert!(count > 0, "a transaction needs a session");
        assert!(capacity >= 16, "the window is moved by eighths");
        assert!(options.snapshot_slots > 0, "a transaction may read");
        let window = StatusWindow::new(capacity, count, start.next_xid)?;
        let arena = Arc::new(Arena::new(options.undo_limit_bytes, options.spill)?);
        let returned = Arc::new(EventCount::new());
        locks.waits().watch(arena.changed().clone());
        let halt = Halt::new(log.clone(), locks.clone(), [arena.changed().clone(), returned.clone()]);
        let kept = arena.clone();
        let visibility = Visibility::new(
            log.clone(),
            halt.clone(),
            window,
            (count, options.snapshot_slots),
            options.snapshot_limits,
            locks.waits().clock(),
            Box::new(move |from, to| kept.bytes_between(from, to)),
        );
        let manager = Arc::new(Self {
            xids: Xids::new(
                log.clone(),
                locks.clone(),
                start.next_xid,
                options.xid_block,
                count,
                capacity,
                options.read_only,
            ),
            sessions: Sessions::new(
                halt.clone(),
                log.clone(),
                locks.clone(),
                visibility.clone(),
                arena.clone(),
                returned,
                (max, system),
            ),
            undo: UndoSpace::new(
                arena,
                visibility.clone(),
                halt.clone(),
                log.clone(),
                locks.clone(),
                options.undo_timeout,
            ),
            log,
            locks,
            halt,
            visibility,
            parked: ParkedList::new(),
            resources: OnceLock::new(),
            hold_until_durable: options.hold_until_durable,
            first_clock: start.clock,
            ended: Ended { commits: ShardedCounter::wide(), rollbacks: ShardedCounter::wide() },
        });
        let weak = Arc::downgrade(&manager);
        manager.log.on_shortage(move || weak.upgrade().map_or(0, |manager| manager.sessions.take_idle_undo_log()));
        Ok(manager)
    }

    /// Sets the resource manager, which undoes changes. Called once, before the first transaction writes.
    ///
    /// # Panics
    /// The second time.
    pub fn set_resource_manager(&self, resources: Arc<dyn ResourceManager>) {
        assert!(self.resources.set(resources).is_ok(), "the resource manager is wired once");
    }

    pub(crate) fn resources(&self) -> &dyn ResourceManager {
        &**self.resources.get().expect("the resource manager is wired before the first write")
    }

    /// Returns what became of transactions, and the snapshots in use.
    pub fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// Returns the transactions that run.
    pub const fn xids(&self) -> &Xids {
        &self.xids
    }

    /// Returns the transactions for a checkpoint record. The caller has loaded the log's next group before. Sessions
    /// lose the xids that they have drawn for later. So no transaction will begin under an xid below `next_xid`.
    #[must_use]
    pub fn checkpoint_view(&self) -> CheckpointView {
        let (next_xid, active) = self.xids.for_checkpoint(&self.visibility);
        let active = active.iter().map(|active| (active.xid, active.first_group)).collect();
        // The clock is read after the slots. So it is at or above the last LSN of each transaction that has left its
        // slot.
        let (clock, window_lo) = (self.clock(), self.visibility.window().lo());
        let ceiling = self.xids.ceiling();
        assert!(next_xid <= ceiling, "a checkpoint with the xid {next_xid} next, and {ceiling} as the ceiling");
        CheckpointView { next_xid, active, ceiling, clock, window_lo }
    }

    /// Returns the time by the clock that stamps the begins of transactions.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.locks.waits().now()
    }

    /// Returns a number at or above the last LSN and the commit number of every transaction that has ended.
    #[must_use]
    pub fn clock(&self) -> Csn {
        self.log.current().csn().max(self.first_clock)
    }

    /// Returns whether the rows of a commit still count as locked by it.
    pub(crate) fn keeps_rows_until_durable(&self, csn: Csn) -> bool {
        let is_kept = self.hold_until_durable.is_some() && csn.lsn() > self.log.durable();
        is_kept && !mutant("sabotage: rows are free before their commit is durable")
    }

    /// Ends all waits of transactions, with `cause`: for locks, for undo space, for a session. Called when the database
    /// closes, by a thread that holds no lock above [`LockRank::Database`](foreshore_sync::LockRank::Database).
    pub fn stop(&self, cause: &Error) {
        self.halt.stop(cause);
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> TxnStats {
        let (arena, window) = (self.undo.arena(), self.visibility.window());
        let (undo_spilled_bytes, undo_fetches) = arena.spilled();
        let status_pinned = window.pinned() as u64;
        TxnStats {
            commits: self.ended.commits.sum(),
            aborts: self.ended.rollbacks.sum(),
            parked: self.parked.count(),
            sessions: self.sessions.made(),
            locks: self.locks.stats(),
            status_used: self.xids.next().0.saturating_sub(window.lo().0) + status_pinned,
            status_pinned,
            status_capacity: window.capacity() as u64,
            undo_bytes: arena.used_bytes(),
            undo_spilled_bytes,
            undo_fetches,
            versions_pruned: arena.pruned(),
            snapshots_cancelled: self.visibility.cancelled(),
        }
    }

    /// Returns what measured threads (see [`foreshore_sync::spent`]) have waited longest for.
    #[must_use]
    pub fn hot(&self) -> Vec<Hot<Lockable>> {
        self.locks.waits().hot()
    }
}

impl Holders for TxnManager {
    fn can_any_continue(&self, holders: &[usize], mut waiters: Vec<usize>) -> bool {
        if !mutant("parked: a parked rollback goes on") {
            self.parked.add_owners(&mut waiters);
        }
        self.locks.any_goes_on(holders, &waiters)
    }

    fn has_held_commit(&self) -> bool {
        self.sessions.has_held_commit()
    }
}

impl fmt::Debug for TxnManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxnManager").field("xids", &self.xids).field("clock", &self.clock()).finish_non_exhaustive()
    }
}
