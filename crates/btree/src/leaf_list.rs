//! The leaves of a table by their fences, listed without the nodes above them.

use foreshore_base::{Lsn, PageId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A leaf that was found.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) leaf: PageId,
    pub(crate) lsn: Lsn,
    /// Its high fence; `None` at the right end.
    pub(crate) high: Option<Vec<u8>>,
}

/// Leaves by their low fences.
#[derive(Debug, Default)]
pub(crate) struct LeafList(BTreeMap<Vec<u8>, Listed>);

impl LeafList {
    /// Adds a leaf. Of two that begin alike, one was freed before the other began, and a later write of it was lost. So
    /// the one with the greater LSN stays.
    pub(crate) fn insert(&mut self, low: Vec<u8>, listed: Listed) {
        if self.0.get(&low).is_none_or(|other| other.lsn < listed.lsn) {
            self.0.insert(low, listed);
        }
    }

    /// Removes leaves that overlap: nothing tells which of them the tree has.
    pub(crate) fn remove_overlaps(&mut self) {
        let (mut overlapping, mut widest) = (Vec::new(), None::<(&Vec<u8>, &Option<Vec<u8>>)>);
        for (low, Listed { high, .. }) in &self.0 {
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
        overlapping.iter().for_each(|low| drop(self.0.remove(low)));
    }

    /// Returns the last leaf that begins at or before `key`.
    pub(crate) fn toward(&self, key: &[u8]) -> Option<PageId> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (low, listed) = self.0.range::<[u8], _>(up_to).next_back()?;
        assert!(**low <= *key, "a leaf begins at {low:?}, behind {key:?}");
        Some(listed.leaf)
    }

    /// Returns where the next leaf behind `key` begins.
    pub(crate) fn next_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        let (low, _) = self.0.range::<[u8], _>(behind).next()?;
        assert!(**low > *key, "a leaf behind {key:?} begins at {low:?}");
        Some(low.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(leaves: &[(&str, &str, u64)]) -> LeafList {
        let mut list = LeafList::default();
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
        assert_eq!(list.0.keys().collect::<Vec<_>>(), [b"k"]);
    }
}
