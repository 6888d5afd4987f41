//! Readers without latches, and writers that split leaves and roll changes back, in memory and in a far too small
//! pool.

use crate::common::{Bed, Rng};
use foreshore_base::Error;
use foreshore_base::crc32c;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::ops::Bound;
use std::sync::Arc;

const WRITERS: u64 = 3;
const READERS: u64 = 3;
/// Rows that each writer inserts.
const ROWS: u64 = 700;
/// Flag of values that no committed row has.
const TAKEN_BACK: u8 = 0xff;

/// Rows of different writers lie side by side, and come in no order.
fn key(writer: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes());
    key[8..].copy_from_slice(&writer.to_be_bytes());
    key
}

/// Key, flag and padding under a checksum.
fn value(key: &[u8], flag: u8, padding: usize) -> Vec<u8> {
    let mut value = vec![0; 4];
    value.extend_from_slice(key);
    value.push(flag);
    value.resize(value.len() + padding, flag);
    let crc = crc32c(&value[4..]);
    value[..4].copy_from_slice(&crc.to_le_bytes());
    value
}

fn check(key: &[u8], value: &[u8]) {
    assert_eq!(value[..4], crc32c(&value[4..]).to_le_bytes(), "a torn value of {key:?}");
    assert_eq!(&value[4..20], key, "the value of another row");
    assert_ne!(value[20], TAKEN_BACK, "a value of {key:?} that was never committed");
}

/// Inserts its rows one by one and says so; now and then changes an older one, and rolls every other change back.
fn write(bed: &Bed, writer: u64, inserted: &AtomicU64) {
    let mut rng = Rng(writer);
    for number in 0..ROWS {
        let key = key(writer, number);
        bed.run(|txn| bed.tree.insert_new(txn, &key, &value(&key, number as u8 & 0x7f, rng.below(300))));
        // ORDERING: publish, pairs with `read`.
        inserted.store(number + 1, Ordering::Release);
        let old = self::key(writer, rng.next() % (number + 1));
        let committed = number % 2 == 0;
        let flag = if committed { 1 } else { TAKEN_BACK };
        let mut txn = bed.begin();
        bed.tree.put(&mut txn, &old, &value(&old, flag, rng.below(300))).unwrap();
        if committed { txn.commit().map(drop) } else { txn.rollback().map(drop) }.unwrap();
    }
}

fn read(bed: &Bed, reader: u64, inserted: &[AtomicU64]) {
    let (mut rng, mut out) = (Rng(100 + reader), Vec::new());
    loop {
        let mut done = true;
        for (writer, inserted) in inserted.iter().enumerate() {
            // ORDERING: publish, pairs with `write`.
            let known = inserted.load(Ordering::Acquire);
            done &= known == ROWS;
            if known == 0 {
                continue;
            }
            let key = key(writer as u64, rng.next() % known);
            let mut txn = bed.begin();
            match bed.tree.get(&mut txn, &key, &mut out) {
                Ok(found) => {
                    assert!(found, "a row that was committed is not found");
                    check(&key, &out);
                    txn.commit().map(drop).unwrap();
                }
                // Readers and writers of two rows may form a cycle through a slot of keys.
                Err(Error::Deadlock { .. }) => txn.rollback().map(drop).unwrap(),
                Err(error) => panic!("reader {reader}: {error:?}"),
            }
        }
        if done {
            return;
        }
    }
}

/// Scans lock what they have seen, and writers of other rows go on; leaves are split all the same.
fn scan(bed: &Bed) -> usize {
    bed.run(|txn| {
        let mut cursor = bed.tree.range(txn, Bound::Unbounded, Bound::Unbounded)?;
        let mut rows = 0;
        while let Some((key, value)) = cursor.next(txn)? {
            check(key, value);
            rows += 1;
        }
        Ok(rows)
    })
}

fn readers_see_committed_rows(frames: usize) {
    let bed = Arc::new(Bed::new(frames));
    let inserted: Arc<Vec<_>> = Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (bed, inserted) = (bed.clone(), inserted.clone());
        threads.push(thread::spawn(move || write(&bed, writer, &inserted[writer as usize])));
    }
    for reader in 0..READERS {
        let (bed, inserted) = (bed.clone(), inserted.clone());
        threads.push(thread::spawn(move || read(&bed, reader, &inserted)));
    }
    for _ in 0..20 {
        scan(&bed);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(scan(&bed), (WRITERS * ROWS) as usize);
    assert_eq!(bed.verify().rows, WRITERS * ROWS);
    assert!(bed.trees.stats().leaf_splits > 50);
}

#[test]
fn in_memory() {
    readers_see_committed_rows(1024);
}

#[test]
fn in_sixteen_frames() {
    readers_see_committed_rows(16);
}
