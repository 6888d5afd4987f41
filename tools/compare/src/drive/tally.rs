//! What the workers of a row counted.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Longest latency that is told apart, in nanoseconds: 100 s.
const LONGEST_NS: u64 = 100_000_000_000;
/// Significant digits of latencies.
const DIGITS: u8 = 2;

/// What workers counted.
pub(crate) struct Tally {
    /// Transactions acknowledged while measuring.
    pub(crate) measured: u64,
    /// Transactions acknowledged at any time.
    pub(crate) commits: u64,
    /// Latency of the timed transactions, in nanoseconds.
    pub(crate) latency: Histogram<u32>,
    /// Reads that returned other rows than were loaded.
    pub(crate) wrong_reads: u64,
    /// The word of each value of `values` that was replaced.
    pub(crate) words: BTreeMap<u64, u64>,
    /// Exclusive or of the keys that `churn` has deleted and inserted.
    pub(crate) churned_sum: u64,
    /// Rows that `delete-range` has deleted, and the exclusive or of their keys.
    pub(crate) deleted: u64,
    pub(crate) deleted_sum: u64,
    /// Rows of each table of `insert` and `bulk`.
    pub(crate) inserted: BTreeMap<u16, u64>,
    pub(crate) queued: Queued,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds and digits are in range");
        Self {
            measured: 0,
            commits: 0,
            latency,
            wrong_reads: 0,
            words: BTreeMap::new(),
            churned_sum: 0,
            deleted: 0,
            deleted_sum: 0,
            inserted: BTreeMap::new(),
            queued: Queued::default(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.measured += other.measured;
        self.commits += other.commits;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.wrong_reads += other.wrong_reads;
        self.words.extend(&other.words);
        self.churned_sum ^= other.churned_sum;
        self.deleted += other.deleted;
        self.deleted_sum ^= other.deleted_sum;
        self.inserted.extend(&other.inserted);
        self.queued.add(&other.queued);
    }
}

/// Rows that went through `queue`, and the exclusive or of their keys.
#[derive(Default)]
pub(crate) struct Queued {
    pub(crate) pushed: u64,
    pub(crate) pushed_sum: u64,
    pub(crate) popped: u64,
    pub(crate) popped_sum: u64,
    /// Keys that a consumer claimed after a larger one.
    pub(crate) out_of_order: u64,
}

impl Queued {
    fn add(&mut self, other: &Self) {
        self.pushed += other.pushed;
        self.pushed_sum ^= other.pushed_sum;
        self.popped += other.popped;
        self.popped_sum ^= other.popped_sum;
        self.out_of_order += other.out_of_order;
    }
}
