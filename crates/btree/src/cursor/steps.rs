//! The number of entries that a step of a scan takes.
//!
//! A step costs as much as some rows. So the steps of a snapshot scan double. The first step takes as many entries as
//! the last scan of the cursor took rows, because scans of one session are often alike. A scan that locks what it reads
//! begins with one row, because a lock of a row that the caller does not take hinders others.

use crate::format::SLOT;
use foreshore_base::limits::PAGE_SIZE;

/// The least entries of the first step of a snapshot scan.
const LEAST: usize = 4;
/// The most entries of that step. More would cost a scan that ends soon more than they save another one.
const MOST: usize = 32;
/// Upper bound of the entries of a leaf.
const MAX: usize = PAGE_SIZE / SLOT;

/// The size of the next step.
#[derive(Debug, Default)]
pub(super) struct Steps {
    size: usize,
    /// Rows taken in this scan, except those at hand.
    taken: usize,
    /// Rows taken in the scan before.
    before: usize,
}

impl Steps {
    /// Begins a scan. `locks` says whether it locks what it reads.
    pub(super) fn begin(&mut self, locks: bool) {
        self.size = if locks { 1 } else { first(self.before) };
        self.taken = 0;
    }

    /// Ends a scan.
    pub(super) fn end(&mut self) {
        self.before = self.taken;
    }

    /// Returns the most entries of a leaf that the next step takes.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Doubles the next step.
    pub(super) fn grow(&mut self) {
        self.size = (2 * self.size).min(MAX);
    }

    /// Makes the next step take one row.
    pub(super) fn take_one(&mut self) {
        self.size = 1;
    }

    /// Notes that the caller has taken `rows`.
    pub(super) fn note_taken(&mut self, rows: usize) {
        self.taken += rows;
    }
}

/// Returns the entries of the first step, after a scan that took `before` rows.
fn first(before: usize) -> usize {
    before.clamp(LEAST, MOST)
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_as_long_as_the_last_scan_within_limits() {
        let table = [(0, LEAST), (1, LEAST), (LEAST, LEAST), (10, 10), (MOST, MOST), (MOST + 1, MOST), (1 << 20, MOST)];
        for (before, expected) in table {
            assert_eq!(first(before), expected, "after {before} rows");
        }
    }

    #[test]
    fn steps_double_up_to_a_whole_leaf_and_shrink_to_one() {
        let mut steps = Steps::default();
        steps.begin(false);
        steps.note_taken(10);
        steps.end();
        steps.begin(false);
        assert_eq!(steps.size(), 10);
        (0..20).for_each(|_| steps.grow());
        assert_eq!(steps.size(), MAX);
        steps.take_one();
        assert_eq!(steps.size(), 1);
        steps.end();
        steps.begin(false);
        assert_eq!(steps.size(), LEAST, "the scan before took nothing");
        steps.begin(true);
        assert_eq!(steps.size(), 1, "a scan that locks");
    }
}
