//! The entries of a leaf that a step of a scan leaves to the next step.

use super::span::End;
use crate::access::ReadGuard;
use foreshore_buffer::{PagePosition, Pool};
use std::ops::Range;

/// Unread entries of a leaf. While the leaf is unchanged, the next step continues with them, without a descent or a
/// search.
#[derive(Debug)]
pub(super) struct LeftEntries {
    leaf: PagePosition,
    entries: Range<usize>,
    /// The end of the scan from which they are read.
    end: End,
}

impl LeftEntries {
    /// Returns the rest of the entries `all` of a leaf after a step from one end has read those `inside`.
    pub(super) fn of(leaf: PagePosition, all: &Range<usize>, inside: &Range<usize>, end: End) -> Self {
        let entries = match end {
            End::Front => inside.end..all.end,
            End::Back => all.start..inside.start,
        };
        assert!(!entries.is_empty() && entries.len() < all.len(), "a step leaves {entries:?} of {all:?}");
        Self { leaf, entries, end }
    }

    /// Returns the leaf and the entries for a step from the same end, if the leaf has not changed.
    pub(super) fn enter<const ONCE: bool>(self, pool: &Pool, end: End) -> Option<(ReadGuard<'_, ONCE>, Range<usize>)> {
        if self.end != end {
            return None;
        }
        Some((ReadGuard::at(pool, self.leaf)?, self.entries))
    }
}
