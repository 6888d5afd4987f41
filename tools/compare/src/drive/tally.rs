//! What the workers of a row counted.

use crate::tatp;
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
    /// Transactions of each kind of `tatp` and `ycsb-a` to `ycsb-f`, and those that succeeded.
    pub(crate) kinds: [(u64, u64); tatp::KINDS],
    /// What the transactions of `tatp` have added to the sum of what they change, modulo 2^64.
    pub(crate) change: u64,
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
            kinds: [(0, 0); tatp::KINDS],
            change: 0,
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
        for (kind, other) in self.kinds.iter_mut().zip(other.kinds) {
            *kind = (kind.0 + other.0, kind.1 + other.1);
        }
        self.change = self.change.wrapping_add(other.change);
    }

    /// Counts a transaction of a kind.
    pub(super) const fn count(&mut self, kind: usize, has_succeeded: bool) {
        self.kinds[kind].0 += 1;
        self.kinds[kind].1 += has_succeeded as u64;
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
