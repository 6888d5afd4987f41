//! Range locks: the intervals of keys that serializable scans have read, whether the keys exist or not.
//!
//! | part | where | changed by |
//! |---|---|---|
//! | intervals by owner (disjoint, ordered by low bound), and all by key | the table's list in a stripe, latched | the owner |
//! | counts of owners with intervals: of each stripe, and their sum | atomics of the shard, side by side | the owner, with its intervals |
//! | writers queued on a key that is covered, and their count | the queue of the shard ([`crate::writer_queue`]) | the writer |
//! | scans that wait for such a writer | the same queue | the scan |
//!
//! A shard has the tables of some ids, and a stripe of it has the intervals of some owners. So two scans seldom share a
//! mutex. No thread holds two of these mutexes.
//!
//! **Protocol.**
//!
//! 1. A *scan step* copies a leaf and checks the holders of its rows. It extends its owner's intervals to exactly the
//!    keys that it returns, fences, and validates the leaf.
//! 2. A *writer* latches the leaf exclusively, which changes the version that the scan validates. It stores its xid if
//!    there is a row. Then it fences, loads the count of point locks of the key's hash slot, and after that the count
//!    here. If that is not zero, it loads the counts of the stripes, and searches each list whose count is not zero.
//! 3. If another owner covers the key, the writer restores the old header, unlatches, and queues on the key
//!    (`LockManager::wait_exclusive`). An insert checks before the tuple is in the leaf.
//!
//! **Invariant:** if a scan step and a writer have both finished, the scan found the leaf changed or the writer found
//! the interval. If the writer loads both counts after the scan has raised them (store, fence, look on both sides), the
//! list has the interval. Otherwise the scan validates after the writer's latch. If the counts were not zero before,
//! the latch of the list orders the two.
//!
//! The stripes are read one after another. That is sound, other than with a sum of counts, because an owner never
//! changes its stripe. An interval that is added in a stripe which the writer has passed belongs to a scan step that
//! validates after the writer's latch.
//!
//! Intervals consist of keys, not of pages. So splits, merges and purges move no lock, and no ghost is kept for a lock.
//!
//! **Order of release.** The intervals are removed first. Then the counts are decremented with release order, so a
//! writer that loads zero comes after the commit of the scan. Point locks that are merged into an interval are removed
//! after the interval is counted. A writer loads their count first, so it finds one of the two.
//!
//! **Waits.** A new interval waits behind a writer queued on a key in it, so that scans do not starve writers. It does
//! not wait if its owner already blocks that writer by an interval or a point lock, because it would wait for itself.
//! Widening for want of memory never waits (see [`crate::keys`]): the owner meets an earlier writer by its header, and
//! a later writer meets the interval. Each walk for deadlocks looks up both kinds of edge anew: the owners that cover
//! the key, and the queued writers.
//!
//! **Scan and queue.** Both sides store, fence and look, so at least one sees the other:
//!
//! - A scan adds its interval, fences, and loads the count of queued writers. If one of them goes first, the scan takes
//!   the addition back, which wakes that writer, and waits behind it. It loads the count before the addition too, so
//!   that few additions are taken back.
//! - A scan that removes intervals loads that count under the mutex of its stripe, or later. It wakes the writers in
//!   them that no other owner covers. It needs no fence: a writer that has found one of them there had queued before.
//! - A writer queues, fences, and looks for intervals.
//!
//! An addition that has merged intervals cannot be taken back, and stays like a widened one.
//!
//! Source: predicate locks (Eswaran et al., 1976) restricted to one dimension, in place of next-key locks. The
//! handshakes are like that of [`crate::share_count`].

use crate::hash::RowHash;
use crate::held::Held;
use crate::interval::{Change, Interval, Intervals};
use crate::slots::Slots;
use crate::table_ranges::{Addition, MAX_INTERVALS, Removal, TableLists, TableRanges};
use crate::target::Target;
use crate::writer_queue::{Queued, WriterQueue};
use foreshore_base::TableId;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering, fence};
use foreshore_sync::{CachePadded, LockRank, Mutex, rmw};

/// The number of shards. Loom gets one, because each adds to its state.
const SHARDS: usize = if cfg!(foreshore_loom) { 1 } else { 32 };

/// The number of stripes of a shard: about as many as threads that scan one table at once.
const STRIPES: usize = if cfg!(foreshore_loom) { 2 } else { 16 };

/// The intervals of the owners whose numbers map to one stripe, in the tables of a shard.
#[derive(Debug)]
struct Stripe {
    tables: Mutex<TableLists>,
}

impl Stripe {
    fn new() -> Self {
        Self { tables: Mutex::new(LockRank::RangeLocks, TableLists::new()) }
    }

    /// Reads the list of a table. `None` if it has none.
    fn read<R>(&self, table: TableId, read: impl FnOnce(&TableRanges) -> R) -> Option<R> {
        self.tables.lock().get(table).map(read)
    }

    /// Changes the list of a table in which an owner of the stripe has intervals.
    fn change<R>(&self, table: TableId, change: impl FnOnce(&mut TableRanges) -> R) -> R {
        let mut tables = self.tables.lock();
        let changed = change(tables.get_mut(table).expect("a table with a lock has a list"));
        tables.end_if_empty(table);
        changed
    }

    /// Adds an interval; `None` if others of the owner cover it.
    fn add(&self, owner: u32, table: TableId, interval: Interval) -> Option<Addition> {
        let mut tables = self.tables.lock();
        let ranges = tables.enter(table);
        if ranges.of(owner).is_some_and(|mine| mine.covers(&interval)) {
            return None;
        }
        Some(ranges.add(owner, interval, MAX_INTERVALS))
    }
}

/// The counts of a shard. They lie side by side, because each change is of two, and a writer may load all.
#[derive(Debug)]
struct Holders {
    /// Contract: the sum of `in_stripe`. It differs from it only while an owner changes both.
    all: AtomicU32,
    /// Contract: for each stripe, the number of pairs of a table and an owner that has intervals in it. It is smaller
    /// between the first addition and the increment, and larger between the removal of intervals and the decrement.
    in_stripe: [AtomicU32; STRIPES],
}

/// The tables whose ids map to one shard.
#[derive(Debug)]
struct RangeShard {
    holders: CachePadded<Holders>,
    stripes: [CachePadded<Stripe>; STRIPES],
    queue: CachePadded<WriterQueue>,
}

impl RangeShard {
    fn new() -> Self {
        let stripes = std::array::from_fn(|_| CachePadded::new(Stripe::new()));
        let queue = CachePadded::new(WriterQueue::new());
        let in_stripe = std::array::from_fn(|_| AtomicU32::new(0));
        Self { holders: CachePadded::new(Holders { all: AtomicU32::new(0), in_stripe }), stripes, queue }
    }

    fn stripe(&self, owner: u32) -> &Stripe {
        &self.stripes[owner as usize % STRIPES]
    }

    /// Counts an owner that has got its first interval in a table. The caller then calls [`extended`].
    fn announce(&self, owner: u32) {
        rmw::contended(1);
        // ORDERING: store, fence, look; see `extended`.
        self.holders.in_stripe[owner as usize % STRIPES].fetch_add(1, Ordering::Relaxed);
        // ORDERING: as above.
        self.holders.all.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts an owner whose intervals in a table were removed.
    fn retire(&self, owner: u32) {
        rmw::contended(1);
        // ORDERING: count down, Release: a writer that reads zero sees this transaction's commit; pairs with `is_zero`.
        let order = if mutant("range: relaxed retirement") { Ordering::Relaxed } else { Ordering::Release };
        for holders in [&self.holders.in_stripe[owner as usize % STRIPES], &self.holders.all] {
            // ORDERING: as above.
            let before = holders.fetch_sub(1, order);
            assert!(before > 0, "an owner is uncounted once");
        }
    }
}

/// Returns whether no owner is counted. A writer has fenced before, and relies on a zero. For any other caller, a zero
/// that is out of date is harmless.
fn is_zero(holders: &AtomicU32) -> bool {
    // ORDERING: store, fence, look; that fence is of `ShareCounts::is_zero` or `WriterQueue::enter`, before this.
    // It pairs with the one in `extended`. Acquire, pairs with `retire`.
    holders.load(Ordering::Acquire) == 0
}

/// Fences between the extension of a scan's interval and the validation of the leaf, or the look for queued writers.
fn extended() {
    // ORDERING: store, fence, look; pairs with the fences in `ShareCounts::is_zero` and `WriterQueue::enter`.
    if !mutant("range: no fence after extending") {
        fence(Ordering::SeqCst);
    }
}

/// The intervals of all owners.
#[derive(Debug)]
pub(crate) struct RangeLocks {
    shards: Box<[RangeShard]>,
}

impl RangeLocks {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RangeShard::new()).collect() }
    }

    /// Covers the keys of an interval, and returns how the earlier intervals changed; the inner `None` means not at
    /// all. If a queued writer goes first, returns `None` and changes nothing.
    pub(crate) fn try_add(
        &self,
        slots: &Slots,
        held: &mut Held,
        table: TableId,
        interval: &Interval,
    ) -> Option<Option<Change>> {
        let (shard, owner) = (self.shard(table), held.owner());
        let writers = |is_new: &dyn Fn(&[u8]) -> bool| {
            let writers = shard.queue.writers_in(owner, table, interval);
            writers.iter().any(|writer| is_new(&writer.key) && !held.has_point(writer.row))
        };
        if !shard.queue.is_empty() && writers(&|key| !self.covers_key(owner, table, key)) {
            return None;
        }
        let Some(added) = shard.stripe(owner).add(owner, table, interval.clone()) else {
            extended();
            return Some(None);
        };
        if added.is_first {
            shard.announce(owner);
        }
        extended();
        let was_covered = |key: &[u8]| added.change.removed.iter().any(|old| old.contains(key));
        let is_late = !added.is_merged && !shard.queue.is_empty() && writers(&|key| !was_covered(key));
        let change = note_addition(held, table, added);
        if is_late {
            self.undo_add(slots, held, table, change);
            return None;
        }
        Some(Some(change))
    }

    /// Adds an interval, even if writers are queued on its keys.
    pub(crate) fn widen(&self, held: &mut Held, table: TableId, interval: Interval) {
        let (shard, owner) = (self.shard(table), held.owner());
        let Some(added) = shard.stripe(owner).add(owner, table, interval) else { return extended() };
        if added.is_first {
            shard.announce(owner);
        }
        extended();
        note_addition(held, table, added);
    }

    /// Undoes the newest addition, and wakes the writers that it has blocked.
    pub(crate) fn undo_add(&self, slots: &Slots, held: &mut Held, table: TableId, change: Change) {
        let (shard, owner) = (self.shard(table), held.owner());
        let left = shard.stripe(owner).change(table, |ranges| ranges.undo_add(owner, &change));
        held.note_ranges(table, left);
        if left.is_none() {
            shard.retire(owner);
        }
        if !shard.queue.is_empty() && !mutant("range: an addition is taken back without a wake") {
            let is_in = |intervals: &[Interval], key: &[u8]| intervals.iter().any(|interval| interval.contains(key));
            let is_removed = |key: &[u8]| is_in(&change.added, key) && !is_in(&change.removed, key);
            slots.wake(&self.uncovered(None, table, is_removed));
        }
    }

    /// Removes all intervals of `owner` in a table, and wakes the writers that they have blocked.
    pub(crate) fn release(&self, slots: &Slots, owner: u32, table: TableId) {
        let shard = self.shard(table);
        let looks_first = mutant("range: a release looks for other owners before it removes");
        let mut is_done = false;
        while !is_done {
            let early = (looks_first && !shard.queue.is_empty()).then(|| self.uncovered(Some(owner), table, |_| true));
            // Under the mutex of the stripe: a writer that has found an interval there is counted. A later one finds
            // none, and waits for none.
            let (removal, is_waited_for): (Removal, bool) = shard.stripe(owner).change(table, |ranges| {
                let is_waited_for = !shard.queue.is_empty();
                (ranges.remove_some(owner, !is_waited_for), is_waited_for)
            });
            is_done = removal.is_done;
            if is_done {
                shard.retire(owner);
            }
            if is_waited_for && !mutant("range: a removal wakes no writer") {
                let is_removed = |key: &[u8]| removal.intervals.contains(key);
                slots.wake(&early.unwrap_or_else(|| self.uncovered(None, table, is_removed)));
            }
        }
    }

    /// Returns the queued writers whose keys `is_removed` selects and no owner other than `besides` covers; without
    /// `besides`, none other than the writer. The caller has removed the intervals of these keys.
    fn uncovered(&self, besides: Option<u32>, table: TableId, is_removed: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let writers = self.shard(table).queue.writers_where(table, |writer| is_removed(&writer.key));
        let besides = |writer: &Queued| besides.unwrap_or(writer.owner);
        let is_free = |writer: &&Queued| self.other_at(besides(writer), Target::row(table, &writer.key)).is_none();
        writers.iter().filter(is_free).map(|writer| writer.owner).collect()
    }

    /// Returns the key of a queued writer that goes before a scan, if there is one. The scan is listed as waiting until
    /// there is none. It covers nothing meanwhile, or new writers that meet its interval would queue before it at its
    /// next check.
    pub(crate) fn stand_behind(&self, held: &Held, table: TableId, interval: &Interval) -> Option<Vec<u8>> {
        let (queue, owner) = (&self.shard(table).queue, held.owner());
        let writers = queue.stand_behind(owner, table, interval);
        let goes_first = |writer: &Queued| !held.has_point(writer.row) && !self.covers_key(owner, table, &writer.key);
        let first = writers.into_iter().find(goes_first);
        if first.is_none() {
            queue.cancel(owner, table);
        }
        first.map(|writer| writer.key)
    }

    /// Removes a scan from those that wait.
    pub(crate) fn cancel_request(&self, owner: u32, table: TableId) {
        self.shard(table).queue.cancel(owner, table);
    }

    /// Returns whether another owner covers the key. The caller has fenced, and has checked the key's point locks
    /// before.
    pub(crate) fn is_covered_by_other(&self, owner: u32, target: Target<'_>) -> bool {
        if is_zero(&self.shard(target.table).holders.all) || mutant("sabotage: a writer does not look at intervals") {
            return false;
        }
        self.other_at(owner, target).is_some()
    }

    /// Returns an owner other than `owner` that covers the key. A writer that relies on `None` has fenced.
    pub(crate) fn other_at(&self, owner: u32, target: Target<'_>) -> Option<u32> {
        let shard = self.shard(target.table);
        let mut stripes = shard.holders.in_stripe.iter().zip(&shard.stripes);
        stripes.find_map(|(holders, stripe)| {
            if is_zero(holders) {
                return None;
            }
            rmw::contended(2);
            stripe.read(target.table, |ranges| ranges.other_at(owner, target.key)).flatten()
        })
    }

    /// Returns whether an interval of the owner covers the key.
    pub(crate) fn covers(&self, held: &Held, target: Target<'_>) -> bool {
        held.range_tables().any(|table| table == target.table)
            && self.covers_key(held.owner(), target.table, target.key)
    }

    fn covers_key(&self, owner: u32, table: TableId, key: &[u8]) -> bool {
        self.shard(table).stripe(owner).read(table, |ranges| ranges.covers_key(owner, key)) == Some(true)
    }

    /// Returns the intervals of `owner` in a table.
    pub(crate) fn of(&self, owner: u32, table: TableId) -> Intervals {
        let of = self.shard(table).stripe(owner).read(table, |ranges| ranges.of(owner).cloned());
        of.flatten().unwrap_or_default()
    }

    /// Queues a writer on its key. New intervals that contain the key wait for it.
    pub(crate) fn enter_queue(&self, owner: u32, row: RowHash, target: Target<'_>) {
        self.shard(target.table).queue.enter(owner, row, target);
    }

    /// Removes a writer from the queue, and wakes the scans that may have waited for it.
    pub(crate) fn leave_queue(&self, slots: &Slots, owner: u32, table: TableId) {
        slots.wake(&self.shard(table).queue.leave(owner, table));
    }

    /// Adds the owners that cover the key on which `owner` is queued. It searches all stripes, because a walk for
    /// deadlocks relies on the order of their mutexes.
    pub(crate) fn covering(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let shard = self.shard(table);
        let Some(key) = shard.queue.key_of(owner, table) else { return };
        for stripe in &shard.stripes {
            stripe.read(table, |ranges| ranges.others_at(owner, &key, into));
        }
    }

    /// Returns the writers that a waiting scan of `owner` may wait for, with the rows on which they are queued.
    pub(crate) fn writers_before(&self, owner: u32, table: TableId) -> Vec<(u32, RowHash)> {
        let writers = self.shard(table).queue.writers_before(owner, table);
        let is_new = |writer: &&Queued| !self.covers_key(owner, table, &writer.key);
        writers.iter().filter(is_new).map(|writer| (writer.owner, writer.row)).collect()
    }

    /// Returns a writer queued on a key of the interval that `owner` requests, and that key.
    pub(crate) fn writer_in(&self, owner: u32, table: TableId, interval: &Interval) -> Option<(u32, Vec<u8>)> {
        let writers = self.shard(table).queue.writers_in(owner, table, interval);
        let first = writers.into_iter().find(|writer| !self.covers_key(owner, table, &writer.key))?;
        Some((first.owner, first.key))
    }

    fn shard(&self, table: TableId) -> &RangeShard {
        &self.shards[table.0 as usize % self.shards.len()]
    }
}

/// Records an addition with its owner.
fn note_addition(held: &mut Held, table: TableId, Addition { is_merged, cost, change, .. }: Addition) -> Change {
    if is_merged {
        held.note_merge();
    }
    held.note_ranges(table, Some(cost));
    change
}
