//! Leaves that several threads change at once.
//!
//! A write holds the latch of its leaf for about a microsecond. Threads that update different rows of one leaf wait for
//! each other, although their transactions have no conflict: with sixteen threads, most of the time. So a leaf is split
//! between rows whose writers wait often. Waits of writers of one row lead to no split, because it would not help. Nor
//! do waits of inserts and deletes: a queue or a log has its busy rows elsewhere a moment later.
//!
//! The leaf stays split until it has few rows left and is merged, as any other.
//!
//! Source: Contention Split (Alhomssi and Leis, "Contention and Space Management in B-Trees", CIDR 2021). It counts
//! contended writes and all writes a page; here waits are counted by the millisecond, in a word for many pages.

use foreshore_base::PageId;
use foreshore_sync::primitive::REPLAYS;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{Clock, SystemClock};

/// Words for pages. Two contended leaves that share one reset each other's count.
const WORDS: usize = 64;

/// Waits for one leaf in one millisecond that lead to a split. They take about 3 % of a thread's time.
const WAITS: u64 = if REPLAYS { 1 } else { 32 };

// A word:
//
//   63         40  39           24  23      12  11       0
//  +-------------+----------------+-----------+-----------+
//  |     page    |  milliseconds  |   entry   |   waits   |
//  +-------------+----------------+-----------+-----------+
//
// page, milliseconds: their low bits.
// entry: of the row whose writer waited first in that millisecond.
// waits: by writers of other rows since then.
const PAGE: u32 = 40;
const TIME: u32 = 24;
const ENTRY: u32 = 12;
const LOW: u64 = (1 << ENTRY) - 1;

/// Counts of recent waits for leaves.
#[derive(Debug)]
pub(crate) struct Contention {
    clock: SystemClock,
    words: [AtomicU64; WORDS],
}

impl Contention {
    pub(crate) fn new() -> Self {
        Self { clock: SystemClock::new(), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Notes that the writer of entry `at` has waited for the latch of leaf `pid`. If the leaf is contended, returns
    /// the entry before which it should be split.
    pub(crate) fn note(&self, pid: PageId, at: usize) -> Option<usize> {
        self.note_at(pid, at, self.clock.now().0 / 1_000_000)
    }

    fn note_at(&self, pid: PageId, at: usize, millis: u64) -> Option<usize> {
        let at = at as u64 & LOW;
        let counted = pid.0 << PAGE | (millis & 0xFFFF) << TIME;
        let word = &self.words[pid.0 as usize % WORDS];
        // ORDERING: hint, waits that overwrite each other's count delay a split.
        let before = word.load(Ordering::Relaxed);
        let (first, waits) = (before >> ENTRY & LOW, before & LOW);
        let (now, split) = match before >> TIME == counted >> TIME {
            false => (counted | at << ENTRY, None),
            true if first == at => return None,
            true if waits + 1 < WAITS => (before + 1, None),
            true => (0, Some(first.max(at) as usize)),
        };
        // ORDERING: hint, as above.
        word.store(now, Ordering::Relaxed);
        debug_assert!(split.is_none_or(|split| split > 0), "two entries are split before the second");
        split
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    const LEAF: PageId = PageId(77);

    /// The answers to waits for one leaf, as pairs of an entry and a time in milliseconds.
    fn splits(waits: impl IntoIterator<Item = (usize, u64)>) -> Vec<usize> {
        let contention = Contention::new();
        waits.into_iter().filter_map(|(at, millis)| contention.note_at(LEAF, at, millis)).collect()
    }

    #[test]
    fn waits_for_two_rows_of_a_leaf_split_it_between_them() {
        assert_eq!(splits((0..64).map(|wait| (if wait % 2 == 0 { 3 } else { 9 }, 7))), [9]);
        assert_eq!(splits((0..64).map(|wait| (if wait % 2 == 0 { 9 } else { 3 }, 7))), [9]);
    }

    #[test]
    fn waits_for_one_row_do_not_split_its_leaf() {
        assert_eq!(splits((0..10_000).map(|_| (5, 7))), []);
    }

    #[test]
    fn rare_waits_do_not_split_a_leaf() {
        assert_eq!(splits((0..10_000).map(|wait| (wait as usize % 16, wait / 16))), []);
    }

    #[test]
    fn a_count_begins_anew_in_each_millisecond_and_for_each_page() {
        let contention = Contention::new();
        for wait in 0..10_000 {
            let pid = PageId(77 + WORDS as u64 * (wait as u64 / 16 % 2));
            assert_eq!(contention.note_at(pid, wait % 16, 7), None);
        }
        assert_eq!(splits((0..31).map(|wait| (wait, 0xFFFF)).chain((0..31).map(|wait| (wait, 0x1_0000)))), []);
    }
}
