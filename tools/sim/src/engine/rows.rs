//! Keys and values as bytes, of which each byte follows from a number: a damaged one is found out.

use crate::random::mixed;

/// Stands for no row in the number of a merged value. No value has it.
const NO_ROW: u64 = 0;

/// The encoded key of a number, in the order of the numbers. Some are long.
pub(super) fn key(number: u16) -> Vec<u8> {
    let filler = match number {
        n if n % 61 == 7 => 400,
        n if n % 7 == 3 => 40,
        _ => 2,
    };
    let mut key = number.to_be_bytes().to_vec();
    key.resize(2 + filler, number as u8);
    key
}

/// The number of an encoded key.
///
/// # Errors
/// If the bytes are those of no key.
pub(super) fn key_number(bytes: &[u8]) -> Result<u16, String> {
    let number = bytes.first_chunk().map(|first| u16::from_be_bytes(*first));
    number.filter(|&number| key(number) == bytes).ok_or_else(|| format!("a key that no session wrote: {bytes:?}"))
}

/// The bytes of a value.
pub(super) fn value(number: u64) -> Vec<u8> {
    let bits = mixed(number);
    let filler = match bits % 8 {
        // Some lie in pages of their own: few in many pages, more in one or two.
        0 => match bits / 8 % 8 {
            0 => 2_040 + bits / 64 % (63 << 10),
            1 => 2_040 + bits / 64 % 8_000,
            _ => 1_000 + bits / 8 % 1_000,
        },
        1 => 100 + bits / 8 % 400,
        _ => bits / 8 % 60,
    };
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + filler as usize, bits as u8);
    value
}

/// The number of a value.
///
/// # Errors
/// If the bytes are those of no value.
pub(super) fn value_number(bytes: &[u8]) -> Result<u64, String> {
    let number = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
    number.filter(|&number| value(number) == bytes).ok_or_else(|| {
        format!("a value of {} bytes that no session wrote: {:?}…", bytes.len(), &bytes[..bytes.len().min(16)])
    })
}

/// The number of the value that a merge makes of the one before. It depends on the order of the operands.
pub(super) const fn merged(before: Option<u64>, operand: u64) -> u64 {
    let before = if let Some(number) = before { number } else { NO_ROW };
    before.rotate_left(9) ^ mixed(operand)
}

/// The number of the value that an operand was merged into, if there was a row.
pub(super) fn before_merge(merged: u64, operand: u64) -> Option<u64> {
    let before = (merged ^ mixed(operand)).rotate_right(9);
    (before != NO_ROW).then_some(before)
}

/// The first number from `number` on whose value is large.
pub(super) fn large_value(number: u64) -> u64 {
    (number..).find(|&number| value(number).len() > 1_000).expect("one in eight is large")
}
