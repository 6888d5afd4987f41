//! Numbers and names that both the population and the inputs draw: clause 2.1.6 and 4.3.2.

use super::tables::{Text, WarehouseId};
use crate::random::Random;

/// Customers of a district whose last names are counted up; the others' are drawn.
pub(super) const COUNTED_NAMES: u32 = 1000;
/// Tells the draws of the constants from those of the workers.
const CONSTANTS: u64 = 1 << 61;

/// How many rows there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) warehouses: WarehouseId,
    pub(super) items: u32,
    /// Customers of a district, and orders that are loaded for it.
    pub(super) customers: u32,
}

impl Size {
    /// The size that the specification sets.
    pub(super) const fn new(warehouses: WarehouseId) -> Self {
        Self { warehouses, items: 100_000, customers: 3000 }
    }

    /// Returns how many last names there are.
    pub(super) const fn names(self) -> u32 {
        if self.customers < COUNTED_NAMES { self.customers } else { COUNTED_NAMES }
    }

    /// Returns how many of the orders of a district are loaded as delivered: 7 of 10.
    pub(super) const fn delivered(self) -> u32 {
        self.customers / 10 * 7
    }
}

/// The constants C of `NURand`: clause 2.1.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Constants {
    pub(super) last: u64,
    pub(super) customer: u64,
    pub(super) item: u64,
}

impl Constants {
    /// Those of the population.
    pub(super) const LOAD: Self = Self { last: 157, customer: 0, item: 0 };

    /// Draws those of a run. Clause 2.1.6.1 bounds how far that of the last names lies from the population's.
    pub(super) fn of_run(seed: u64) -> Self {
        let random = &mut Random::new(seed, CONSTANTS);
        let is_valid = |last: &u64| match last.abs_diff(Self::LOAD.last) {
            96 | 112 => false,
            distance => (65..=119).contains(&distance),
        };
        let valid: Vec<u64> = (0..=255).filter(is_valid).collect();
        let last = valid[random.below(valid.len() as u64) as usize];
        Self { last, customer: random.below(1024), item: random.below(8192) }
    }

    /// Draws the number of a last name, below `names`.
    pub(super) fn name(self, random: &mut Random, names: u32) -> u64 {
        nurand(random, 255, self.last, u64::from(names))
    }
}

/// Draws a number below `count`. Those with many bits of `a` set are hot, moved by `c`.
pub(super) fn nurand(random: &mut Random, a: u64, c: u64, count: u64) -> u64 {
    ((random.below(a + 1) | random.below(count)) + c) % count
}

/// `C_LAST` with a number below 1000: a syllable for each of its digits.
pub(super) fn last_name(number: u64) -> Text<16> {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let mut name = [b' '; 16];
    let mut end = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize % 10].as_bytes();
        name[end..end + syllable.len()].copy_from_slice(syllable);
        end += syllable.len();
    }
    name
}

/// Draws a number between the two, both included.
pub(super) fn between(random: &mut Random, least: u64, most: u64) -> u64 {
    least + random.below(most - least + 1)
}
