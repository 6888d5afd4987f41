//! The records: 100 bytes that tell which one they are, how often they were changed, and that they are whole.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 7 | number of the record, in the order of inserts |
//! | 8 to 15 | version: 1, and 1 more with each update |
//! | 16 to 95 | ten fields of eight bytes |
//! | 96 to 99 | check of the bytes before |

use crate::random::Random;
use foreshore::TableDef;

const BYTES: usize = 100;
const VERSION: usize = 8;
const FIRST_FIELD: usize = 16;
const FIELD_BYTES: usize = 8;
const CHECK: usize = 96;

/// Fields of a record.
pub(super) const FIELDS: u64 = 10;

/// A record.
pub(super) type Record = [u8; BYTES];

/// Key: [`key`] of the number.
pub(super) const RECORDS: TableDef<'_, u64, Record> = TableDef::new("usertable");

/// Spreads 64-bit numbers over all 64-bit numbers; no two meet. This is the finalizer of SplitMix64.
pub(super) const fn spread(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The key of a record. Records are inserted in the order of their numbers, and so not in that of their keys.
pub(super) const fn key(number: u64) -> u64 {
    spread(number ^ 0x9E37_79B9_7F4A_7C15)
}

/// Makes the record with this number, its fields drawn by it.
pub(super) fn new(number: u64) -> Record {
    let mut record = [0; BYTES];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record[VERSION..FIRST_FIELD].copy_from_slice(&1_u64.to_le_bytes());
    let mut random = Random::new(number, 0);
    for field in record[FIRST_FIELD..CHECK].chunks_exact_mut(FIELD_BYTES) {
        field.copy_from_slice(&random.bits().to_le_bytes());
    }
    sealed(record)
}

/// Changes one field.
pub(super) fn updated(mut record: Record, field: u64, to: [u8; FIELD_BYTES]) -> Record {
    let at = FIRST_FIELD + (field % FIELDS) as usize * FIELD_BYTES;
    record[at..at + FIELD_BYTES].copy_from_slice(&to);
    let version = word(&record, VERSION) + 1;
    record[VERSION..FIRST_FIELD].copy_from_slice(&version.to_le_bytes());
    sealed(record)
}

/// Returns number and version of a record that is whole and belongs under `key`.
pub(super) fn read(at: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let record: &Record = bytes.try_into().ok()?;
    let number = word(record, 0);
    let is_whole = record[CHECK..] == check(record) && key(number) == at;
    is_whole.then(|| (number, word(record, VERSION)))
}

fn sealed(mut record: Record) -> Record {
    let check = check(&record);
    record[CHECK..].copy_from_slice(&check);
    record
}

/// Mixes all words but the check, each at its place.
fn check(record: &Record) -> [u8; BYTES - CHECK] {
    let words = record[..CHECK].chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8])));
    (words.fold(0, |mixed, word| spread(mixed ^ word)) as u32).to_le_bytes()
}

fn word(record: &Record, at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| record[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_its_number_and_its_version() {
        let record = new(7);
        assert_eq!(read(key(7), &record), Some((7, 1)));
        let changed = updated(record, 9, [3; 8]);
        assert_eq!(read(key(7), &changed), Some((7, 2)));
        assert_eq!(changed[88..96], [3; 8]);
        assert_eq!(changed[16..88], record[16..88]);
        assert_eq!(read(key(8), &record), None, "under the key of another");
        assert_eq!(read(key(7), &record[1..]), None);
    }

    #[test]
    fn every_changed_byte_is_seen() {
        for at in 0..BYTES {
            let mut record = new(7);
            record[at] ^= 1;
            assert_eq!(read(key(7), &record), None, "byte {at}");
        }
    }
}
