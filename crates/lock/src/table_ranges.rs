//! The list of one table: intervals by owner and by key, writers queued on keys, scans that wait for them. Its latch
//! is that of its shard (see [`crate::range`]).

use crate::hash::RowHash;
use crate::interval::{Change, Interval, Intervals};
use crate::interval_tree::{IntervalTree, Node};
use crate::lock_memory::UNIT_BYTES;

/// Most intervals of one owner in one table. More of them are merged, the nearest ones first.
pub(crate) const MAX_INTERVALS: usize = 1024;

/// Intervals that are left then, so that not every addition looks for the nearest ones.
const MERGED: usize = MAX_INTERVALS / 8 * 7;

/// Most intervals that are released at a time: writers wait for the latch meanwhile.
const BATCH: usize = 64;

/// Bytes of an interval beside its bounds: its place in a list that may be half empty, its node in such a tree, and
/// the heads of its bounds.
const INTERVAL_BYTES: usize = 2 * size_of::<Interval>() + 2 * size_of::<Node>() + 2 * 24;

/// The intervals of one table and the waits for them.
#[derive(Debug, Default)]
pub(crate) struct TableRanges {
    /// By owner, ascending.
    held: Vec<(u32, Intervals)>,
    /// The same by key.
    by_key: IntervalTree,
    /// Writers that met foreign point locks or intervals.
    pub(crate) queued: Vec<Queued>,
    /// Scans that wait for one of those writers.
    pub(crate) waiting: Vec<(u32, Interval)>,
}

/// A writer queued on a key.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) owner: u32,
    pub(crate) row: RowHash,
    pub(crate) key: Vec<u8>,
}

/// What came of an addition.
#[derive(Debug)]
pub(crate) struct Addition {
    /// Whether the owner had no interval in the table.
    pub(crate) is_first: bool,
    /// Whether intervals that do not touch were merged.
    pub(crate) is_merged: bool,
    /// What the owner's intervals in the table take now, in units of lock memory.
    pub(crate) cost: usize,
    /// For [`TableRanges::undo_add`].
    pub(crate) change: Change,
}

/// What was taken out.
#[derive(Debug)]
pub(crate) struct Removal {
    /// Whether the owner has none left.
    pub(crate) is_done: bool,
    _intervals: Intervals,
    _tree: IntervalTree,
}

impl TableRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queued.is_empty() && self.waiting.is_empty()
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

    /// An owner other than `owner` that covers the key.
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

    /// Writers of other transactions that are queued on keys of `interval` which `owner` does not cover.
    pub(crate) fn queued_in(&self, owner: u32, interval: &Interval) -> impl Iterator<Item = &Queued> {
        let is_new = move |key: &[u8]| interval.contains(key) && !self.covers_key(owner, key);
        self.queued.iter().filter(move |writer| writer.owner != owner && is_new(&writer.key))
    }

    /// Adds keys to the intervals of `owner`, and merges these until there are at most `most`.
    pub(crate) fn add(&mut self, owner: u32, interval: Interval, most: usize) -> Addition {
        let found = self.find(owner);
        let at = found.unwrap_or_else(|at| {
            self.held.insert(at, (owner, Intervals::default()));
            at
        });
        let held = &mut self.held[at].1;
        let change = held.add(interval);
        update(&mut self.by_key, owner, &change);
        let is_merged = held.len() > most;
        if is_merged {
            update(&mut self.by_key, owner, &held.merge_down_to(most.min(MERGED)));
        }
        let cost = cost_of(held);
        debug_assert!(self.is_sound(), "an interval of owner {owner} was added: {self:?}");
        Addition { is_first: found.is_err(), is_merged, cost, change }
    }

    /// Undoes an addition to the intervals of `owner`, the newest one first, if they have not been merged since.
    /// Returns the cost of the remaining ones; `None` if none is left.
    pub(crate) fn undo_add(&mut self, owner: u32, change: Change) -> Option<usize> {
        let at = self.find(owner).expect("an undone addition was made");
        let held = &mut self.held[at].1;
        if held.undo_add(&change) {
            let Change { removed, added } = change;
            update(&mut self.by_key, owner, &Change { removed: added, added: removed });
        }
        let left = (!held.is_empty()).then(|| cost_of(held));
        if left.is_none() {
            self.held.remove(at);
        }
        debug_assert!(self.is_sound(), "an addition of owner {owner} was undone: {self:?}");
        left
    }

    /// Whether the owners are in order, and the tree has as many intervals as they.
    fn is_sound(&self) -> bool {
        let held: usize = self.held.iter().map(|(_, intervals)| intervals.len()).sum();
        self.held.is_sorted_by(|(a, _), (b, _)| a < b) && self.by_key.len() == held
    }

    /// Takes out some intervals of `owner`, which has some. What is dropped with the result is left for a caller
    /// without the latch.
    pub(crate) fn remove_some(&mut self, owner: u32) -> Removal {
        let at = self.find(owner).expect("intervals that go are held");
        if let [(_, held)] = &mut self.held[..] {
            // All there are.
            let removal =
                Removal { is_done: true, _intervals: std::mem::take(held), _tree: std::mem::take(&mut self.by_key) };
            self.held.clear();
            return removal;
        }
        let held = &mut self.held[at].1;
        let intervals = held.take_last(BATCH);
        intervals.iter().for_each(|interval| self.by_key.remove(owner, interval.low()));
        let is_done = held.is_empty();
        if is_done {
            self.held.remove(at);
        }
        debug_assert!(self.is_sound(), "intervals of owner {owner} were released: {self:?}");
        Removal { is_done, _intervals: intervals, _tree: IntervalTree::default() }
    }

    /// Queued writers that no other owner covers.
    pub(crate) fn uncovered(&self) -> Vec<u32> {
        let free = |writer: &&Queued| self.other_at(writer.owner, &writer.key).is_none();
        self.queued.iter().filter(free).map(|writer| writer.owner).collect()
    }
}

/// Brings a change of the intervals of `owner` into the tree.
fn update(tree: &mut IntervalTree, owner: u32, change: &Change) {
    // A scan mostly moves the end of an interval.
    if let ([old], [new]) = (&change.removed[..], &change.added[..])
        && old.low() == new.low()
    {
        tree.replace(owner, new);
        return;
    }
    change.removed.iter().for_each(|old| tree.remove(owner, old.low()));
    change.added.iter().for_each(|new| tree.insert(owner, new.clone()));
}

/// The memory of intervals, in units of [`UNIT_BYTES`].
fn cost_of(held: &Intervals) -> usize {
    (INTERVAL_BYTES * held.len() + held.bytes()).div_ceil(UNIT_BYTES)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
