//! Four keys for few transactions, between rows that no transaction changes.

use crate::common::Bed;

/// Rows that no transaction changes. With them the table has two leaves.
pub const FIXED: [&[u8]; 4] = [b"0", b"1", b"5", b"9"];
/// The keys of the transactions, at the ends of leaves and between. The second and the third have a row at first.
pub const KEYS: [&[u8]; 4] = [b"2", b"4", b"6", b"8"];
/// The fixed rows fill a leaf but for some bytes.
const FIXED_VALUE: [u8; 1900] = [0; 1900];

/// Inserts the first rows.
pub fn fill(bed: Bed) -> Bed {
    for key in FIXED {
        bed.run(|txn| bed.tree.insert_new(txn, key, &FIXED_VALUE));
    }
    bed.run(|txn| bed.tree.insert_new(txn, KEYS[1], &value(0)));
    bed.run(|txn| bed.tree.insert_new(txn, KEYS[2], &value(0)));
    assert!(bed.verify().pages.len() > 2, "more than one leaf");
    bed
}

/// Values of different sizes, so that some need the space of others.
pub fn value(tag: u16) -> Vec<u8> {
    let mut value = vec![0; 200 + usize::from(tag % 7) * 200];
    value[..2].copy_from_slice(&tag.to_be_bytes());
    value
}

pub fn tag(value: &[u8]) -> u16 {
    u16::from_be_bytes([value[0], value[1]])
}
