//! The list of one table: intervals by owner, writers queued on keys, scans that wait for them. Its latch is that of
//! its shard (see [`crate::range`]).

use crate::hash::RowHash;
use crate::interval::{Interval, Intervals};

/// The intervals of one table and the waits for them.
#[derive(Debug, Default)]
pub(crate) struct TableRanges {
    pub(crate) held: Vec<(u32, Intervals)>,
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

impl TableRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queued.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn of(&self, owner: u32) -> Option<&Intervals> {
        self.held.iter().find(|&&(holder, _)| holder == owner).map(|(_, held)| held)
    }

    pub(crate) fn covers_key(&self, owner: u32, key: &[u8]) -> bool {
        self.of(owner).is_some_and(|held| held.contains(key))
    }

    /// Owners other than `owner` that cover the key.
    pub(crate) fn others_at(&self, owner: u32, key: &[u8]) -> impl Iterator<Item = u32> {
        let covering = self.held.iter().filter(move |(holder, held)| *holder != owner && held.contains(key));
        covering.map(|&(holder, _)| holder)
    }

    /// Writers of other transactions that are queued on keys of `interval` which `owner` does not cover.
    pub(crate) fn queued_in(&self, owner: u32, interval: &Interval) -> impl Iterator<Item = &Queued> {
        let is_new = move |key: &[u8]| interval.contains(key) && !self.covers_key(owner, key);
        self.queued.iter().filter(move |writer| writer.owner != owner && is_new(&writer.key))
    }

    /// Adds keys to the intervals of `owner`, and says whether these are its first.
    pub(crate) fn add(&mut self, owner: u32, interval: Interval) -> bool {
        let at = self.held.iter().position(|&(holder, _)| holder == owner);
        let is_first = at.is_none();
        let at = at.unwrap_or_else(|| {
            self.held.push((owner, Intervals::default()));
            self.held.len() - 1
        });
        self.held[at].1.add(interval);
        is_first
    }

    /// Puts other intervals in the place of those of `owner`. What goes are those that were there.
    pub(crate) fn replace(&mut self, owner: u32, by: Intervals) {
        let at = self.held.iter().position(|&(holder, _)| holder == owner);
        let at = at.expect("intervals that are replaced are held");
        if by.is_empty() {
            self.held.swap_remove(at);
        } else {
            self.held[at].1 = by;
        }
    }

    /// Queued writers that no other owner covers.
    pub(crate) fn uncovered(&self) -> Vec<u32> {
        let free = |writer: &&Queued| self.others_at(writer.owner, &writer.key).next().is_none();
        self.queued.iter().filter(free).map(|writer| writer.owner).collect()
    }
}
