//! A seeded hash of short byte strings, for tables in memory.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Odd constants with irregular bits, as in wyhash.
pub const MIX: [u64; 2] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB];

/// A hash function with a random seed, so that no input collides in every process. It multiplies once for each eight
/// bytes. An attacker that observes collisions can cause more of them.
#[derive(Clone, Copy, Debug)]
pub struct SeededHash {
    seed: u64,
}

impl SeededHash {
    /// Returns a function with a new random seed.
    #[expect(clippy::new_without_default, reason = "two defaults would be two different functions")]
    #[must_use]
    pub fn new() -> Self {
        Self { seed: RandomState::new().hash_one(MIX) }
    }

    /// Returns the hash of a number and bytes.
    #[inline]
    #[must_use]
    pub fn hash(self, number: u64, bytes: &[u8]) -> u64 {
        let mut state = fold(self.seed ^ number, MIX[0]);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), MIX[0]);
        }
        // The length distinguishes bytes from the same bytes with trailing zeros.
        fold(state ^ tail(bytes, rest), MIX[1] ^ bytes.len() as u64)
    }
}

/// Returns a word that contains all bytes of `rest`, the end of `bytes` after its whole words.
#[inline]
fn tail(bytes: &[u8], rest: &[u8]) -> u64 {
    match (rest, bytes.last_chunk()) {
        ([], _) => 0,
        (_, Some(last)) => u64::from_le_bytes(*last),
        ([first, ..], None) => match (rest.first_chunk(), rest.last_chunk()) {
            (Some(first), Some(last)) => {
                u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
            }
            // Three bytes at most.
            _ => [rest[rest.len() / 2], rest[rest.len() - 1]]
                .iter()
                .fold(u64::from(*first), |word, &byte| word << 8 | u64::from(byte)),
        },
    }
}

/// Returns the exclusive or of both halves of the 128-bit product, so that every input bit reaches every output bit.
#[inline]
#[must_use]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Builds the hasher of maps whose keys are already hashes or small ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread;

/// A hasher that multiplies, so that the high bits the map uses depend on the low bits of the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpreadHasher(u64);

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
    fn every_byte_and_the_length_count() {
        let hash = SeededHash::new();
        for len in 0..20 {
            let bytes = vec![0; len];
            let mut hashes = HashSet::from([hash.hash(1, &bytes)]);
            assert!(hashes.insert(hash.hash(2, &bytes)), "the number, with {len} bytes");
            assert!(hashes.insert(hash.hash(1, &vec![0; len + 1])), "{len} bytes and one more");
            for at in 0..len {
                let mut other = bytes.clone();
                for value in 1..=255 {
                    other[at] = value;
                    assert!(hashes.insert(hash.hash(1, &other)), "byte {at} of {len} is {value}");
                }
            }
        }
    }
}
