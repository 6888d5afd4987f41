//! The records: 100 bytes that tell which one they are, how often they were changed, and that they are whole.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 7 | number of the record, in the order of inserts |
//! | 8 to 15 | version: 1, and 1 more with each update |
//! | 16 to 95 | ten fields of eight bytes |
//! | 96 to 99 | check of the bytes before |

use crate::{
    random::mix,
    workload::{ROW_BYTES, churned, put_word, row, word},
};

const VERSION: usize = 8;
const FIRST_FIELD: usize = 16;
const CHECK: usize = 96;

/// Bytes of a field.
pub(super) const FIELD_BYTES: usize = 8;
/// Fields of a record.
pub(super) const FIELDS: u64 = 10;

/// Returns the key of the record with a number. Records are inserted in the order of their numbers, and so not in that
/// of their keys.
pub(super) const fn key(number: u64) -> u64 {
    churned(number)
}

/// Returns the record with this number, its fields drawn by it.
pub(super) fn new(number: u64) -> [u8; ROW_BYTES] {
    let mut record = row(number, number);
    put_word(&mut record, VERSION, 1);
    seal(&mut record);
    record
}

/// Changes one field. A record that is too short stays as it is.
pub(super) fn update(record: &mut [u8], field: u64, to: [u8; FIELD_BYTES]) {
    let Ok(record) = <&mut [u8; ROW_BYTES]>::try_from(record) else { return };
    put_word(record, FIRST_FIELD + (field % FIELDS) as usize * FIELD_BYTES, u64::from_le_bytes(to));
    let version = word(record, VERSION).wrapping_add(1);
    put_word(record, VERSION, version);
    seal(record);
}

/// Returns number and version of a record that is whole and belongs under `at`.
pub(super) fn read(at: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let record: &[u8; ROW_BYTES] = bytes.try_into().ok()?;
    let number = word(record, 0);
    let is_whole = record[CHECK..] == check(record) && key(number) == at;
    is_whole.then(|| (number, word(record, VERSION)))
}

fn seal(record: &mut [u8; ROW_BYTES]) {
    let check = check(record);
    record[CHECK..].copy_from_slice(&check);
}

/// Adds all words but the check, each with an odd factor of its own. The products do not wait for each other.
fn check(record: &[u8; ROW_BYTES]) -> [u8; ROW_BYTES - CHECK] {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut factor = FACTOR;
    let mut sum = 0_u64;
    for at in (0..CHECK).step_by(8) {
        sum = sum.wrapping_add(word(record, at).wrapping_mul(factor));
        factor = factor.wrapping_mul(FACTOR);
    }
    (mix(sum) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_its_number_and_its_version() {
        let mut record = new(7);
        assert_eq!(read(key(7), &record), Some((7, 1)));
        let before = record;
        update(&mut record, 9, [3; 8]);
        assert_eq!(read(key(7), &record), Some((7, 2)));
        assert_eq!((&record[88..96], &record[16..88]), (&[3; 8][..], &before[16..88]));
        assert_eq!(read(key(8), &record), None, "under the key of another");
        assert_eq!(read(key(7), &record[1..]), None);
    }

    #[test]
    fn every_changed_byte_is_seen() {
        for at in 0..ROW_BYTES {
            let mut record = new(7);
            record[at] ^= 1;
            assert_eq!(read(key(7), &record), None, "byte {at}");
        }
    }
}
