//! The entries of a leaf that a step of a scan has left to the next one.

use super::span::End;
use crate::access::ReadGuard;
use foreshore_buffer::{PagePosition, Pool};
use std::ops::Range;

/// Unread entries of a leaf. As long as the leaf has not changed, the next step continues with them, and needs neither
/// a descent nor a search.
#[derive(Debug)]
pub(super) struct LeftEntries {
    leaf: PagePosition,
    entries: Range<usize>,
    /// The end of the scan that they are at.
    end: End,
}

impl LeftEntries {
    /// Returns what a step leaves at one end of a scan that has read the entries `inside` out of `all` in a leaf.
    pub(super) fn of(leaf: PagePosition, all: &Range<usize>, inside: &Range<usize>, end: End) -> Self {
        let entries = match end {
            End::Front => inside.end..all.end,
            End::Back => all.start..inside.start,
        };
        assert!(!entries.is_empty() && entries.len() < all.len(), "a step leaves {entries:?} of {all:?}");
        Self { leaf, entries, end }
    }

    /// Returns the leaf and the entries for a step at one end of the scan, if they are there and the leaf has not
    /// changed.
    pub(super) fn enter<const ONCE: bool>(self, pool: &Pool, end: End) -> Option<(ReadGuard<'_, ONCE>, Range<usize>)> {
        if self.end != end {
            return None;
        }
        Some((ReadGuard::at(pool, self.leaf)?, self.entries))
    }
}
