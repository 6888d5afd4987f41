//! The lock manager as a whole: its parts, release, and the steps that every wait shares.

use crate::hash::{RowHash, RowHasher, Spread};
use crate::owner::{Owner, Slots, Wait};
use crate::range::RangeShard;
use crate::room::Room;
use crate::row::RowShard;
use crate::share::Shares;
use crate::share_count::ShareCounts;
use crate::table::TableShard;
use crate::target::Target;
use crate::wait_time::WaitTime;
use foreshore_base::{Csn, Error, Lockable, MAX_NAMED_KEY, Result, TableId};
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{
    CachePadded, Clock, EventCount, Hot, Hottest, LockRank, Mutex, Nanos, ParkTable, ShardedCounter, SpinSite,
    SystemClock, rmw,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Shards of the table locks, of the row entries and of the intervals; few under loom, whose state they would bloat.
const TABLE_SHARDS: usize = if cfg!(foreshore_loom) { 1 } else { 64 };
const ROW_SHARDS: usize = if cfg!(foreshore_loom) { 1 } else { 256 };
const RANGE_SHARDS: usize = if cfg!(foreshore_loom) { 1 } else { 64 };

/// Sizes of a lock manager.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// Transactions at once.
    pub max_owners: usize,
    /// Counters of shared row locks, 4 bytes each, a power of two. More of them mean fewer writers that look into a table
    /// because of a reader elsewhere.
    pub share_slots: usize,
    /// Memory for point locks and intervals, in units of [`SHARE_BYTES`]. A point lock of a short key takes one. Where
    /// it is spent, locks are merged.
    pub max_shares: usize,
    /// Intents on tables are entered in words of the owner. Without it all go to the lock table.
    pub fast_intents: bool,
}

/// Bytes of memory that a point lock of a short key takes at most: its entry in a table that may be half empty, its
/// owner's note, in a list and in a set, and its key.
pub const SHARE_BYTES: usize = 352;

impl Default for LockOptions {
    fn default() -> Self {
        Self { max_owners: 1024, share_slots: 1 << 14, max_shares: 1 << 18, fast_intents: true }
    }
}

/// What the lock manager has counted since its start, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Requests that had to wait.
    pub waits: u64,
    /// Waits that ended as the victim of a cycle.
    pub deadlocks: u64,
    /// Waits that ran out of time.
    pub timeouts: u64,
    /// What transactions have taken of the common memory for point locks and intervals, in units of [`SHARE_BYTES`],
    /// beyond what each has anyway.
    pub room_taken: u64,
}

/// Locks of tables and rows, and the waits for them.
///
/// Every wait parks its thread. It ends by a grant or by an error, after which the owner rolls its transaction back:
/// [`Error::Deadlock`] for the victim of a cycle, [`Error::LockTimeout`], or [`Error::OwnThreadLock`] where this thread was the last
/// one to use the transaction that is waited for. A timeout of [`Duration::MAX`] is no limit.
#[derive(Debug)]
pub struct LockManager {
    pub(crate) slots: Slots,
    pub(crate) tables: Box<[CachePadded<TableShard>]>,
    pub(crate) rows: Box<[CachePadded<RowShard>]>,
    pub(crate) counts: ShareCounts,
    pub(crate) ranges: Box<[CachePadded<RangeShard>]>,
    pub(crate) room: Room,
    pub(crate) park: ParkTable,
    /// Whether it pays to spin in front of a park for a row's holder.
    pub(crate) row_spins: SpinSite,
    /// Held by a waiter while it confirms a cycle and chooses the victim.
    pub(crate) confirming: Mutex<()>,
    pub(crate) deadlocks: ShardedCounter,
    /// Notified whenever an owner begins to wait for a lock.
    pub(crate) watcher: OnceLock<Arc<EventCount>>,
    /// Why all waits have ended (see [`crate::stop`]).
    pub(crate) stopped: OnceLock<Error>,
    hasher: RowHasher,
    clock: SystemClock,
    waits: ShardedCounter,
    timeouts: ShardedCounter,
    hot: Hottest<Lockable>,
}

/// The thing waited for, named in errors.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    Table(TableId),
    Row(Target<'a>),
}

impl What<'_> {
    /// The same for an error.
    pub(crate) fn named(&self) -> Lockable {
        // Enough of a key to know it by; keys may have a thousand bytes.
        let cut = |key: &[u8]| key[..key.len().min(MAX_NAMED_KEY)].to_vec();
        match *self {
            Self::Table(table) => Lockable::Table(table.into()),
            Self::Row(Target { table, key }) => Lockable::Row(table.into(), cut(key)),
        }
    }
}

/// A wait in a queue of tables or rows, from its first look to its end.
pub(crate) struct QueueWait {
    time: WaitTime,
    published: bool,
}

impl LockManager {
    /// A lock manager in which nothing is locked.
    ///
    /// # Panics
    /// When `max_owners` does not fit 32 bits or `share_slots` is not a power of two.
    #[must_use]
    pub fn new(options: LockOptions) -> Self {
        Self {
            slots: Slots::new(options.max_owners),
            tables: (0..TABLE_SHARDS).map(|_| CachePadded::new(TableShard::new(options.fast_intents))).collect(),
            rows: (0..ROW_SHARDS).map(|_| CachePadded::new(RowShard::new())).collect(),
            counts: ShareCounts::new(options.share_slots),
            ranges: (0..RANGE_SHARDS).map(|_| CachePadded::new(RangeShard::new())).collect(),
            room: Room::new(options.max_shares, options.max_owners),
            park: ParkTable::new(),
            row_spins: SpinSite::new(),
            confirming: Mutex::new(LockRank::Deadlock, ()),
            deadlocks: ShardedCounter::new(),
            watcher: OnceLock::new(),
            stopped: OnceLock::new(),
            hasher: RowHasher::new(),
            clock: SystemClock::new(),
            waits: ShardedCounter::new(),
            timeouts: ShardedCounter::new(),
            hot: Hottest::new(),
        }
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> LockStats {
        LockStats {
            waits: self.waits.sum(),
            deadlocks: self.deadlocks.sum(),
            timeouts: self.timeouts.sum(),
            room_taken: self.room.taken() as u64,
        }
    }

    /// Label and age of the transaction that runs longest.
    #[must_use]
    pub fn oldest(&self) -> Option<(&'static str, Duration)> {
        self.slots.oldest().map(|(label, began)| (label, self.now().since(began)))
    }

    /// Label and age of the transaction in slot `index`; `None` when it has ended.
    #[must_use]
    pub fn running(&self, index: usize) -> Option<(&'static str, Duration)> {
        let shown = self.slots.used().get(index)?.shown();
        shown.leased.then(|| (shown.label, self.now().since(shown.began)))
    }

    /// Releases everything that `owner` holds and wakes who waited for it. The slot is ready for the next transaction.
    ///
    /// A committer calls it after its commit record is appended and its status is set, with its commit number: tables in
    /// which it wrote are tagged with it. From here on nobody may see it as live.
    pub fn finish(&self, owner: &mut Owner, csn: Option<Csn>) {
        self.end_exclusive(owner);
        for (table, mode) in owner.tables.drain(..) {
            self.release_table(owner.index, table, mode, csn);
        }
        self.release_keys(owner);
        // The status is final before the rows come out, so that whoever registers later finds the term over or the
        // holder dead.
        for row in owner.end_term() {
            self.park.unpark_one(row.park_key(), 0);
        }
        debug_assert!(owner.is_idle(), "owner {} has finished with locks: {owner:?}", owner.index);
    }

    /// Releases the shared locks of `owner` before the others, at its commit: those of keys, and those of tables in
    /// which it wrote nothing.
    pub fn release_shared(&self, owner: &mut Owner) {
        let mut kept = Vec::with_capacity(owner.tables.len());
        for (table, mode) in owner.tables.drain(..) {
            if mode.writes() {
                kept.push((table, mode));
            } else {
                self.release_table(owner.index, table, mode, None);
            }
        }
        owner.tables = kept;
        self.release_keys(owner);
    }

    /// Releases point locks and intervals.
    fn release_keys(&self, owner: &mut Owner) {
        debug_assert_eq!(owner.charged, owner.charged_by_parts(), "units charged to owner {}", owner.index);
        for row in owner.shares.drain() {
            self.release_share(owner.index, row);
        }
        for (table, _) in owner.ranges.drain(..) {
            self.release_ranges(owner.index, table);
        }
        owner.charged = 0;
        if owner.room > self.room.own() {
            owner.shares = Shares::default();
            owner.room = self.room.settle(owner.room);
        }
    }

    /// The time by the clock that stamps the begins of transactions.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(crate) fn hash(&self, target: Target<'_>) -> RowHash {
        self.hasher.hash(target.table, target.key)
    }

    /// Makes queue waiters look again. Spurious for one that has left.
    pub(crate) fn wake(&self, owners: &[u32]) {
        for &index in owners {
            rmw::contended(1);
            // ORDERING: Release, pairs with `signal_of`: who reads the new count sees the queue as it was left. Parking
            // validates the count, and unparking fences, so the wake-up is not lost.
            self.slots.get(index).signal.fetch_add(1, Ordering::Release);
            self.park.unpark_one(u64::from(index), 0);
        }
    }

    /// The count to sleep on. Read before the queue is looked at.
    pub(crate) fn signal_of(&self, index: u32) -> u32 {
        // ORDERING: Acquire, pairs with `wake`.
        self.slots.get(index).signal.load(Ordering::Acquire)
    }

    pub(crate) fn queue_wait(&self, timeout: Duration) -> QueueWait {
        QueueWait { time: WaitTime::new(self.now(), timeout), published: false }
    }

    /// One sleep in a queue. The owner stands in it already; the caller looks at it again afterwards.
    ///
    /// The first call publishes the edge and walks for a cycle; the edge stays until [`QueueWait::end`].
    pub(crate) fn sleep(
        &self,
        owner: &Owner,
        wait: &mut QueueWait,
        edge: Wait,
        seen: u32,
        what: &What<'_>,
    ) -> Result<()> {
        if let Some(cause) = self.stopped() {
            return Err(cause.clone());
        }
        if !wait.published {
            wait.published = true;
            self.publish(owner, edge, what)?;
        }
        self.check_verdict(owner)?;
        let is_unseen = || self.signal_of(owner.index) == seen;
        // WAIT: park - until a release makes this waiter grantable, or it becomes a victim.
        self.noted(what, || self.park_within(owner, u64::from(owner.index), &mut wait.time, edge, what, &is_unseen))
            .map(drop)
    }

    /// Does `wait` for `what`, and notes it if the thread is measured.
    pub(crate) fn noted<T>(&self, what: &What<'_>, wait: impl FnOnce() -> T) -> T {
        spent::during_noted(Spent::LockWait, wait, |took| self.hot.add(what.named(), took))
    }

    /// What measured threads (see [`foreshore_sync::spent`]) have waited longest for.
    #[must_use]
    pub fn hot(&self) -> Vec<Hot<Lockable>> {
        self.hot.list()
    }

    /// Counts a time-out and names a holder.
    pub(crate) fn timed_out(&self, owner: &Owner, waited: Duration, what: &What<'_>) -> Error {
        self.timeouts.add(1);
        Error::LockTimeout { holder: self.first_blocker(owner), what: what.named(), waited }
    }

    pub(crate) fn count_wait(&self) {
        self.waits.add(1);
    }
}

impl QueueWait {
    /// Takes the edge back, whatever the outcome.
    pub(crate) fn end(self, owner: &Owner) {
        if self.published {
            // A verdict that comes after the grant means nothing, and an error has been found before.
            owner.end_wait();
        }
    }
}

/// A map from hashes or ids.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, Spread>;
