//! Locks of keys: point locks and intervals of keys, in bounded memory, and the turns of writers that met them.
//!
//! A transaction has units of lock memory: its own, and what it borrows ([`crate::lock_memory`]). When no more is
//! lent, its point locks and intervals of the table that takes most become one interval, from the lowest of their keys
//! to the highest. So lock memory ends no transaction: locks only get coarser, in the end one interval a table.
//!
//! **Widening never waits.** The transaction has read nothing in the new part of the interval. A writer that was there
//! before is met by the header that it left, if the transaction comes to that row; a later writer meets the interval.
//!
//! **Order:** first the interval, counted and fenced, then the point locks go (see [`crate::range`]).

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

/// What a request has entered that its transaction did not have, for `LockManager::unshare`. It may be nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewShare(Option<RowHash>);

/// What a request has added to the intervals of its transaction, for `LockManager::uncover`.
#[derive(Clone, Debug)]
pub struct NewRange {
    table: TableId,
    /// What has become of the intervals from before; `None` if nothing was added.
    change: Option<Change>,
    /// How often the owner's locks had been merged.
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

    /// Enters a point lock of a key. If it is refused and may wait, it stands in line behind the writers. Nothing is
    /// entered if another lock of the owner lets it read the key.
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

    /// Takes a point lock back that has not been merged.
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

    /// Covers the keys of an interval, unless a writer comes first.
    pub(crate) fn cover(
        &self,
        slots: &Slots,
        held: &mut Held,
        table: TableId,
        interval: &Interval,
    ) -> Option<NewRange> {
        let mut new = NewRange { table, change: None, merges: held.merges() };
        if !interval.is_empty() && !held.reads_all(table) {
            new.change = self.ranges.try_add(held, table, interval)?;
            self.fit(slots, held);
        }
        Some(new)
    }

    /// Undoes an addition, unless locks have been merged since.
    pub(crate) fn uncover(&self, slots: &Slots, held: &mut Held, new: NewRange) {
        let NewRange { table, change: Some(change), merges } = new else { return };
        if merges == held.merges() && !mutant("range: what is given up stays") {
            self.ranges.undo_add(slots, held, table, change);
        }
    }

    /// Whether another owner has the key shared, for a writer that has stored its xid.
    pub(crate) fn is_shared_by_other(&self, held: &Held, target: Target<'_>) -> bool {
        let (owner, row) = (held.owner(), self.hash(target));
        let ranges_first = mutant("range: the count of intervals is loaded first");
        let is_covered = ranges_first && self.ranges.is_covered_by_other(owner, target);
        // This order: a point lock that is merged into an interval is uncounted after the interval was counted.
        self.points.is_shared_by_other(owner, row)
            || is_covered
            || !ranges_first && self.ranges.is_covered_by_other(owner, target)
    }

    /// An owner other than `owner` that has the key shared, or waits to have it exclusively.
    pub(crate) fn other_at(&self, owner: u32, target: Target<'_>) -> Option<u32> {
        self.points.other_at(owner, self.hash(target)).or_else(|| self.ranges.other_at(owner, target))
    }

    /// Keeps new readers of a key out, in its entry and in the list of its table.
    pub(crate) fn enter_turn(&self, held: &Held, row: RowHash, target: Target<'_>) {
        let covers = self.ranges.covers(held, target);
        self.ranges.enter_queue(held.owner(), row, target);
        self.points.enter_turn(held.owner(), row, covers);
    }

    /// Whether nothing keeps the writer from the key. The looks at the entry and at the list need not be one. While
    /// the writer stands in both, foreign locks of the key only go, but for widened ones: those the writer meets under
    /// its latch.
    pub(crate) fn is_turn_of(&self, owner: u32, row: RowHash, target: Target<'_>) -> bool {
        self.points.is_turn_of(owner, row) && self.ranges.other_at(owner, target).is_none()
    }

    pub(crate) fn leave_turn(&self, slots: &Slots, owner: u32, (row, table): (RowHash, TableId)) {
        self.ranges.leave_queue(slots, owner, table);
        self.points.leave_turn(slots, owner, row);
    }

    /// Adds the writers for which a waiting scan of `owner` waits.
    pub(crate) fn scan_blockers(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let writers = self.ranges.writers_before(owner, table);
        // A writer on a row that the scan's owner has shared waits for that owner.
        into.extend(writers.into_iter().filter(|&(_, row)| !self.points.has(owner, row)).map(|(writer, _)| writer));
    }

    /// Locks keys that were held before a restart. No other owner has a lock, so there is nothing to wait for. Where
    /// there is less memory than there was then, the locks are coarser.
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

    /// Merges locks until they fit the memory of their owner. The latest lock may exceed it for a moment.
    fn fit(&self, slots: &Slots, held: &mut Held) {
        while held.is_over() && (held.borrow(&self.memory) || self.merge_largest(slots, held)) {}
    }

    /// Makes one interval of the locks of the table that takes most; false if each table has only one.
    fn merge_largest(&self, slots: &Slots, held: &mut Held) -> bool {
        let (owner, before) = (held.owner(), held.charged());
        let costs = held.costs().into_iter();
        let shrinkable = costs.filter(|&(table, (_, has_points))| has_points || self.ranges.of(owner, table).len() > 1);
        let Some((table, _)) = shrinkable.max_by_key(|&(_, (cost, _))| cost) else { return false };
        self.merge_table(slots, held, table);
        held.charged() < before
    }

    /// Makes one interval of all locks in a table.
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
