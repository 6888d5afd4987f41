//! Large values: a word, and bytes that do not compress and whose sum is known.

use super::bytes::first_word;
use crate::random::{Random, mix};

/// Bytes of a value at most.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Bytes of a value at least: more than a word.
pub(crate) const MIN_BYTES: usize = 16;
/// Bytes of the word that a value begins with.
const WORD: usize = 8;

/// Random bytes from which all values are cut.
pub(crate) struct Pool {
    bytes: Vec<u8>,
    /// The sum of the bytes before each place.
    sums: Vec<u64>,
}

/// What a reader of a value has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The word that the value begins with.
    pub(crate) word: u64,
    /// The sum of all its bytes.
    pub(crate) sum: u64,
    /// How many there are.
    pub(crate) len: u64,
}

impl Seen {
    /// Reads every byte of a value.
    pub(crate) fn of(value: &[u8]) -> Self {
        Self { word: first_word(value), sum: byte_sum(value), len: value.len() as u64 }
    }

    /// Adds what was read of the next part of the value.
    pub(crate) const fn then(self, next: Self) -> Self {
        Self { word: self.word, sum: self.sum + next.sum, len: self.len + next.len }
    }
}

/// Returns the sum of bytes.
pub(crate) fn byte_sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

impl Pool {
    /// Draws the bytes, always the same ones.
    pub(crate) fn new() -> Self {
        let mut random = Random::new(0, 0);
        let bytes: Vec<u8> = (0..2 * MAX_BYTES / WORD).flat_map(|_| random.bits().to_le_bytes()).collect();
        let mut sum = 0;
        let sums = bytes.iter().map(|&byte| {
            sum += u64::from(byte);
            sum - u64::from(byte)
        });
        Self { sums: sums.collect(), bytes }
    }

    fn start(word: u64) -> usize {
        (mix(word) % MAX_BYTES as u64) as usize
    }

    /// Makes `value` the one of `len` bytes that begins with `word`.
    pub(crate) fn fill(&self, word: u64, len: usize, value: &mut Vec<u8>) {
        let start = Self::start(word);
        value.clear();
        value.extend_from_slice(&word.to_le_bytes());
        value.extend_from_slice(&self.bytes[start..start + len - WORD]);
    }

    /// Returns what a reader must see of the value of `len` bytes that begins with `word`.
    pub(crate) fn expected(&self, word: u64, len: u64) -> Seen {
        let start = Self::start(word);
        let rest = self.sums[start + len as usize - WORD] - self.sums[start];
        Seen { word, sum: byte_sum(&word.to_le_bytes()) + rest, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_was_filled_and_every_changed_byte() {
        let (pool, mut value) = (Pool::new(), Vec::new());
        for (word, len) in [(0, MIN_BYTES), (7, 1024), (1 << 41, 65_536), (9, MAX_BYTES)] {
            pool.fill(word, len, &mut value);
            let expected = pool.expected(word, len as u64);
            assert_eq!((value.len(), Seen::of(&value)), (len, expected));
            for at in [0, WORD, len / 2, len - 1] {
                value[at] = value[at].wrapping_add(1);
                assert_ne!(Seen::of(&value), expected, "byte {at}");
                value[at] = value[at].wrapping_sub(1);
            }
        }
    }
}
