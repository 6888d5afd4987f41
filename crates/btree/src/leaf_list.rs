//! The leaves of a table by their low fences, listed without the nodes above them.

use foreshore_base::PageId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Leaves by their low fences.
#[derive(Debug, Default)]
pub(crate) struct LeafList(BTreeMap<Vec<u8>, PageId>);

impl LeafList {
    pub(crate) fn insert(&mut self, low: Vec<u8>, leaf: PageId) {
        self.0.insert(low, leaf);
    }

    /// Returns the last leaf that begins at or before `key`.
    pub(crate) fn toward(&self, key: &[u8]) -> Option<PageId> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (low, leaf) = self.0.range::<[u8], _>(up_to).next_back()?;
        assert!(**low <= *key, "a leaf begins at {low:?}, behind {key:?}");
        Some(*leaf)
    }

    /// Returns where the next leaf behind `key` begins.
    pub(crate) fn next_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        self.0.range::<[u8], _>(behind).next().map(|(low, _)| low.clone())
    }
}
