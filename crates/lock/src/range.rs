//! Range locks: what serializable scans have read, as intervals of keys, whether the keys exist or not.
//!
//! | part | where | changed by |
//! |---|---|---|
//! | intervals of an owner in a table, disjoint, ordered by low bound; and those of all owners, by key | the table's list, latched | the owner |
//! | writers queued on a key that is covered | the table's list | the writer |
//! | scans that wait for such a writer | the table's list | the scan |
//! | count of owners with intervals | a padded atomic beside the list, shared by tables whose ids fall together | as the intervals |
//!
//! **Protocol.** A *scan step* copies a leaf, looks at the holders of its rows, extends its owner's intervals to
//! exactly what it hands out, fences, and validates the leaf. A *writer* latches the leaf exclusively, which moves the
//! version that the scan validates, and stores its xid if there is a row; then it fences, loads the count of point
//! locks of the key's hash slot, and after that the count here. It looks into the list only if the count is not zero.
//! If another owner covers the key it puts the old header back, unlatches, and queues on the key
//! ([`LockManager::wait_exclusive`]). An insert looks before the tuple is in.
//!
//! **Invariant:** where both are through, the scan found the leaf changed or the writer found the interval. Either the
//! writer's load of the count comes after the scan's count (store, fence, look on both sides), and then the list has
//! the interval; or the scan's validation comes after the latch. Where the count was not zero before, the latch of the
//! list orders the two. Intervals are of keys, not of pages: splits, merges and purges move no lock, and no ghost stays
//! for one.
//!
//! **Order of release.** The intervals go first, then the count, with release: a writer that loads zero comes after the
//! commit of the scan. Point locks that are merged into an interval go after the interval is counted, and a writer
//! loads their count first, so it finds one of the two.
//!
//! **Waits.** A new interval waits behind a writer queued on a key in it, so that scans do not starve writers; unless
//! its owner blocks that writer already, by an interval or a point lock, and would wait for itself. Widening for want
//! of memory (see [`crate::share`]) never waits: a writer from before is met by its header, a later one meets the
//! interval. The edges of both kinds of wait are looked up anew by each walk for deadlocks: the owners that cover the
//! key then, the writers queued then.
//!
//! Source: intervals of keys in place of next-key locks, after the predicate locks of Eswaran et al. (1976), for one
//! dimension; the handshake is that of [`crate::share_count`].

use crate::hash::{RowHash, Spread};
use crate::interval::{Change, Interval, Intervals};
use crate::manager::{LockManager, Map, What};
use crate::mode::TableMode;
use crate::owner::{Owner, Wait};
use crate::table_ranges::{Addition, MAX_INTERVALS, Queued, TableRanges};
use crate::target::Target;
use foreshore_base::{Error, Result, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering, fence};
use foreshore_sync::{CachePadded, LockRank, Mutex, rmw};
use std::time::Duration;

/// Tables whose ids fall together.
#[derive(Debug)]
pub(crate) struct RangeShard {
    /// Contract: the number of pairs of a table and an owner that has intervals in it; more than that for the moment
    /// between the removal of intervals and the decrement.
    holders: CachePadded<AtomicU32>,
    tables: Mutex<Map<TableId, TableRanges>>,
}

/// What a request has added to the intervals of its transaction, for [`LockManager::uncover`].
#[derive(Clone, Debug)]
pub struct NewRange {
    table: TableId,
    /// What has become of the intervals from before; `None` if nothing was added.
    change: Option<Change>,
    /// How often the owner's locks had been merged.
    widened: u64,
}

impl RangeShard {
    pub(crate) fn new() -> Self {
        let tables = Mutex::new(LockRank::RangeLocks, Map::with_hasher(Spread));
        Self { holders: CachePadded::new(AtomicU32::new(0)), tables }
    }

    fn is_unused(&self) -> bool {
        // ORDERING: store, fence, look; the fence is that of `ShareCounts::is_zero`, before this, and pairs with the
        // one in `extended`. Acquire, pairs with `retire`.
        self.holders.load(Ordering::Acquire) == 0
    }

    /// Counts an owner that has got its first interval in a table. [`extended`] follows, without the latch.
    fn announce(&self) {
        rmw::contended(1);
        // ORDERING: store, fence, look; see `extended`.
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts an owner whose intervals in a table have been taken out.
    fn retire(&self) {
        rmw::contended(1);
        // ORDERING: count down, Release: a writer that reads zero sees this transaction's commit; pairs with
        // `is_unused`.
        let order = if mutant("range: relaxed retirement") { Ordering::Relaxed } else { Ordering::Release };
        let before = self.holders.fetch_sub(1, order);
        assert!(before > 0, "an owner is uncounted once");
    }
}

/// Passed by a scan between the extension of its interval and its look at the leaf's version.
fn extended() {
    // ORDERING: store, fence, look; pairs with the fence in `ShareCounts::is_zero`.
    if !mutant("range: no fence after extending") {
        fence(Ordering::SeqCst);
    }
}

impl LockManager {
    /// Covers the keys of `interval` to the end of the transaction, if that does not have to wait; otherwise `false`,
    /// and nothing has changed.
    ///
    /// The lock counts from the moment the caller validates, afterwards, the leaf that it has read before. Nothing is
    /// covered if the transaction's lock of the table lets it read all of it.
    pub fn try_cover(&self, owner: &mut Owner, table: TableId, interval: &Interval) -> bool {
        self.enter_range(owner, table, interval, None)
    }

    /// As [`try_cover`](Self::try_cover), for a caller that may give up what it has asked for; `None` for its `false`.
    pub fn try_cover_anew(&self, owner: &mut Owner, table: TableId, interval: &Interval) -> Option<NewRange> {
        let mut new = NewRange { table, change: None, widened: owner.widened };
        self.enter_range(owner, table, interval, Some(&mut new)).then_some(new)
    }

    /// Waits until no writer of another transaction is queued on a key of the interval. Nothing is covered then: the rows may be
    /// others by now, and the caller looks again which keys it needs.
    ///
    /// # Errors
    /// [`Deadlock`](Error::Deadlock), [`LockTimeout`](Error::LockTimeout).
    pub fn wait_to_cover(
        &self,
        owner: &mut Owner,
        table: TableId,
        interval: &Interval,
        timeout: Duration,
    ) -> Result<()> {
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            let Some(key) = self.stand_behind(owner, table, interval) else { break Ok(()) };
            let what = What::Row(Target::row(table, &key));
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Range(table), seen, &what) {
                break Err(error);
            }
        };
        wait.end(owner);
        if outcome.is_err() {
            self.change_ranges(table, |ranges| ranges.waiting.retain(|&(scan, _)| scan != owner.index));
        }
        outcome
    }

    /// Takes back what [`try_cover_anew`](Self::try_cover_anew) has added, the newest request first. For a caller that
    /// has handed out nothing that it read under that lock. Where locks have been merged since, the intervals stay as
    /// wide as they are.
    pub fn uncover(&self, owner: &mut Owner, new: NewRange) {
        let NewRange { table, change: Some(change), widened } = new else { return };
        if widened != owner.widened || mutant("range: what is given up stays") {
            return;
        }
        let left = self.change_ranges(table, |ranges| ranges.take_back(owner.index, change));
        owner.note_ranges(table, left.unwrap_or(0));
        if left.is_none() {
            owner.ranges.retain(|&(held, _)| held != table);
            self.range_shard(table).retire();
        }
    }

    /// The key of a writer that comes before a scan of `owner`. The scan is among those that wait until there is none. It covers
    /// nothing in between: writers that it kept out so would be queued when it looks again.
    fn stand_behind(&self, owner: &Owner, table: TableId, interval: &Interval) -> Option<Vec<u8>> {
        if interval.is_empty() || owner.covers(table, TableMode::Shared) {
            return None;
        }
        rmw::contended(2);
        let mut tables = self.range_shard(table).tables.lock();
        let ranges = tables.get_mut(&table)?;
        let first = comes_first(ranges, owner, interval).map(|writer| writer.key.clone());
        ranges.waiting.retain(|&(scan, _)| scan != owner.index);
        if first.is_some() {
            ranges.waiting.push((owner.index, interval.clone()));
        } else if ranges.is_empty() {
            tables.remove(&table);
        }
        first
    }

    /// Adds the interval, unless a writer comes first.
    fn enter_range(&self, owner: &mut Owner, table: TableId, interval: &Interval, new: Option<&mut NewRange>) -> bool {
        let index = owner.index;
        if interval.is_empty() || owner.covers(table, TableMode::Shared) {
            return true;
        }
        let shard = self.range_shard(table);
        rmw::contended(2);
        let mut tables = shard.tables.lock();
        let ranges = tables.entry(table).or_default();
        if comes_first(ranges, owner, interval).is_some() {
            return false;
        }
        let held = ranges.of(index);
        if held.is_none_or(|held| !held.covers(interval)) {
            let Addition { is_merged, cost, change, .. } = self.add_range(shard, ranges, index, interval.clone());
            drop(tables);
            owner.widened += u64::from(is_merged);
            owner.note_ranges(table, cost);
            if let Some(new) = new {
                new.change = Some(change);
            }
        } else {
            drop(tables);
        }
        extended();
        self.keep_share(owner);
        true
    }

    /// Adds an interval, and counts it.
    fn add_range(&self, shard: &RangeShard, ranges: &mut TableRanges, owner: u32, interval: Interval) -> Addition {
        let added = ranges.add(owner, interval, MAX_INTERVALS);
        if added.is_first {
            shard.announce();
        }
        added
    }

    /// Adds an interval whatever writers are queued in it.
    pub(crate) fn widen_ranges(&self, owner: &mut Owner, table: TableId, interval: Interval) {
        let shard = self.range_shard(table);
        let mut tables = shard.tables.lock();
        let ranges = tables.entry(table).or_default();
        let Addition { is_merged, cost, .. } = self.add_range(shard, ranges, owner.index, interval);
        drop(tables);
        extended();
        owner.widened += u64::from(is_merged);
        owner.note_ranges(table, cost);
    }

    /// Takes all intervals of `owner` in a table out.
    pub(crate) fn release_ranges(&self, owner: u32, table: TableId) {
        while !self.change_ranges(table, |ranges| ranges.remove_some(owner)).is_done {}
        self.range_shard(table).retire();
    }

    /// Whether another owner covers the key. The caller has fenced and has looked at the key's point locks before.
    pub(crate) fn is_covered_by_other(&self, owner: u32, target: Target<'_>) -> bool {
        let shard = self.range_shard(target.table);
        if shard.is_unused() || mutant("sabotage: a writer does not look at intervals") {
            return false;
        }
        self.is_covered(owner, target)
    }

    /// As [`is_covered_by_other`](Self::is_covered_by_other), without a look at the count.
    pub(crate) fn is_covered(&self, owner: u32, target: Target<'_>) -> bool {
        rmw::contended(2);
        let tables = self.range_shard(target.table).tables.lock();
        tables.get(&target.table).is_some_and(|ranges| ranges.other_at(owner, target.key).is_some())
    }

    /// Whether an interval of `owner` covers the key.
    pub(crate) fn covers_itself(&self, owner: &Owner, target: Target<'_>) -> bool {
        if !owner.ranges.iter().any(|&(table, _)| table == target.table) {
            return false;
        }
        let tables = self.range_shard(target.table).tables.lock();
        tables.get(&target.table).is_some_and(|ranges| ranges.covers_key(owner.index, target.key))
    }

    /// The intervals of `owner` in a table.
    pub(crate) fn ranges_of(&self, owner: u32, table: TableId) -> Intervals {
        let tables = self.range_shard(table).tables.lock();
        tables.get(&table).and_then(|ranges| ranges.of(owner)).cloned().unwrap_or_default()
    }

    /// Queues a writer on its key: new intervals with the key wait for it.
    pub(crate) fn enter_range_queue(&self, owner: u32, row: RowHash, target: Target<'_>) {
        let mut tables = self.range_shard(target.table).tables.lock();
        let ranges = tables.entry(target.table).or_default();
        let is_new = ranges.queued.iter().all(|writer| writer.owner != owner);
        assert!(is_new, "writer {owner} is queued twice in {:?}: {:?}", target.table, ranges.queued);
        ranges.queued.push(Queued { owner, row, key: target.key.to_vec() });
    }

    /// Takes a writer out of the queue, and wakes the scans that may have waited for it.
    pub(crate) fn leave_range_queue(&self, owner: u32, table: TableId) {
        let mut tables = self.range_shard(table).tables.lock();
        let ranges = tables.get_mut(&table).expect("a table with a queued writer has a list");
        let at = ranges.queued.iter().position(|writer| writer.owner == owner);
        let writer = ranges.queued.remove(at.expect("a writer leaves the queue once"));
        let waited = ranges.waiting.iter().filter(|(_, interval)| interval.contains(&writer.key));
        let woken: Vec<u32> = waited.map(|&(scan, _)| scan).collect();
        if ranges.is_empty() {
            tables.remove(&table);
        }
        drop(tables);
        self.wake(&woken);
    }

    /// Changes intervals or waiting scans of a table, and wakes the writers whose keys no other owner covers then.
    fn change_ranges<R>(&self, table: TableId, change: impl FnOnce(&mut TableRanges) -> R) -> R {
        rmw::contended(2);
        let mut tables = self.range_shard(table).tables.lock();
        let ranges = tables.get_mut(&table).expect("a table with intervals or waiting scans has a list");
        let changed = change(ranges);
        let woken = ranges.uncovered();
        if ranges.is_empty() {
            tables.remove(&table);
        }
        drop(tables);
        self.wake(&woken);
        changed
    }

    /// Adds the owners that cover the key on which `owner` is queued.
    pub(crate) fn covering(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let tables = self.range_shard(table).tables.lock();
        let Some(ranges) = tables.get(&table) else { return };
        let queued = ranges.queued.iter().find(|writer| writer.owner == owner);
        queued.inspect(|writer| ranges.others_at(owner, &writer.key, into));
    }

    /// Adds the writers for which a scan of `owner` waits.
    pub(crate) fn range_blockers(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let queued: Vec<(u32, RowHash)> = {
            let tables = self.range_shard(table).tables.lock();
            let Some(ranges) = tables.get(&table) else { return };
            let Some((_, interval)) = ranges.waiting.iter().find(|&&(scan, _)| scan == owner) else { return };
            ranges.queued_in(owner, interval).map(|writer| (writer.owner, writer.row)).collect()
        };
        let blocks = |&(_, row): &(u32, RowHash)| !self.has_shared(owner, row);
        into.extend(queued.into_iter().filter(blocks).map(|(writer, _)| writer));
    }

    /// Another owner that covers the key.
    pub(crate) fn other_over(&self, owner: &Owner, target: Target<'_>) -> Option<u32> {
        let tables = self.range_shard(target.table).tables.lock();
        tables.get(&target.table)?.other_at(owner.index, target.key)
    }

    /// The error for a scan that does not wait for the writers queued in `interval`.
    #[must_use]
    pub fn range_refusal(&self, owner: &Owner, table: TableId, interval: &Interval) -> Error {
        let writer = {
            let tables = self.range_shard(table).tables.lock();
            let ranges = tables.get(&table);
            let queued = ranges.and_then(|ranges| ranges.queued_in(owner.index, interval).next());
            queued.map(|writer| (writer.owner, writer.key.clone()))
        };
        // The writer may have gone on since.
        let (holder, key) =
            writer.map_or_else(|| ("", interval.low().to_vec()), |(writer, key)| (self.label_of(writer), key));
        Error::RowLocked { what: What::Row(Target::row(table, &key)).named(), holder }
    }

    fn range_shard(&self, table: TableId) -> &RangeShard {
        &self.ranges[table.0 as usize % self.ranges.len()]
    }
}

/// A writer for which a scan of `owner` waits: it is queued on a key of the interval, and does not wait for that owner.
fn comes_first<'a>(ranges: &'a TableRanges, owner: &Owner, interval: &Interval) -> Option<&'a Queued> {
    ranges.queued_in(owner.index, interval).find(|writer| !owner.shares.has(writer.row))
}
