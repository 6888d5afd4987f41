//! Log records of another's making, with sound checksums: refused, never a panic.

use crate::support::{DIR, NUMBERS, Snapshot, fill, in_memory, open};
use foreshore::Error;
use foreshore_base::codec::{u16_at, u32_at};
use foreshore_base::{crc32c, crc32c_append};
use foreshore_io::Fs;
use std::sync::Arc;

const BLOCK: usize = 4096;
/// Bytes in front of a record's payload.
const ENVELOPE: usize = 24;
/// Kind of the record of a row that is written over.
const ROW_WRITE: u8 = 33;

/// Changes the payload of the first record of `kind` in the last group of a segment, and makes the checksums fit.
fn forge(segment: &mut [u8], kind: u8, change: impl FnOnce(&mut [u8])) {
    let starts = (BLOCK..segment.len()).step_by(BLOCK);
    let at = starts.rev().find(|&at| segment[at..].starts_with(b"FSHORGRP")).expect("a group");
    let group = &mut segment[at..];
    let mut record = 96 + 16 * usize::from(u16_at(group, 10));
    while group[record + ENVELOPE] != kind {
        record += (ENVELOPE + u32_at(group, record) as usize).next_multiple_of(8);
    }
    let (payload, len) = (record + ENVELOPE, u32_at(group, record) as usize);
    change(&mut group[payload..payload + len]);
    let crc = crc32c_append(crc32c(&group[payload..payload + len]), &group[record..record + 4]);
    let crc = crc32c_append(crc, &group[record + 8..payload]);
    group[record + 4..record + 8].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&group[96..u32_at(group, 60) as usize]);
    group[68..72].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&group[..92]);
    group[92..96].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the name of the last segment that has groups.
fn last_segment(files: &Snapshot) -> String {
    let is_used = |name: &str| files.clone().file(name)[BLOCK..].starts_with(b"FSHORGRP");
    files.names().into_iter().rfind(|name| name.ends_with(".seg") && is_used(name)).unwrap()
}

/// Its restart would enter the change behind a row that no transaction has written.
#[test]
fn a_prepared_change_of_a_row_whose_writer_never_began_is_refused() {
    let (db, fs) = in_memory();
    fill(&db, 10);
    db.checkpoint().unwrap();
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(3, 33).unwrap();
    tx.prepare("in doubt").unwrap();
    let mut files = Snapshot::of(&fs);
    let sound: Arc<dyn Fs> = files.restore();
    assert_eq!(open(&sound).unwrap().prepared().unwrap().len(), 1);
    let segment = last_segment(&files);
    forge(files.file(&segment), ROW_WRITE, |payload| {
        // Behind the pages: the root, and the owner of the row before.
        let owner = 8 + 8 * usize::from(payload[1]) + 8;
        payload[owner..owner + 8].copy_from_slice(&(1_u64 << 40 << 16).to_le_bytes());
    });
    let refused = open(&files.restore());
    assert!(matches!(refused, Err(Error::Corrupted { .. })), "{DIR}: {refused:?}");
}

/// Its meaning would be missed. A newer program that uses one announces it.
#[test]
fn a_record_with_an_unknown_flag_is_refused() {
    const FLAGS: usize = 3;
    let (db, fs) = in_memory();
    fill(&db, 10);
    db.checkpoint().unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(3, 33).map(drop)).unwrap();
    let files = Snapshot::of(&fs);
    let segment = last_segment(&files);
    for flag in [16, 32, 64, 128] {
        let mut files = files.clone();
        forge(files.file(&segment), ROW_WRITE, |payload| payload[FLAGS] |= flag);
        let refused = open(&files.restore());
        let Err(Error::Corrupted { why, .. }) = &refused else { panic!("flag {flag}: {refused:?}") };
        assert!(why.contains("unknown flag"), "flag {flag}: {why}");
    }
}
