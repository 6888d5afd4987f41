//! The identity of a row in the lock manager: a seeded 64-bit hash of table and key.

use foreshore_base::TableId;
use foreshore_base::hash::SeededHash;
pub(crate) use foreshore_base::hash::Spread;

/// Hash of a row. Two rows with one hash share their locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowHash(pub(crate) u64);

impl RowHash {
    /// Returns the key of the row in the park table. Bit 63 separates it from the keys of owners.
    pub(crate) const fn park_key(self) -> u64 {
        self.0 | 1 << 63
    }
}

/// Hashes rows with the seed of one lock manager, so that no workload collides in every instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowHasher(SeededHash);

impl RowHasher {
    /// Returns a hasher with a new random seed.
    pub(crate) fn new() -> Self {
        Self(SeededHash::new())
    }

    /// Returns the hash of `key` in `table`.
    pub(crate) fn hash(self, table: TableId, key: &[u8]) -> RowHash {
        RowHash(self.0.hash(u64::from(table.0), key))
    }
}

/// A map whose keys are hashes or ids.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, Spread>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_that_differ_anywhere_differ_in_their_hash() {
        let hasher = RowHasher::new();
        let mut seen = HashSet::new();
        for table in 0..3 {
            for len in 0..40 {
                assert!(seen.insert(hasher.hash(TableId(table), &vec![0; len]).0), "zeros of length {len}");
            }
            for n in 1..20_000_u64 {
                assert!(seen.insert(hasher.hash(TableId(table), &n.to_be_bytes()).0));
            }
        }
    }

    #[test]
    fn low_bits_are_spread_for_the_slots() {
        let hasher = RowHasher::new();
        let mut slots = [0_u32; 64];
        for n in 0..6400_u64 {
            slots[hasher.hash(TableId(1), &n.to_be_bytes()).0 as usize % 64] += 1;
        }
        assert!(slots.iter().all(|&n| (40..200).contains(&n)), "{slots:?}");
    }
}
