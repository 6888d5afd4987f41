//! The list of one table in a stripe: its intervals by owner and by key. The latch of the stripe protects the list (see
//! [`crate::range`]).
//!
//! A small list that becomes empty leaves its memory to the next one, so that short scans allocate nothing.

use crate::hash::{Map, Spread};
use crate::interval::{Change, Interval, Intervals};
use crate::interval_tree::{IntervalTree, Node};
use crate::lock_memory::UNIT_BYTES;
use foreshore_base::TableId;
use std::mem;

/// Most intervals of one owner in one table. Beyond this number they are merged, the nearest ones first.
pub(crate) const MAX_INTERVALS: usize = 1024;

/// Number of intervals that a merge leaves. It is below the maximum, so that not every addition has to merge.
const MERGED: usize = MAX_INTERVALS / 8 * 7;

/// Most intervals that are released under one latching. Writers wait for the latch meanwhile.
const BATCH: usize = 64;

/// Most places of an empty list of intervals that is kept for the next one.
const KEPT: usize = 8;

/// Most places for owners in such a list.
const KEPT_OWNERS: usize = 64;

/// Bytes of an interval besides long bounds. They cover a place in a list that may be half empty, and a node in such a
/// tree.
const INTERVAL_BYTES: usize = 2 * size_of::<Interval>() + 2 * size_of::<Node>();

/// The intervals of one table that owners of one stripe have.
#[derive(Debug, Default)]
pub(crate) struct TableRanges {
    /// The intervals of each owner, in ascending order of owners.
    held: Vec<(u32, Intervals)>,
    /// All of these intervals, ordered by key.
    by_key: IntervalTree,
    /// Memory for the intervals of the next owner.
    spare: Intervals,
}

/// The result of an addition.
#[derive(Debug)]
pub(crate) struct Addition {
    /// Whether the owner had no interval in the table.
    pub(crate) is_first: bool,
    /// Whether intervals that do not touch were merged to stay below the maximum.
    pub(crate) is_merged: bool,
    /// Memory that the owner's intervals in the table occupy now, in units of lock memory.
    pub(crate) cost: usize,
    /// The change, for [`TableRanges::undo_add`].
    pub(crate) change: Change,
}

/// The result of a removal. A caller drops it without the latch.
#[derive(Debug)]
pub(crate) struct Removal {
    /// Whether the owner has no interval left.
    pub(crate) is_done: bool,
    /// The intervals that were removed; may be empty if their memory is kept.
    pub(crate) intervals: Intervals,
    _tree: IntervalTree,
}

impl TableRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn find(&self, owner: u32) -> std::result::Result<usize, usize> {
        self.held.binary_search_by_key(&owner, |&(holder, _)| holder)
    }

    pub(crate) fn of(&self, owner: u32) -> Option<&Intervals> {
        self.find(owner).ok().map(|at| &self.held[at].1)
    }

    pub(crate) fn covers_key(&self, owner: u32, key: &[u8]) -> bool {
        self.of(owner).is_some_and(|held| held.contains(key))
    }

    /// Returns an owner other than `owner` that covers the key.
    pub(crate) fn other_at(&self, owner: u32, key: &[u8]) -> Option<u32> {
        let mut other = None;
        self.by_key.covering(key, |holder| {
            other = Some(holder).filter(|&holder| holder != owner);
            other.is_none()
        });
        other
    }

    /// Adds the owners other than `owner` that cover the key.
    pub(crate) fn others_at(&self, owner: u32, key: &[u8], into: &mut Vec<u32>) {
        self.by_key.covering(key, |holder| {
            into.extend(Some(holder).filter(|&holder| holder != owner));
            true
        });
    }

    /// Adds keys to the intervals of `owner`. Merges these if there are more than `most`.
    pub(crate) fn add(&mut self, owner: u32, interval: Interval, most: usize) -> Addition {
        let found = self.find(owner);
        let at = found.unwrap_or_else(|at| {
            self.held.insert(at, (owner, mem::take(&mut self.spare)));
            at
        });
        let held = &mut self.held[at].1;
        let change = held.add(interval);
        update(&mut self.by_key, owner, &change.removed, &change.added);
        let is_merged = held.len() > most;
        if is_merged {
            let merge = held.merge_down_to(most.min(MERGED));
            update(&mut self.by_key, owner, &merge.removed, &merge.added);
        }
        let cost = cost_of(held);
        debug_assert!(self.is_sound(), "an interval of owner {owner} was added: {self:?}");
        Addition { is_first: found.is_err(), is_merged, cost, change }
    }

    /// Undoes an addition to the intervals of `owner`, unless they were merged since. The caller undoes the newest
    /// addition first. Returns the cost of the remaining intervals; `None` if none is left.
    pub(crate) fn undo_add(&mut self, owner: u32, change: &Change) -> Option<usize> {
        let at = self.find(owner).expect("an undone addition was made");
        let held = &mut self.held[at].1;
        if held.undo_add(change) {
            update(&mut self.by_key, owner, &change.added, &change.removed);
        }
        let left = (!held.is_empty()).then(|| cost_of(held));
        if left.is_none() {
            let (_, intervals) = self.held.remove(at);
            self.keep(intervals);
        }
        debug_assert!(self.is_sound(), "an addition of owner {owner} was undone: {self:?}");
        left
    }

    /// Returns whether the owners are in order, and the tree has as many intervals as the owners together.
    fn is_sound(&self) -> bool {
        let held: usize = self.held.iter().map(|(_, intervals)| intervals.len()).sum();
        self.held.is_sorted_by(|(a, _), (b, _)| a < b) && self.by_key.len() == held
    }

    /// Removes some intervals of `owner`, which has at least one. `keeps` permits to keep the memory of a small list.
    pub(crate) fn remove_some(&mut self, owner: u32, keeps: bool) -> Removal {
        let at = self.find(owner).expect("intervals that go are held");
        if self.held.len() == 1 {
            // The only owner: all intervals go at once.
            let (_, intervals) = self.held.remove(at);
            let is_small = self.by_key.capacity() <= KEPT;
            let tree = if is_small { IntervalTree::default() } else { mem::take(&mut self.by_key) };
            self.by_key.clear();
            let intervals = if keeps { self.keep(intervals) } else { intervals };
            return Removal { is_done: true, intervals, _tree: tree };
        }
        let held = &mut self.held[at].1;
        let mut intervals = held.take_last(BATCH);
        intervals.iter().for_each(|interval| self.by_key.remove(owner, interval.low()));
        let is_done = held.is_empty();
        if is_done {
            self.held.remove(at);
            intervals = if keeps { self.keep(intervals) } else { intervals };
        }
        debug_assert!(self.is_sound(), "intervals of owner {owner} were released: {self:?}");
        Removal { is_done, intervals, _tree: IntervalTree::default() }
    }

    /// Keeps the memory of a small list for the next owner, and returns any other list.
    fn keep(&mut self, mut intervals: Intervals) -> Intervals {
        if intervals.capacity() > KEPT {
            return intervals;
        }
        intervals.clear();
        self.spare = intervals;
        Intervals::default()
    }
}

/// The lists of the tables of a shard, in one stripe.
#[derive(Debug)]
pub(crate) struct TableLists {
    lists: Map<TableId, TableRanges>,
    /// An empty list, whose memory the next table uses.
    spare: TableRanges,
}

impl TableLists {
    pub(crate) fn new() -> Self {
        Self { lists: Map::with_hasher(Spread), spare: TableRanges::default() }
    }

    pub(crate) fn get(&self, table: TableId) -> Option<&TableRanges> {
        self.lists.get(&table)
    }

    pub(crate) fn get_mut(&mut self, table: TableId) -> Option<&mut TableRanges> {
        self.lists.get_mut(&table)
    }

    /// Returns the list of a table, which is made if there is none.
    pub(crate) fn enter(&mut self, table: TableId) -> &mut TableRanges {
        self.lists.entry(table).or_insert_with(|| mem::take(&mut self.spare))
    }

    /// Removes the list of a table if it is empty.
    pub(crate) fn end_if_empty(&mut self, table: TableId) {
        if self.lists.get(&table).is_some_and(TableRanges::is_empty)
            && let Some(list) = self.lists.remove(&table)
            && list.held.capacity() <= KEPT_OWNERS
            && list.by_key.capacity() <= KEPT
        {
            self.spare = list;
        }
    }
}

/// Replaces intervals of `owner` in the tree.
fn update(tree: &mut IntervalTree, owner: u32, removed: &[Interval], added: &[Interval]) {
    // In the common case a scan moves only the end of one interval.
    if let ([old], [new]) = (removed, added)
        && old.low() == new.low()
    {
        tree.replace(owner, new);
        return;
    }
    removed.iter().for_each(|old| tree.remove(owner, old.low()));
    added.iter().for_each(|new| tree.insert(owner, new.clone()));
}

/// Returns the memory of intervals, in units of [`UNIT_BYTES`].
fn cost_of(held: &Intervals) -> usize {
    (INTERVAL_BYTES * held.len() + held.heap_bytes()).div_ceil(UNIT_BYTES)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
