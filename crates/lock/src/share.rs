//! The point locks of one owner, and what becomes of its locks when its share of memory is spent.
//!
//! A transaction has a share of the memory for point locks and intervals: its own part, and up to a quarter of what all
//! have in common, as far as others have left it ([`crate::room`]). When that is spent, its point locks and intervals
//! of the table that takes most of it become one interval, from the lowest of their keys to the highest. So lock memory
//! ends no transaction: locks only get coarser, in the end one interval a table.
//!
//! **Widening never waits.** The transaction has read nothing in the new part of the interval. A writer that was there
//! before is met by the header that it left, if the transaction comes to that row; a later writer meets the interval.
//!
//! Locks are found by the hash of table and key. A second key of the same transaction with the hash of the first is not
//! listed; of 64 bits, seeded anew at each opening, that is as likely as damage that no checksum sees.
//!
//! **Order:** first the interval, counted and fenced, then the point locks go (see [`crate::range`]).

use crate::hash::{RowHash, Spread};
use crate::interval::Interval;
use crate::manager::{LockManager, SHARE_BYTES};
use crate::owner::Owner;
use crate::target::Target;
use foreshore_base::TableId;
use foreshore_sync::model::mutant;
use std::collections::HashSet;

/// A point lock.
#[derive(Clone, Copy, Debug)]
struct Share {
    row: RowHash,
    table: TableId,
    /// Where its key lies.
    at: u32,
    len: u32,
}

/// Most locks that are looked through one by one.
const FEW: usize = 32;

/// The point locks of an owner, with their keys.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    list: Vec<Share>,
    keys: Vec<u8>,
    /// The rows of all of them, where there were more than a few.
    rows: HashSet<RowHash, Spread>,
}

impl Shares {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[cfg(all(test, not(foreshore_loom)))]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn has(&self, row: RowHash) -> bool {
        match self.rows.is_empty() {
            true => self.list.iter().any(|share| share.row == row),
            false => self.rows.contains(&row),
        }
    }

    /// Tables and keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        self.list.iter().map(|share| (share.table, self.key(share)))
    }

    fn key(&self, share: &Share) -> &[u8] {
        &self.keys[share.at as usize..][..share.len as usize]
    }

    /// Adds a lock, and returns what it takes of the share.
    pub(crate) fn push(&mut self, row: RowHash, target: Target<'_>) -> usize {
        let position = |len: usize| u32::try_from(len).expect("a share is far smaller than 4 GiB");
        debug_assert!(!self.has(row), "a row of {:?} is listed twice", target.table);
        let (at, len) = (position(self.keys.len()), position(target.key.len()));
        self.keys.extend_from_slice(target.key);
        self.list.push(Share { row, table: target.table, at, len });
        if !self.rows.is_empty() {
            self.rows.insert(row);
        } else if self.list.len() > FEW {
            self.rows.extend(self.list.iter().map(|share| share.row));
        }
        cost(target.key.len())
    }

    /// Takes a lock out, and returns what it took of the share; `None` if it has been merged.
    pub(crate) fn remove(&mut self, row: RowHash) -> Option<usize> {
        let at = self.list.iter().rposition(|share| share.row == row)?;
        let share = self.list.swap_remove(at);
        self.rows.remove(&row);
        let (rows, list) = (self.rows.len(), self.list.len());
        assert!(rows == 0 || rows == list, "a set of {rows} rows beside a list of {list} point locks");
        // What is given up is mostly what was added last.
        if (share.at + share.len) as usize == self.keys.len() {
            self.keys.truncate(share.at as usize);
        }
        Some(cost(share.len as usize))
    }

    /// Takes the locks of a table out, and returns their rows, what they took, and the interval from the first to the
    /// last.
    fn take_table(&mut self, table: TableId) -> Option<(Vec<RowHash>, usize, Interval)> {
        let mine = || self.iter().filter(|&(of, _)| of == table).map(|(_, key)| key);
        let mut hull = Interval::of_key(mine().min()?);
        hull.widen_to(Interval::of_key(mine().max()?));
        let taken = mine().map(|key| cost(key.len())).sum();
        let mut rest = Self::default();
        let mut rows = Vec::new();
        for share in &self.list {
            if share.table == table {
                rows.push(share.row);
            } else {
                rest.push(share.row, Target::row(share.table, self.key(share)));
            }
        }
        *self = rest;
        Some((rows, taken, hull))
    }

    /// Takes all out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = RowHash> {
        self.keys.clear();
        self.rows = HashSet::default();
        self.list.drain(..).map(|share| share.row)
    }

    /// What all of them take of the share.
    pub(crate) fn cost(&self) -> usize {
        self.iter().map(|(_, key)| cost(key.len())).sum()
    }

    /// What those of a table take of the share.
    fn cost_in(&self, table: TableId) -> usize {
        self.iter().filter(|&(of, _)| of == table).map(|(_, key)| cost(key.len())).sum()
    }
}

/// What a lock of a key of that length takes of a share, in units of [`SHARE_BYTES`]. The key lies in a vector that may
/// be half empty.
const fn cost(key: usize) -> usize {
    (SHARE_BYTES - 64 + 2 * key).div_ceil(SHARE_BYTES)
}

impl LockManager {
    /// Merges locks of `owner` until they take no more than its share. The latest lock may exceed it for a moment.
    pub(crate) fn keep_share(&self, owner: &mut Owner) {
        while owner.charged > owner.room {
            if let Some(room) = self.room.more(owner.room) {
                owner.room = room;
            } else if !self.widen(owner) {
                return;
            }
        }
    }

    /// Makes one interval of the locks of the table that takes most; false if each table has only one.
    fn widen(&self, owner: &mut Owner) -> bool {
        let mut tables: Vec<TableId> = owner.shares.iter().map(|(table, _)| table).collect();
        tables.extend(owner.ranges.iter().map(|&(table, _)| table));
        tables.sort_unstable();
        tables.dedup();
        let takes = |&table: &TableId| owner.shares.cost_in(table) + owner.ranges_cost(table);
        let can_shrink =
            |&table: &TableId| owner.shares.cost_in(table) > 0 || self.ranges_of(owner.index, table).len() > 1;
        let Some(table) = tables.into_iter().filter(can_shrink).max_by_key(takes) else { return false };
        let before = owner.charged;
        self.widen_table(owner, table);
        owner.charged < before
    }

    /// Makes one interval of all locks of `owner` in a table.
    fn widen_table(&self, owner: &mut Owner, table: TableId) {
        let ranges = self.ranges_of(owner.index, table);
        let taken = owner.shares.take_table(table);
        let mut hull = taken.as_ref().map(|(_, _, hull)| hull.clone());
        for interval in ranges.iter() {
            hull.get_or_insert_with(|| interval.clone()).widen_to(interval.clone());
        }
        let Some(hull) = hull else { return };
        owner.widened += 1;
        let (rows, cost) = taken.map_or_else(Default::default, |(rows, cost, _)| (rows, cost));
        assert!(cost <= owner.charged, "locks of {cost} units are merged, {} are charged", owner.charged);
        owner.charged -= cost;
        let too_early = mutant("range: point locks go before they are merged");
        if too_early {
            rows.iter().for_each(|&row| self.release_share(owner.index, row));
        }
        if !mutant("sabotage: locks that are merged into an interval are lost") {
            self.widen_ranges(owner, table, hull);
        }
        if !too_early {
            rows.iter().for_each(|&row| self.release_share(owner.index, row));
        }
        owner.room = self.room.settle(owner.room);
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;
    use crate::hash::RowHasher;

    /// Few locks, and many, of which some are given up and some are merged.
    #[test]
    fn a_lock_is_found_among_few_and_many() {
        let (hasher, mut shares, tables) = (RowHasher::new(), Shares::default(), [TableId(1), TableId(2)]);
        let target = |n: u64| (tables[n as usize % 2], n.to_be_bytes());
        let row = |n: u64| hasher.hash(target(n).0, &target(n).1);
        let mut held = Vec::new();
        for n in 0..4 * FEW as u64 {
            let (table, key) = target(n);
            shares.push(row(n), Target::row(table, &key));
            held.push(n);
            if n % 3 == 0 {
                let gone = held.swap_remove(held.len() / 2);
                assert!(shares.remove(row(gone)).is_some() && shares.remove(row(gone)).is_none());
            }
            (0..4 * FEW as u64).for_each(|m| assert_eq!(shares.has(row(m)), held.contains(&m), "{m} of {held:?}"));
        }
        let (rows, _, hull) = shares.take_table(tables[0]).expect("it has some");
        assert!(held.iter().all(|&n| rows.contains(&row(n)) == (n % 2 == 0) && shares.has(row(n)) == (n % 2 == 1)));
        assert!(held.iter().filter(|&n| n % 2 == 0).all(|n| hull.contains(&n.to_be_bytes())));
        assert_eq!(shares.drain().count(), held.iter().filter(|&n| n % 2 == 1).count());
        assert!((0..4 * FEW as u64).all(|n| !shares.has(row(n))) && shares.is_empty());
    }
}
