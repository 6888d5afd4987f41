//! The point locks of one owner, with their keys.
//!
//! A lock is found by the hash of its table and key. If two keys of one transaction have the same hash, only the first
//! is listed. Hashes have 64 bits and a new seed at each opening. So such a pair is as unlikely as damage that no
//! checksum detects.

use crate::hash::{RowHash, Spread};
use crate::interval::Interval;
use crate::lock_memory::UNIT_BYTES;
use crate::target::Target;
use foreshore_base::TableId;
use std::collections::HashSet;

/// A point lock.
#[derive(Clone, Copy, Debug)]
struct Point {
    row: RowHash,
    table: TableId,
    /// Position of its key in `keys` of the list.
    at: u32,
    len: u32,
}

/// Most locks that are searched one by one, without the set.
const FEW: usize = 32;

/// The point locks of an owner, with their keys.
#[derive(Debug, Default)]
pub(crate) struct PointList {
    list: Vec<Point>,
    keys: Vec<u8>,
    /// The rows of all locks. It is filled only when there are more than [`FEW`].
    rows: HashSet<RowHash, Spread>,
}

impl PointList {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn has(&self, row: RowHash) -> bool {
        match self.rows.is_empty() {
            true => self.list.iter().any(|point| point.row == row),
            false => self.rows.contains(&row),
        }
    }

    /// Returns the tables and keys of all locks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        self.list.iter().map(|point| (point.table, self.key(point)))
    }

    fn key(&self, point: &Point) -> &[u8] {
        &self.keys[point.at as usize..][..point.len as usize]
    }

    /// Adds a lock, and returns the memory that it takes.
    pub(crate) fn push(&mut self, row: RowHash, target: Target<'_>) -> usize {
        let position = |len: usize| u32::try_from(len).expect("lock memory of an owner is far smaller than 4 GiB");
        debug_assert!(!self.has(row), "a row of {:?} is listed twice", target.table);
        let (at, len) = (position(self.keys.len()), position(target.key.len()));
        self.keys.extend_from_slice(target.key);
        self.list.push(Point { row, table: target.table, at, len });
        if !self.rows.is_empty() {
            self.rows.insert(row);
        } else if self.list.len() > FEW {
            self.rows.extend(self.list.iter().map(|point| point.row));
        }
        cost(target.key.len())
    }

    /// Removes a lock, and returns the memory that it took; `None` if it has been merged.
    pub(crate) fn remove(&mut self, row: RowHash) -> Option<usize> {
        let at = self.list.iter().rposition(|point| point.row == row)?;
        let point = self.list.swap_remove(at);
        self.rows.remove(&row);
        let (rows, list) = (self.rows.len(), self.list.len());
        assert!(rows == 0 || rows == list, "a set of {rows} rows beside a list of {list} point locks");
        // The lock added last is usually released first.
        if (point.at + point.len) as usize == self.keys.len() {
            self.keys.truncate(point.at as usize);
        }
        Some(cost(point.len as usize))
    }

    /// Removes the locks of a table, and returns their rows, the memory that they took, and the interval from the
    /// first to the last.
    pub(crate) fn take_table(&mut self, table: TableId) -> Option<(Vec<RowHash>, usize, Interval)> {
        let mine = || self.iter().filter(|&(of, _)| of == table).map(|(_, key)| key);
        let mut hull = Interval::of_key(mine().min()?);
        hull.widen_to(Interval::of_key(mine().max()?));
        let taken = mine().map(|key| cost(key.len())).sum();
        let mut rest = Self::default();
        let mut rows = Vec::new();
        for point in &self.list {
            if point.table == table {
                rows.push(point.row);
            } else {
                rest.push(point.row, Target::row(point.table, self.key(point)));
            }
        }
        *self = rest;
        Some((rows, taken, hull))
    }

    /// Removes all locks and returns their rows.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = RowHash> {
        self.keys.clear();
        self.rows = HashSet::default();
        self.list.drain(..).map(|point| point.row)
    }
}

/// Returns the memory of a lock of a key of that length, in units of [`UNIT_BYTES`]. The key is counted twice, because
/// its vector may be half empty.
pub(crate) const fn cost(key: usize) -> usize {
    (UNIT_BYTES - 64 + 2 * key).div_ceil(UNIT_BYTES)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;
    use crate::hash::RowHasher;

    /// Tests few locks and many. Some of them are released and some are merged.
    #[test]
    fn a_lock_is_found_among_few_and_many() {
        let (hasher, mut points, tables) = (RowHasher::new(), PointList::default(), [TableId(1), TableId(2)]);
        let target = |n: u64| (tables[n as usize % 2], n.to_be_bytes());
        let row = |n: u64| hasher.hash(target(n).0, &target(n).1);
        let mut held = Vec::new();
        for n in 0..4 * FEW as u64 {
            let (table, key) = target(n);
            points.push(row(n), Target::row(table, &key));
            held.push(n);
            if n % 3 == 0 {
                let gone = held.swap_remove(held.len() / 2);
                assert!(points.remove(row(gone)).is_some() && points.remove(row(gone)).is_none());
            }
            (0..4 * FEW as u64).for_each(|m| assert_eq!(points.has(row(m)), held.contains(&m), "{m} of {held:?}"));
        }
        let (rows, _, hull) = points.take_table(tables[0]).expect("it has some");
        assert!(held.iter().all(|&n| rows.contains(&row(n)) == (n % 2 == 0) && points.has(row(n)) == (n % 2 == 1)));
        assert!(held.iter().filter(|&n| n % 2 == 0).all(|n| hull.contains(&n.to_be_bytes())));
        assert_eq!(points.drain().count(), held.iter().filter(|&n| n % 2 == 1).count());
        assert!((0..4 * FEW as u64).all(|n| !points.has(row(n))) && points.is_empty());
    }
}
