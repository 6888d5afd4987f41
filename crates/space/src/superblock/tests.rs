use super::*;
use crate::BackupMark;
use foreshore_base::{GroupNo, Lsn, PageId, Uuid, Xid};
use foreshore_io::{Fs, Mem};
use std::{path::Path, sync::Arc};

fn sample() -> SuperBlock {
    SuperBlock {
        uuid: Uuid(*b"0123456789abcdef"),
        seq: 0,
        checkpoint_lsn: Lsn(0x1122_3344_5566),
        checkpoint_group: GroupNo(17),
        scan_start: GroupNo(12),
        redo_start: GroupNo(15),
        data_pages: 2,
        xid_ceiling: Xid(65_536),
        clean: true,
        features: 0,
        write_features: 0,
        created: 1_700_000_000,
        restart_speed: 0,
        quarantined: vec![PageId(4), PageId(70_000)],
        backups: BackupMark { last: [7; 16], run: [8; 16] },
    }
}

fn file() -> Arc<dyn File> {
    let fs = Mem::null();
    fs.create_dir(Path::new("/db")).unwrap();
    let file = fs.create(Path::new("/db/data")).unwrap();
    file.allocate(0, 4 * PAGE_SIZE as u64).unwrap();
    file
}

fn poke(file: &dyn File, at: u64, change: impl FnOnce(&mut [u8])) {
    let mut block = AlignedBuf::new(BLOCK);
    let base = at - at % BLOCK as u64;
    file.read_at(&mut block, base).unwrap();
    change(&mut block[(at - base) as usize..]);
    file.write_at(&block, base).unwrap();
}

/// Changes a slot behind its checksum's back, and puts the checksum right.
fn forge(file: &dyn File, slot: u64, change: impl FnOnce(&mut [u8])) {
    poke(file, slot_offset(slot), |block| {
        change(block);
        let crc = foreshore_base::crc32c(&block[..BLOCK - 4]);
        block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    });
}

#[test]
fn slots_alternate_and_the_newest_wins() {
    let file = file();
    let mut last = sample();
    for seq in 1..6_u64 {
        last = SuperBlock { checkpoint_group: GroupNo(seq), restart_speed: 7 * seq as u32, ..last }
            .write_next(&*file)
            .unwrap();
        assert_eq!(last.seq, seq);
        let (newest, older) = SuperBlock::read_newest(&*file).unwrap();
        assert_eq!(newest, last);
        assert_eq!(older.map(|older| older.seq), (seq > 1).then(|| seq - 1));
    }
}

#[test]
fn every_flipped_byte_of_the_newest_slot_falls_back_to_the_older() {
    let file = file();
    let first = sample().write_next(&*file).unwrap();
    let second = first.write_next(&*file).unwrap();
    let base = slot_offset(second.slot());
    for at in 0..BLOCK as u64 {
        poke(&*file, base + at, |bytes| bytes[0] ^= 0x40);
        let (newest, older) = SuperBlock::read_newest(&*file).unwrap();
        assert_eq!((newest, older), (first.clone(), None), "byte {at}");
        // The damaged slot is the next to be written.
        poke(&*file, base + at, |bytes| bytes[0] ^= 0x40);
    }
    assert_eq!(first.write_next(&*file).unwrap().slot(), second.slot());
}

#[test]
fn what_is_not_ours_is_told_from_what_is_damaged() {
    let empty = file();
    assert!(matches!(SuperBlock::read_newest(&*empty), Err(Error::Foreign { .. })));
    let file = file();
    let only = sample().write_next(&*file).unwrap();
    let base = slot_offset(only.slot());
    poke(&*file, base + 100, |bytes| bytes[0] ^= 1);
    assert!(matches!(SuperBlock::read_newest(&*file), Err(Error::Corrupted { .. })));
    poke(&*file, base + 100, |bytes| bytes[0] ^= 1);
    forge(&*file, only.slot(), |block| block[8] = 2);
    let newer = SuperBlock::read_newest(&*file);
    assert!(matches!(newer, Err(Error::Newer { found: 2, supported: 1, .. })), "{newer:?}");
    forge(&*file, only.slot(), |block| (block[8], block[84]) = (1, 1));
    assert!(matches!(SuperBlock::read_newest(&*file), Err(Error::Newer { .. })));
    forge(&*file, only.slot(), |block| (block[84], block[80]) = (0, 3));
    assert!(matches!(SuperBlock::read_newest(&*file), Err(Error::Newer { found: 2, .. })), "an unknown flag");
    forge(&*file, only.slot(), |block| (block[80], block[13]) = (1, 0x40));
    assert!(matches!(SuperBlock::read_newest(&*file), Err(Error::Foreign { .. })));
    forge(&*file, only.slot(), |block| block[13] = 0x20);
    assert_eq!(SuperBlock::read_newest(&*file).unwrap().0, only);
}

#[test]
fn a_feature_of_writers_is_newer_for_them_alone() {
    for bit in [0, 31] {
        let file = file();
        let first = SuperBlock { write_features: 1 << bit, ..sample() }.write_next(&*file).unwrap();
        let second = SuperBlock { write_features: 0, ..first.clone() }.write_next(&*file).unwrap();
        assert_eq!(SuperBlock::read_newest_for_reading(&*file).unwrap(), (second, Some(first)));
        let refused = SuperBlock::read_newest(&*file);
        assert!(matches!(refused, Err(Error::Newer { found: 2, supported: 1, .. })), "{refused:?}");
    }
}

#[test]
fn a_slot_that_begins_to_redo_what_it_does_not_read_is_not_believed() {
    let file = file();
    let only = sample().write_next(&*file).unwrap();
    for (redo, is_sound) in [(11_u8, false), (12, true), (13, true)] {
        forge(&*file, only.slot(), |block| block[96] = redo);
        assert_eq!(
            SuperBlock::read_newest(&*file).is_ok(),
            is_sound,
            "redo from {redo}, read from {}",
            only.scan_start
        );
    }
}

#[test]
fn a_slot_whose_numbers_leave_none_to_count_on_to_is_not_believed() {
    const SEQ: usize = 32;
    const XID_CEILING: usize = 72;
    let numbers = [
        (SEQ, (1 << 62) - 1, true),
        (SEQ, (1 << 62) + 1, false),
        (SEQ, u64::MAX, false),
        (XID_CEILING, 0, false),
        (XID_CEILING, 1 << 48, true),
        (XID_CEILING, (1 << 48) + 1, false),
    ];
    for (at, number, is_sound) in numbers {
        let file = file();
        let only = sample().write_next(&*file).unwrap();
        assert_eq!(only.slot(), 1, "the numbers above are odd");
        forge(&*file, only.slot(), |block| block[at..at + 8].copy_from_slice(&number.to_le_bytes()));
        assert_eq!(SuperBlock::read_newest(&*file).is_ok(), is_sound, "{number} at {at}");
    }
}

#[test]
fn a_misplaced_slot_is_not_believed() {
    let file = file();
    let only = sample().write_next(&*file).unwrap();
    let mut copy = AlignedBuf::new(BLOCK);
    file.read_at(&mut copy, slot_offset(only.slot())).unwrap();
    file.write_at(&copy, slot_offset(1 - only.slot())).unwrap();
    file.write_at(&AlignedBuf::new(BLOCK), slot_offset(only.slot())).unwrap();
    assert!(matches!(SuperBlock::read_newest(&*file), Err(Error::Corrupted { .. })));
}

#[test]
fn a_short_file_is_truncated() {
    let file = file();
    SuperBlock { data_pages: 4, ..sample() }.write_next(&*file).unwrap();
    file.set_len(3 * PAGE_SIZE as u64).unwrap();
    let result = SuperBlock::read_newest(&*file);
    assert!(matches!(result, Err(Error::Truncated { len: 24_576, expected: 32_768, .. })), "{result:?}");
}

#[test]
fn the_bytes_of_version_1_stay() {
    let mut slot = vec![0; BLOCK];
    SuperBlock { seq: 5, ..sample() }.encode(&mut slot);
    let mut expected = Vec::new();
    expected.extend_from_slice(b"FORESHOR");
    expected.extend_from_slice(&[1, 0, 0, 0, 0, 0x20, 0, 0]);
    expected.extend_from_slice(b"0123456789abcdef");
    for word in [5_u64, 0x1122_3344_5566, 17, 12, 2, 65_536, 1, 1_700_000_000, 15, 2, 4, 70_000] {
        expected.extend_from_slice(&word.to_le_bytes());
    }
    assert_eq!(slot[..expected.len()], expected);
    assert!(slot[expected.len()..BLOCK - 36].iter().all(|&byte| byte == 0));
    assert_eq!(slot[BLOCK - 36..BLOCK - 4], [[7; 16], [8; 16]].concat());
}
