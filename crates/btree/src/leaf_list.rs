//! The leaves of a table by their fences, listed without the nodes above them.
//!
//! A list takes a limited number of bytes. If the leaves are more, it is a *window* of them, and the next window begins
//! where it ends. A leaf that ends behind its window overlaps the first leaf of the next one, and is passed on to it.

use foreshore_base::{Lsn, PageId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A leaf that was found.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) leaf: PageId,
    pub(crate) lsn: Lsn,
    /// Its high fence; `None` at the right end.
    pub(crate) high: Option<Vec<u8>>,
}

/// Bytes of an entry beside its keys.
const ENTRY_BYTES: usize = 150;

/// Leaves by their low fences.
#[derive(Debug)]
pub(crate) struct LeafList {
    leaves: BTreeMap<Vec<u8>, Listed>,
    /// Where the window begins.
    from: Vec<u8>,
    /// Where the first leaf begins that is not listed for lack of space.
    until: Option<Vec<u8>>,
    /// Leaves that end behind the window.
    spanning: Vec<(Vec<u8>, Listed)>,
    /// Bytes of the entries, and their limit.
    bytes: usize,
    max_bytes: usize,
}

impl LeafList {
    /// Makes an empty list that begins at the smallest key, and takes at most `max_bytes` bytes or one leaf.
    pub(crate) const fn new(max_bytes: usize) -> Self {
        Self { leaves: BTreeMap::new(), from: Vec::new(), until: None, spanning: Vec::new(), bytes: 0, max_bytes }
    }

    /// Makes the list of the next window, without its leaves, if `key` is not in this window but behind it.
    pub(crate) fn next_window(&self, key: &[u8]) -> Option<Self> {
        let from = self.until.clone().filter(|until| **until <= *key)?;
        let leaves = self.spanning.iter().cloned().collect();
        Some(Self { leaves, from, ..Self::new(self.max_bytes) })
    }

    /// Adds a leaf, if it begins in the window. Of two that begin alike, one was freed before the other began, and a
    /// later write of it was lost. So the one with the greater LSN stays.
    pub(crate) fn insert(&mut self, low: Vec<u8>, listed: Listed) {
        let is_behind = self.until.as_ref().is_some_and(|until| low >= *until);
        if low < self.from || is_behind || self.leaves.get(&low).is_some_and(|other| other.lsn >= listed.lsn) {
            return;
        }
        self.bytes += cost(&low, &listed);
        if let Some((low, other)) = self.leaves.get_key_value(&low) {
            self.bytes -= cost(low, other);
        }
        self.leaves.insert(low, listed);
        while self.bytes > self.max_bytes {
            let Some(last) = self.leaves.last_entry().filter(|last| *last.key() > self.from) else { break };
            self.bytes -= cost(last.key(), last.get());
            self.until = Some(last.remove_entry().0);
        }
        let is_window = self.until.as_ref().is_none_or(|until| *until > self.from);
        assert!(is_window, "a window from {:?} ends at {:?}", self.from, self.until);
    }

    /// Removes leaves that overlap: nothing tells which of them the tree has.
    pub(crate) fn remove_overlaps(&mut self) {
        let (mut overlapping, mut widest) = (Vec::new(), None::<(&Vec<u8>, &Option<Vec<u8>>)>);
        for (low, listed @ Listed { high, .. }) in &self.leaves {
            if self.until.as_ref().is_some_and(|until| high.as_ref().is_none_or(|high| high > until)) {
                overlapping.push(low.clone());
                self.spanning.push((low.clone(), listed.clone()));
            }
            let ends_behind = |other: &Vec<u8>| high.as_ref().is_none_or(|high| high > other);
            if let Some((other, other_high)) = widest {
                if other_high.as_ref().is_none_or(|other_high| other_high > low) {
                    overlapping.extend([other.clone(), low.clone()]);
                }
                if other_high.as_ref().is_none_or(|other_high| !ends_behind(other_high)) {
                    continue;
                }
            }
            widest = Some((low, high));
        }
        overlapping.iter().for_each(|low| drop(self.leaves.remove(low)));
    }

    /// Returns the last leaf that begins at or before `key`.
    pub(crate) fn toward(&self, key: &[u8]) -> Option<PageId> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (low, listed) = self.leaves.range::<[u8], _>(up_to).next_back()?;
        assert!(**low <= *key, "a leaf begins at {low:?}, behind {key:?}");
        Some(listed.leaf)
    }

    /// Returns where the next leaf behind `key` begins, maybe in the next window.
    pub(crate) fn next_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        let listed = self.leaves.range::<[u8], _>(behind).next().map(|(low, _)| low);
        let low = listed.or(self.until.as_ref().filter(|until| ***until > *key))?;
        assert!(**low > *key, "a leaf behind {key:?} begins at {low:?}");
        Some(low.clone())
    }
}

const fn cost(low: &[u8], Listed { high, .. }: &Listed) -> usize {
    let high = if let Some(high) = high { high.len() } else { 0 };
    ENTRY_BYTES + low.len() + high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(leaves: &[(&str, &str, u64)]) -> LeafList {
        let mut list = LeafList::new(usize::MAX);
        for (leaf, &(low, high, lsn)) in (1..).zip(leaves) {
            let high = (!high.is_empty()).then(|| high.into());
            list.insert(low.into(), Listed { leaf: PageId(leaf), lsn: Lsn(lsn), high });
        }
        list.remove_overlaps();
        list
    }

    #[test]
    fn of_two_leaves_that_begin_alike_the_later_one_stays() {
        for leaves in [[("", "m", 9), ("", "m", 4)], [("", "m", 4), ("", "m", 9)]] {
            let later = if leaves[0].2 == 9 { 1 } else { 2 };
            assert_eq!(list(&leaves).toward(b"a"), Some(PageId(later)));
        }
    }

    #[test]
    fn leaves_that_overlap_are_not_listed() {
        // The first one overlaps the two behind it, and the last two overlap.
        let list = list(&[("a", "k", 1), ("c", "d", 2), ("e", "f", 3), ("k", "m", 4), ("m", "", 5), ("q", "r", 6)]);
        assert_eq!(list.leaves.keys().collect::<Vec<_>>(), [b"k"]);
    }

    /// Leaves side by side, some of them gone, and some of an earlier tree between them.
    fn drawn(seed: u64) -> Vec<(Vec<u8>, Listed)> {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut leaves = Vec::new();
        for leaf in 0..40_u8 {
            let older = below(8) == 0;
            let (low, high) = if older { (leaf, leaf + 1 + below(9) as u8) } else { (leaf, leaf + 1) };
            let high = (high < 40).then(|| vec![high]);
            let low = if low == 0 { Vec::new() } else { vec![low] };
            if below(6) > 0 {
                if below(10) == 0 {
                    let high = Some(vec![leaf + 1 + below(20) as u8]);
                    leaves.push((low.clone(), Listed { leaf: PageId(99), lsn: Lsn(below(100)), high }));
                }
                leaves.push((low, Listed { leaf: PageId(leaf.into()), lsn: Lsn(below(100)), high }));
            }
        }
        leaves.sort_by_key(|(_, listed)| listed.lsn.0 % 10);
        leaves
    }

    #[test]
    fn windows_have_the_leaves_of_one_list() {
        let keys = |list: &LeafList| list.leaves.keys().cloned().collect::<Vec<_>>();
        let fill = |seed, mut list: LeafList| {
            drawn(seed).into_iter().for_each(|(low, listed)| list.insert(low, listed));
            list.remove_overlaps();
            list
        };
        let mut windows = 0;
        for seed in 0..200 {
            let whole = fill(seed, LeafList::new(usize::MAX));
            assert!(whole.next_window(&[255]).is_none());
            for max_bytes in [0, 2 * ENTRY_BYTES, 5 * ENTRY_BYTES + 10] {
                let (mut found, mut next) = (Vec::new(), Some(LeafList::new(max_bytes)));
                while let Some(window) = next.map(|next| fill(seed, next)) {
                    found.extend(keys(&window));
                    windows += 1;
                    next = window.next_window(&[255]);
                    assert!(next.as_ref().is_none_or(|next| next.from > window.from), "seed {seed}: no progress");
                }
                assert_eq!(found, keys(&whole), "seed {seed}, {max_bytes} bytes");
            }
        }
        assert!(windows > 5000, "{windows}");
    }
}
