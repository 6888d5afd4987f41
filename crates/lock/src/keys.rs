//! Locks of keys in bounded memory: point locks, intervals of keys, and the turns of writers that conflict with them.
//!
//! A transaction has units of lock memory: its own, and those that it borrows ([`crate::lock_memory`]). When it can
//! borrow no more, it merges its locks in the table that occupies most. Its point locks and intervals there become one
//! interval, from the lowest of their keys to the highest. So no transaction fails for want of lock memory. Its locks
//! only get coarser: at worst one interval per table.
//!
//! **Widening never waits.** The transaction has read nothing in the new part of the interval. An earlier writer in
//! that part has left its xid in a header, which the transaction meets if it reads that row. A later writer meets the
//! interval.
//!
//! **Order:** the interval is counted and fenced first. Then the point locks are removed (see [`crate::range`]).

use crate::hash::{RowHash, RowHasher};
use crate::held::Held;
use crate::interval::{Change, Interval};
use crate::lock_memory::LockMemory;
use crate::point::{Entered, PointLocks};
use crate::range::RangeLocks;
use crate::slots::Slots;
use crate::target::Target;
use foreshore_base::TableId;
use foreshore_sync::model::mutant;

/// The point lock that a request added for its transaction, for `LockManager::unshare`. It is empty if the transaction
/// could read the key already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewShare(Option<RowHash>);

/// The keys that a request added to the intervals of its transaction, for `LockManager::uncover`.
#[derive(Clone, Debug)]
pub struct NewRange {
    table: TableId,
    /// How the intervals from before have changed; `None` if nothing was added.
    change: Option<Change>,
    /// How often the owner's locks had been merged before the addition.
    merges: u64,
}

/// The locks of keys of all owners.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    hasher: RowHasher,
    points: PointLocks,
    ranges: RangeLocks,
    memory: LockMemory,
}

impl KeyLocks {
    pub(crate) fn new(counters: usize, memory: LockMemory) -> Self {
        Self { hasher: RowHasher::new(), points: PointLocks::new(counters), ranges: RangeLocks::new(), memory }
    }

    pub(crate) fn hash(&self, target: Target<'_>) -> RowHash {
        self.hasher.hash(target.table, target.key)
    }

    pub(crate) const fn points(&self) -> &PointLocks {
        &self.points
    }

    pub(crate) const fn ranges(&self) -> &RangeLocks {
        &self.ranges
    }

    pub(crate) const fn memory(&self) -> &LockMemory {
        &self.memory
    }

    /// Enters a point lock of a key. Enters nothing if another lock of the owner permits it to read the key. A request
    /// that is refused, and may wait, is queued behind the writers.
    pub(crate) fn share(&self, slots: &Slots, held: &mut Held, target: Target<'_>, may_wait: bool) -> Option<NewShare> {
        if held.reads_all(target.table) || self.ranges.covers(held, target) {
            return Some(NewShare(None));
        }
        let row = self.hash(target);
        match self.points.enter(held.owner(), row, may_wait) {
            Entered::New => {
                held.add_point(row, target);
                self.fit(slots, held);
                Some(NewShare(Some(row)))
            }
            Entered::Held => Some(NewShare(None)),
            Entered::Refused => None,
        }
    }

    /// Releases a point lock that was entered before. A lock that was merged into an interval stays.
    pub(crate) fn unshare(&self, slots: &Slots, held: &mut Held, share: NewShare) {
        if mutant("share: what is given up stays") {
            return;
        }
        if let NewShare(Some(row)) = share
            && held.remove_point(row)
        {
            self.points.release(slots, held.owner(), row);
        }
    }

    /// Covers the keys of an interval. Returns `None` if a queued writer goes first.
    pub(crate) fn cover(
        &self,
        slots: &Slots,
        held: &mut Held,
        table: TableId,
        interval: &Interval,
    ) -> Option<NewRange> {
        let mut new = NewRange { table, change: None, merges: held.merges() };
        if !interval.is_empty() && !held.reads_all(table) {
            new.change = self.ranges.try_add(slots, held, table, interval)?;
            self.fit(slots, held);
        }
        Some(new)
    }

    /// Undoes an addition, unless locks were merged since.
    pub(crate) fn uncover(&self, slots: &Slots, held: &mut Held, new: NewRange) {
        let NewRange { table, change: Some(change), merges } = new else { return };
        if merges == held.merges() && !mutant("range: what is given up stays") {
            self.ranges.undo_add(slots, held, table, change);
        }
    }

    /// Returns whether another owner has the key shared. The caller is a writer that has stored its xid.
    pub(crate) fn is_shared_by_other(&self, held: &Held, target: Target<'_>) -> bool {
        let (owner, row) = (held.owner(), self.hash(target));
        let ranges_first = mutant("range: the count of intervals is loaded first");
        let is_covered = ranges_first && self.ranges.is_covered_by_other(owner, target);
        // Points before intervals: a merged point lock is uncounted only after its interval was counted.
        self.points.is_shared_by_other(owner, row)
            || is_covered
            || !ranges_first && self.ranges.is_covered_by_other(owner, target)
    }

    /// Returns an owner other than `owner` that has the key shared, or waits to lock it exclusively.
    pub(crate) fn other_at(&self, owner: u32, target: Target<'_>) -> Option<u32> {
        self.points.other_at(owner, self.hash(target)).or_else(|| self.ranges.other_at(owner, target))
    }

    /// Queues a writer on a key, in the key's entry and in the queue of its table. New readers of the key wait for it.
    pub(crate) fn enter_turn(&self, held: &Held, row: RowHash, target: Target<'_>) {
        let covers = self.ranges.covers(held, target);
        self.ranges.enter_queue(held.owner(), row, target);
        self.points.enter_turn(held.owner(), row, covers);
    }

    /// Returns whether no foreign lock keeps the writer from the key. The entry and the list need not be read at one
    /// moment. While the writer stands in both, no foreign lock of the key is added, except by widening, or by a scan
    /// that takes it back and wakes the writer. The writer finds such an interval when it checks again under its latch.
    pub(crate) fn is_turn_of(&self, owner: u32, row: RowHash, target: Target<'_>) -> bool {
        self.points.is_turn_of(owner, row) && self.ranges.other_at(owner, target).is_none()
    }

    pub(crate) fn leave_turn(&self, slots: &Slots, owner: u32, (row, table): (RowHash, TableId)) {
        self.ranges.leave_queue(slots, owner, table);
        self.points.leave_turn(slots, owner, row);
    }

    /// Adds the writers that a waiting scan of `owner` waits for.
    pub(crate) fn scan_blockers(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let writers = self.ranges.writers_before(owner, table);
        // A writer on a row that the scan's owner has shared waits for that owner.
        into.extend(writers.into_iter().filter(|&(_, row)| !self.points.has(owner, row)).map(|(writer, _)| writer));
    }

    /// Locks keys that were held before a restart. No other owner has a lock yet, so nothing is waited for. If there is
    /// less memory than before the restart, the locks become coarser.
    pub(crate) fn restore(&self, slots: &Slots, held: &mut Held, table: TableId, keys: &Interval) {
        if let Some(key) = keys.as_key() {
            let is_locked = self.share(slots, held, Target::row(table, key), false).is_some();
            assert!(is_locked, "a writer queues on a key of {table:?} before restored locks are taken");
        } else {
            self.ranges.widen(held, table, keys.clone());
            self.fit(slots, held);
        }
    }

    /// Releases all point locks and intervals.
    pub(crate) fn release(&self, slots: &Slots, held: &mut Held) {
        let owner = held.owner();
        let (rows, tables) = held.take_keys();
        rows.for_each(|row| self.points.release(slots, owner, row));
        tables.for_each(|table| self.ranges.release(slots, owner, table));
        held.give_back(&self.memory);
    }

    /// Borrows memory, then merges locks, until the locks fit the memory of their owner. The newest lock may exceed it
    /// meanwhile.
    fn fit(&self, slots: &Slots, held: &mut Held) {
        while held.is_over() && (held.borrow(&self.memory) || self.merge_largest(slots, held)) {}
    }

    /// Merges the locks of the table that occupies most into one interval. Returns false if that frees no memory, or if
    /// no table has locks to merge.
    fn merge_largest(&self, slots: &Slots, held: &mut Held) -> bool {
        let (owner, before) = (held.owner(), held.charged());
        let costs = held.costs().into_iter();
        let shrinkable = costs.filter(|&(table, (_, has_points))| has_points || self.ranges.of(owner, table).len() > 1);
        let Some((table, _)) = shrinkable.max_by_key(|&(_, (cost, _))| cost) else { return false };
        self.merge_table(slots, held, table);
        held.charged() < before
    }

    /// Merges all locks in a table into one interval.
    fn merge_table(&self, slots: &Slots, held: &mut Held, table: TableId) {
        let (owner, ranges) = (held.owner(), self.ranges.of(held.owner(), table));
        let (rows, points) = held.take_points(table).map_or_else(Default::default, |(rows, hull)| (rows, Some(hull)));
        let hull = points.into_iter().chain(ranges.iter().cloned()).reduce(|mut hull, interval| {
            hull.widen_to(interval);
            hull
        });
        held.note_merge();
        let release = || rows.iter().for_each(|&row| self.points.release(slots, owner, row));
        let too_early = mutant("range: point locks go before they are merged");
        if too_early {
            release();
        }
        if !mutant("sabotage: locks that are merged into an interval are lost") {
            self.ranges.widen(held, table, hull.expect("a table of which locks are merged has some"));
        }
        if !too_early {
            release();
        }
        held.give_back(&self.memory);
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_before_stays_and_what_is_new_goes() {
        let (slots, keys) = (Slots::new(2), KeyLocks::new(1, LockMemory::new(64, 2)));
        let (mut reader, writer) = (Held::new(0, keys.memory().own()), Held::new(1, keys.memory().own()));
        let [one, another] = [&b"one"[..], b"another"].map(|key| Target::row(TableId(1), key));
        for _ in 0..2 {
            keys.share(&slots, &mut reader, one, false).expect("no writer is there");
        }
        let again = keys.share(&slots, &mut reader, one, false).expect("it is held");
        keys.unshare(&slots, &mut reader, again);
        assert!(keys.is_shared_by_other(&writer, one));
        let new = keys.share(&slots, &mut reader, another, false).expect("no writer is there");
        assert!(keys.is_shared_by_other(&writer, another));
        keys.unshare(&slots, &mut reader, new);
        assert!(!keys.is_shared_by_other(&writer, another));
        assert_eq!(reader.points().count(), 1, "as before");
        keys.release(&slots, &mut reader);
        assert!(!keys.is_shared_by_other(&writer, one));
        assert_eq!(reader.charged(), 0);
    }
}
