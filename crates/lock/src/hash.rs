//! The identity of a row in the lock manager: a seeded 64-bit hash of table and key.

use foreshore_base::TableId;
use foreshore_sync::primitive::MODEL;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Odd constants with irregular bits, as in wyhash.
const MIX: [u64; 2] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB];

/// Hash of a row. Two rows with one hash share their locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowHash(pub(crate) u64);

impl RowHash {
    /// Returns the key of the row in the park table. Bit 63 separates it from the keys of owners.
    pub(crate) const fn park_key(self) -> u64 {
        self.0 | 1 << 63
    }
}

/// Hashes rows with the seed of one lock manager, so that no workload collides in every instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowHasher {
    seed: u64,
}

impl RowHasher {
    /// Returns a hasher with a new random seed. A model has one seed, because its schedules are the same in each run.
    pub(crate) fn new() -> Self {
        Self { seed: if MODEL { MIX[0] } else { RandomState::new().hash_one(MIX) } }
    }

    /// Returns the hash of `key` in `table`.
    pub(crate) fn hash(self, table: TableId, key: &[u8]) -> RowHash {
        let mut state = fold(self.seed ^ u64::from(table.0), MIX[0]);
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), MIX[0]);
        }
        let mut tail = [0; 8];
        tail[..rest.len()].copy_from_slice(rest);
        // The length distinguishes a key from the same key with trailing zeros.
        RowHash(fold(state ^ u64::from_le_bytes(tail), MIX[1] ^ key.len() as u64))
    }
}

/// Returns the exclusive or of both halves of the 128-bit product, so that every input bit reaches every output bit.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Returns the number of shards of a table that has `full` of them. Loom gets one, because each adds to its state.
/// Shuttle gets few, because it makes them anew for each schedule.
pub(crate) const fn shards(full: usize) -> usize {
    if cfg!(foreshore_loom) {
        1
    } else if MODEL {
        4
    } else {
        full
    }
}

/// A map whose keys are hashes or ids.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, Spread>;

/// Builds the hasher of maps whose keys are already hashes or small ids.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread;

/// A hasher that multiplies, so that the high bits the map uses depend on the low bits of the key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpreadHasher(u64);

impl BuildHasher for Spread {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher(0)
    }
}

impl Hasher for SpreadHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }

    fn write_u64(&mut self, v: u64) {
        self.0 = fold(self.0 ^ v ^ MIX[0], MIX[1]);
    }
}

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
