//! The operations, drawn as the core workloads of YCSB say.

use super::{
    numbers::Numbers,
    record::{FIELD_BYTES, FIELDS},
    zipf::Zipf,
};
use crate::{
    random::{Random, mix},
    workload::Workload,
};

/// Kinds of operations.
pub(crate) const KINDS: usize = 5;
/// Places of the kinds that write.
pub(super) const UPDATE: usize = 1;
pub(super) const INSERT: usize = 3;
pub(super) const READ_MODIFY_WRITE: usize = 4;

/// Which records the operations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    /// Hot records are anywhere.
    Zipf,
    /// The records that were inserted last are the hottest.
    Latest,
}

/// Percentages of reads, updates, scans, inserts, and reads with updates, and which records they are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(super) percent: [u64; KINDS],
    pub(super) distribution: Distribution,
}

impl Mix {
    /// Returns the mix of a workload, if it is one of YCSB.
    pub(crate) const fn of(workload: Workload) -> Option<Self> {
        let (percent, distribution) = match workload {
            Workload::YcsbA => ([50, 50, 0, 0, 0], Distribution::Zipf),
            Workload::YcsbB => ([95, 5, 0, 0, 0], Distribution::Zipf),
            Workload::YcsbC => ([100, 0, 0, 0, 0], Distribution::Zipf),
            Workload::YcsbD => ([95, 0, 0, 5, 0], Distribution::Latest),
            Workload::YcsbE => ([0, 0, 95, 5, 0], Distribution::Zipf),
            Workload::YcsbF => ([50, 0, 0, 0, 50], Distribution::Zipf),
            _ => return None,
        };
        Some(Self { percent, distribution })
    }
}

/// Zipf's exponent.
const EXPONENT: f64 = 0.99;
/// Ranks of the scrambled distribution. YCSB has as many whatever the number of records, so that the hottest one has
/// the same share of the operations.
const RANKS: u64 = 10_000_000_000;
/// Most records of a scan.
const LONGEST_SCAN: u64 = 100;

/// An operation on the record with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read {
        number: u64,
    },
    Update {
        number: u64,
        field: u64,
        to: [u8; FIELD_BYTES],
    },
    /// From the key of the record on, in the order of the keys.
    Scan {
        number: u64,
        records: u64,
    },
    /// No other operation has the number.
    Insert {
        number: u64,
    },
    ReadModifyWrite {
        number: u64,
        field: u64,
        to: [u8; FIELD_BYTES],
    },
}

impl Operation {
    /// Whether the operation only reads.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Scan { .. })
    }

    /// Returns the number of a record that is inserted.
    pub(crate) const fn inserted(&self) -> Option<u64> {
        if let Self::Insert { number } = self { Some(*number) } else { None }
    }
}

/// Draws operations for one thread.
pub(crate) struct Draw {
    random: Random,
    mix: Mix,
    zipf: Zipf,
    /// Records that are loaded.
    records: u64,
}

impl Draw {
    /// Returns the operations for `stream` of a run with `seed`.
    pub(crate) fn new(seed: u64, stream: u64, mix: Mix, records: u64) -> Self {
        let ranks = if mix.distribution == Distribution::Latest { records } else { RANKS };
        Self { random: Random::new(seed, stream), mix, zipf: Zipf::new(ranks, EXPONENT), records }
    }

    /// Draws an operation, and the place of its kind in a [`Mix`].
    pub(crate) fn operation(&mut self, numbers: &Numbers) -> (usize, Operation) {
        let mut percent = self.random.below(100);
        let mut kind = 0;
        while percent >= self.mix.percent[kind] {
            percent -= self.mix.percent[kind];
            kind += 1;
        }
        if kind == INSERT {
            return (kind, Operation::Insert { number: numbers.take() });
        }
        let number = self.number(numbers);
        let (field, to) = (self.random.below(FIELDS), self.random.bits().to_le_bytes());
        let operation = match kind {
            0 => Operation::Read { number },
            UPDATE => Operation::Update { number, field, to },
            READ_MODIFY_WRITE => Operation::ReadModifyWrite { number, field, to },
            _ => Operation::Scan { number, records: 1 + self.random.below(LONGEST_SCAN) },
        };
        (kind, operation)
    }

    fn number(&mut self, numbers: &Numbers) -> u64 {
        match self.mix.distribution {
            // Hot records stay hot while others are inserted, so these take no part.
            Distribution::Zipf => mix(self.zipf.draw(&mut self.random)) % self.records,
            Distribution::Latest => numbers.limit() - 1 - self.zipf.draw(&mut self.random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn operations_are_those_of_the_core_workloads() {
        for (workload, percent) in [
            (Workload::YcsbA, [50, 50, 0, 0, 0]),
            (Workload::YcsbB, [95, 5, 0, 0, 0]),
            (Workload::YcsbC, [100, 0, 0, 0, 0]),
            (Workload::YcsbD, [95, 0, 0, 5, 0]),
            (Workload::YcsbE, [0, 0, 95, 5, 0]),
            (Workload::YcsbF, [50, 0, 0, 0, 50]),
        ] {
            let numbers = Numbers::new(1000);
            let mut draw = Draw::new(1, 0, Mix::of(workload).unwrap(), 1000);
            let mut counts = [0_i64; KINDS];
            for _ in 0..20_000 {
                let (kind, operation) = draw.operation(&numbers);
                counts[kind] += 1;
                assert_eq!(operation.is_read(), kind == 0 || kind == 2);
                assert_eq!(operation.inserted().is_some(), kind == INSERT);
                if let Operation::Scan { number, records } = operation {
                    assert!(number < 1000 && (1..=100).contains(&records));
                }
            }
            for (count, percent) in counts.into_iter().zip(percent) {
                assert!(
                    (count - percent * 200).abs() < 350 && (count == 0) == (percent == 0),
                    "{workload:?} {counts:?}"
                );
            }
        }
        assert!(Mix::of(Workload::Read).is_none());
    }

    #[test]
    fn hot_records_are_those_of_the_distribution() {
        let hottest = |workload, numbers: &Numbers| {
            let mut draw = Draw::new(1, 0, Mix::of(workload).unwrap(), 1000);
            let mut seen = HashMap::new();
            while seen.values().sum::<u32>() < 20_000 {
                let (_, operation) = draw.operation(numbers);
                if let Operation::Read { number } = operation {
                    *seen.entry(number).or_insert(0_u32) += 1;
                }
            }
            seen.into_iter().max_by_key(|&(_, count)| count).unwrap()
        };
        let numbers = Numbers::new(5000);
        // The first of 10^10 ranks has a weight of 1 / 26.47.
        let (number, count) = hottest(Workload::YcsbC, &numbers);
        assert!(number == mix(0) % 1000 && (700..900).contains(&count), "{number}: {count}");
        // The first of 1000 ranks has a weight of 1 / 7.73.
        let (number, count) = hottest(Workload::YcsbD, &numbers);
        assert!(number == 4999 && (2400..2800).contains(&count), "{number}: {count}");
    }
}
