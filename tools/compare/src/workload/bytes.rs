//! Words in rows, and the bytes between them.

use crate::random::mix;

/// Returns the word that a row begins with: a balance, an amount, or the row's own key. 0 for a row that is too short.
pub(crate) fn first_word(row: &[u8]) -> u64 {
    word(row, 0)
}

/// Returns the word at byte `at`, 0 where the row is too short.
pub(crate) fn word(row: &[u8], at: usize) -> u64 {
    row.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Replaces the word at byte `at`.
pub(crate) fn put_word(row: &mut [u8], at: usize, word: u64) {
    row[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Returns bytes that do not compress, the same ones for the same key.
pub(super) fn filled<const N: usize>(key: u64) -> [u8; N] {
    let mut row = [0; N];
    for (i, chunk) in row.chunks_mut(8).enumerate() {
        let bytes = mix(key.wrapping_mul(64).wrapping_add(i as u64)).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    row
}
