//! The operations, drawn as the core workloads of YCSB say.

use super::record::{FIELDS, spread};
use crate::config::Distribution;
use crate::random::{Random, Zipf};

/// The kinds of operations.
pub(super) const KINDS: [&str; 5] = ["READ", "UPDATE", "SCAN", "INSERT", "READ_MODIFY_WRITE"];

/// Percentages of the kinds, in the order of [`KINDS`], and which records they are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) percent: [u64; KINDS.len()],
    pub(super) distribution: Distribution,
}

pub(super) const A: Mix = Mix { percent: [50, 50, 0, 0, 0], distribution: Distribution::Zipf };
pub(super) const B: Mix = Mix { percent: [95, 5, 0, 0, 0], distribution: Distribution::Zipf };
pub(super) const C: Mix = Mix { percent: [100, 0, 0, 0, 0], distribution: Distribution::Zipf };
pub(super) const D: Mix = Mix { percent: [95, 0, 0, 5, 0], distribution: Distribution::Latest };
pub(super) const E: Mix = Mix { percent: [0, 0, 95, 5, 0], distribution: Distribution::Zipf };
pub(super) const F: Mix = Mix { percent: [50, 0, 0, 0, 50], distribution: Distribution::Zipf };

/// Zipf's exponent if none is asked for.
const EXPONENT: f64 = 0.99;
/// Ranks of the scrambled distribution. YCSB has as many whatever the number of records, so that the hottest one has
/// the same share of the operations.
const RANKS: u64 = 10_000_000_000;
/// Most records of a scan.
const LONGEST_SCAN: u64 = 100;

/// An operation on the record with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read {
        number: u64,
    },
    Update {
        number: u64,
        field: u64,
        to: [u8; 8],
    },
    /// From the key of the record on, in the order of the keys.
    Scan {
        number: u64,
        records: u64,
    },
    /// The number is the next that is free.
    Insert,
    ReadModifyWrite {
        number: u64,
        field: u64,
        to: [u8; 8],
    },
}

/// Draws operations for one thread.
pub(super) struct Draw {
    random: Random,
    mix: Mix,
    zipf: Zipf,
    /// Records when the row began.
    begun: u64,
}

impl Draw {
    /// Operations for `stream` of a run with `seed`, on `begun` records at first. With `skew` zero hot records are as
    /// hot as YCSB has them.
    pub(super) fn new(seed: u64, stream: u64, mix: Mix, begun: u64, skew: f64) -> Self {
        let exponent = if skew > 0.0 { skew } else { EXPONENT };
        let ranks = if mix.distribution == Distribution::Latest { begun } else { RANKS };
        Self { random: Random::new(seed, stream), mix, zipf: Zipf::new(ranks, exponent), begun }
    }

    /// Draws an operation, and its place in [`KINDS`]. All records below `limit` are inserted.
    pub(super) fn operation(&mut self, limit: u64) -> (usize, Operation) {
        let mut percent = self.random.below(100);
        let mut kind = 0;
        while percent >= self.mix.percent[kind] {
            percent -= self.mix.percent[kind];
            kind += 1;
        }
        if kind == 3 {
            return (kind, Operation::Insert);
        }
        let number = self.number(limit);
        let (field, to) = (self.random.below(FIELDS), self.random.bits().to_le_bytes());
        let operation = match kind {
            0 => Operation::Read { number },
            1 => Operation::Update { number, field, to },
            2 => Operation::Scan { number, records: 1 + self.random.below(LONGEST_SCAN) },
            _ => Operation::ReadModifyWrite { number, field, to },
        };
        (kind, operation)
    }

    fn number(&mut self, limit: u64) -> u64 {
        match self.mix.distribution {
            Distribution::Uniform => self.random.below(limit),
            // Hot records stay hot while others are inserted, so these take no part.
            Distribution::Zipf => spread(self.zipf.draw(&mut self.random)) % self.begun,
            Distribution::Latest => limit - 1 - self.zipf.draw(&mut self.random),
        }
    }
}
