//! Range locks: the intervals of keys that serializable scans have read, whether the keys exist or not.
//!
//! | part | where | changed by |
//! |---|---|---|
//! | intervals by owner (disjoint, ordered by low bound), and all by key | the table's list, latched | the owner |
//! | writers queued on a key that is covered | the table's list | the writer |
//! | scans that wait for such a writer | the table's list | the scan |
//! | count of owners with intervals | a padded atomic per shard of tables | the owner, with its intervals |
//!
//! **Protocol.**
//!
//! 1. A *scan step* copies a leaf and checks the holders of its rows. It extends its owner's intervals to exactly the
//!    keys that it returns, fences, and validates the leaf.
//! 2. A *writer* latches the leaf exclusively, which changes the version that the scan validates. It stores its xid if
//!    there is a row. Then it fences, loads the count of point locks of the key's hash slot, and after that the count
//!    here. It searches the list only if the count is not zero.
//! 3. If another owner covers the key, the writer restores the old header, unlatches, and queues on the key
//!    (`LockManager::wait_exclusive`). An insert checks before the tuple is in the leaf.
//!
//! **Invariant:** if a scan step and a writer have both finished, the scan found the leaf changed or the writer found
//! the interval. If the writer loads the count after the scan has raised it (store, fence, look on both sides), the
//! list has the interval. Otherwise the scan validates after the writer's latch. If the count was not zero before, the
//! latch of the list orders the two.
//!
//! Intervals consist of keys, not of pages. So splits, merges and purges move no lock, and no ghost is kept for a lock.
//!
//! **Order of release.** The intervals are removed first. Then the count is decremented with release order, so a writer
//! that loads zero comes after the commit of the scan. Point locks that are merged into an interval are removed after
//! the interval is counted. A writer loads their count first, so it finds one of the two.
//!
//! **Waits.** A new interval waits behind a writer queued on a key in it, so that scans do not starve writers. It does
//! not wait if its owner already blocks that writer by an interval or a point lock, because it would wait for itself.
//! Widening for want of memory never waits (see [`crate::keys`]): the owner meets an earlier writer by its header, and
//! a later writer meets the interval. Each walk for deadlocks looks up both kinds of edge anew: the owners that cover
//! the key, and the queued writers.
//!
//! Source: predicate locks (Eswaran et al., 1976) restricted to one dimension, in place of next-key locks. The
//! handshake is that of [`crate::share_count`].

use crate::hash::RowHash;
use crate::held::Held;
use crate::interval::{Change, Interval, Intervals};
use crate::slots::Slots;
use crate::table_ranges::{Addition, MAX_INTERVALS, Queued, TableLists, TableRanges};
use crate::target::Target;
use foreshore_base::TableId;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering, fence};
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard, rmw};

/// The number of shards. Loom gets one, because each adds to its state.
const SHARDS: usize = if cfg!(foreshore_loom) { 1 } else { 64 };

/// The tables whose ids map to one shard.
#[derive(Debug)]
struct RangeShard {
    /// Contract: the number of pairs of a table and an owner that has intervals in it. It is larger only between the
    /// removal of intervals and the decrement.
    holders: CachePadded<AtomicU32>,
    tables: Mutex<TableLists>,
}

impl RangeShard {
    fn new() -> Self {
        let tables = Mutex::new(LockRank::RangeLocks, TableLists::new());
        Self { holders: CachePadded::new(AtomicU32::new(0)), tables }
    }

    fn is_unused(&self) -> bool {
        // ORDERING: store, fence, look; the fence is that of `ShareCounts::is_zero`, before this, and pairs with the
        // one in `extended`. Acquire, pairs with `retire`.
        self.holders.load(Ordering::Acquire) == 0
    }

    /// Counts an owner that has got its first interval in a table. The caller then calls [`extended`], without the
    /// latch.
    fn announce(&self) {
        rmw::contended(1);
        // ORDERING: store, fence, look; see `extended`.
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds an interval, and counts its owner if it is the owner's first in the table.
    fn add(&self, ranges: &mut TableRanges, owner: u32, interval: Interval) -> Addition {
        let added = ranges.add(owner, interval, MAX_INTERVALS);
        if added.is_first {
            self.announce();
        }
        added
    }

    /// Uncounts an owner whose intervals in a table were removed.
    fn retire(&self) {
        rmw::contended(1);
        // ORDERING: count down, Release: a writer that reads zero sees this transaction's commit; pairs with
        // `is_unused`.
        let order = if mutant("range: relaxed retirement") { Ordering::Relaxed } else { Ordering::Release };
        let before = self.holders.fetch_sub(1, order);
        assert!(before > 0, "an owner is uncounted once");
    }
}

/// Fences between the extension of a scan's interval and the validation of the leaf.
fn extended() {
    // ORDERING: store, fence, look; pairs with the fence in `ShareCounts::is_zero`.
    if !mutant("range: no fence after extending") {
        fence(Ordering::SeqCst);
    }
}

/// The intervals of all owners.
#[derive(Debug)]
pub(crate) struct RangeLocks {
    shards: Box<[CachePadded<RangeShard>]>,
}

impl RangeLocks {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::new(RangeShard::new())).collect() }
    }

    /// Covers the keys of an interval, and returns how the earlier intervals changed; the inner `None` means not at
    /// all. If a queued writer goes first, returns `None` and changes nothing.
    pub(crate) fn try_add(&self, held: &mut Held, table: TableId, interval: &Interval) -> Option<Option<Change>> {
        let shard = self.shard(table);
        rmw::contended(2);
        let mut tables = shard.tables.lock();
        let ranges = tables.enter(table);
        if comes_first(ranges, held, interval).is_some() {
            return None;
        }
        if ranges.of(held.owner()).is_some_and(|mine| mine.covers(interval)) {
            drop(tables);
            extended();
            return Some(None);
        }
        let added = shard.add(ranges, held.owner(), interval.clone());
        drop(tables);
        Some(Some(note_addition(held, table, added)))
    }

    /// Adds an interval, even if writers are queued on its keys.
    pub(crate) fn widen(&self, held: &mut Held, table: TableId, interval: Interval) {
        let shard = self.shard(table);
        let mut tables = shard.tables.lock();
        let added = shard.add(tables.enter(table), held.owner(), interval);
        drop(tables);
        note_addition(held, table, added);
    }

    /// Undoes the newest addition.
    pub(crate) fn undo_add(&self, slots: &Slots, held: &mut Held, table: TableId, change: Change) {
        let left = self.change(slots, table, |ranges| {
            let left = ranges.undo_add(held.owner(), change);
            (left, ranges.uncovered())
        });
        held.note_ranges(table, left);
        if left.is_none() {
            self.shard(table).retire();
        }
    }

    /// Removes all intervals of `owner` in a table.
    pub(crate) fn release(&self, slots: &Slots, owner: u32, table: TableId) {
        let remove = |ranges: &mut TableRanges| (ranges.remove_some(owner), ranges.uncovered());
        while !self.change(slots, table, remove).is_done {}
        self.shard(table).retire();
    }

    /// Returns the key of a queued writer that goes before a scan, if there is one. The scan is listed as waiting until
    /// there is none. It covers nothing meanwhile, or new writers that meet its interval would queue before it at its
    /// next check.
    pub(crate) fn stand_behind(&self, held: &Held, table: TableId, interval: &Interval) -> Option<Vec<u8>> {
        rmw::contended(2);
        let mut tables = self.tables(table);
        let ranges = tables.get_mut(table)?;
        let first = comes_first(ranges, held, interval).map(|writer| writer.key.clone());
        ranges.waiting.retain(|&(scan, _)| scan != held.owner());
        if first.is_some() {
            ranges.waiting.push((held.owner(), interval.clone()));
        } else {
            tables.end_if_empty(table);
        }
        first
    }

    /// Removes a scan from those that wait.
    pub(crate) fn cancel_request(&self, slots: &Slots, owner: u32, table: TableId) {
        self.change(slots, table, |ranges| (ranges.waiting.retain(|&(scan, _)| scan != owner), Vec::new()));
    }

    /// Returns whether another owner covers the key. The caller has fenced, and has checked the key's point locks
    /// before.
    pub(crate) fn is_covered_by_other(&self, owner: u32, target: Target<'_>) -> bool {
        if self.shard(target.table).is_unused() || mutant("sabotage: a writer does not look at intervals") {
            return false;
        }
        self.other_at(owner, target).is_some()
    }

    /// Returns an owner other than `owner` that covers the key.
    pub(crate) fn other_at(&self, owner: u32, target: Target<'_>) -> Option<u32> {
        rmw::contended(2);
        self.tables(target.table).get(target.table)?.other_at(owner, target.key)
    }

    /// Returns whether an interval of the owner covers the key.
    pub(crate) fn covers(&self, held: &Held, target: Target<'_>) -> bool {
        let covers_key = |ranges: &TableRanges| ranges.covers_key(held.owner(), target.key);
        held.range_tables().any(|table| table == target.table)
            && self.tables(target.table).get(target.table).is_some_and(covers_key)
    }

    /// Returns the intervals of `owner` in a table.
    pub(crate) fn of(&self, owner: u32, table: TableId) -> Intervals {
        self.tables(table).get(table).and_then(|ranges| ranges.of(owner)).cloned().unwrap_or_default()
    }

    /// Queues a writer on its key. New intervals that contain the key wait for it.
    pub(crate) fn enter_queue(&self, owner: u32, row: RowHash, target: Target<'_>) {
        let mut tables = self.tables(target.table);
        let ranges = tables.enter(target.table);
        let is_new = ranges.queued.iter().all(|writer| writer.owner != owner);
        assert!(is_new, "writer {owner} is queued twice in {:?}: {:?}", target.table, ranges.queued);
        ranges.queued.push(Queued { owner, row, key: target.key.to_vec() });
    }

    /// Removes a writer from the queue, and wakes the scans that may have waited for it.
    pub(crate) fn leave_queue(&self, slots: &Slots, owner: u32, table: TableId) {
        self.change(slots, table, |ranges| {
            let at = ranges.queued.iter().position(|writer| writer.owner == owner);
            let writer = ranges.queued.remove(at.expect("a writer leaves the queue once"));
            let waited = ranges.waiting.iter().filter(|(_, interval)| interval.contains(&writer.key));
            ((), waited.map(|&(scan, _)| scan).collect())
        });
    }

    /// Changes the list of a table, and wakes the waiters that `change` names.
    fn change<R>(&self, slots: &Slots, table: TableId, change: impl FnOnce(&mut TableRanges) -> (R, Vec<u32>)) -> R {
        rmw::contended(2);
        let mut tables = self.tables(table);
        let ranges = tables.get_mut(table).expect("a table with a lock or a waiter has a list");
        let (changed, woken) = change(ranges);
        tables.end_if_empty(table);
        drop(tables);
        slots.wake(&woken);
        changed
    }

    /// Adds the owners that cover the key on which `owner` is queued.
    pub(crate) fn covering(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let tables = self.tables(table);
        let Some(ranges) = tables.get(table) else { return };
        let queued = ranges.queued.iter().find(|writer| writer.owner == owner);
        queued.inspect(|writer| ranges.others_at(owner, &writer.key, into));
    }

    /// Returns the writers that a waiting scan of `owner` may wait for, with the rows on which they are queued.
    pub(crate) fn writers_before(&self, owner: u32, table: TableId) -> Vec<(u32, RowHash)> {
        let tables = self.tables(table);
        let Some(ranges) = tables.get(table) else { return Vec::new() };
        let Some((_, interval)) = ranges.waiting.iter().find(|&&(scan, _)| scan == owner) else { return Vec::new() };
        ranges.queued_in(owner, interval).map(|writer| (writer.owner, writer.row)).collect()
    }

    /// Returns a writer queued on a key of the interval that `owner` requests, and that key.
    pub(crate) fn writer_in(&self, owner: u32, table: TableId, interval: &Interval) -> Option<(u32, Vec<u8>)> {
        let tables = self.tables(table);
        let writer = tables.get(table)?.queued_in(owner, interval).next()?;
        Some((writer.owner, writer.key.clone()))
    }

    fn tables(&self, table: TableId) -> MutexGuard<'_, TableLists> {
        self.shard(table).tables.lock()
    }

    fn shard(&self, table: TableId) -> &RangeShard {
        &self.shards[table.0 as usize % self.shards.len()]
    }
}

/// Fences after an addition, without the latch, and records it with the owner.
fn note_addition(held: &mut Held, table: TableId, Addition { is_merged, cost, change, .. }: Addition) -> Change {
    extended();
    if is_merged {
        held.note_merge();
    }
    held.note_ranges(table, Some(cost));
    change
}

/// Returns a writer that a scan waits for. It is queued on a key of the interval, and does not wait for the scan's
/// owner.
fn comes_first<'a>(ranges: &'a TableRanges, held: &Held, interval: &Interval) -> Option<&'a Queued> {
    ranges.queued_in(held.owner(), interval).find(|writer| !held.has_point(writer.row))
}
