//! Damaged, foreign and newer files are refused with a typed error, or read correctly. A refused log is not written.

use crate::common::*;
use foreshore_base::{Error, GroupNo};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Sim};
use foreshore_sync::NextWake;
use foreshore_wal::Log;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const GROUPS: u64 = 6;
const BLOCK: u64 = 4096;

fn as_fs(sim: &Sim) -> Arc<dyn Fs> {
    Arc::new(sim.clone())
}

fn segment(number: u64) -> PathBuf {
    dir().join(format!("{number:020}.seg"))
}

/// Writes a log of [`GROUPS`] groups of one block each, from offset 4096 of segment 1 on. Record `i` is in group `i +
/// 1`.
fn written() -> Sim {
    let sim = Sim::new(1);
    let log = fresh(&as_fs(&sim), &small());
    let mut session = log.session().unwrap();
    for tag in 0..GROUPS {
        let lsn = append(&mut session, tag, &payload(tag, 200)).unwrap();
        log.force(lsn).unwrap();
    }
    drop((session, log));
    sim.stop_recording();
    sim
}

/// Opens a damaged copy, and checks that a refused one is unchanged.
fn open_damaged(sim: &Sim) -> Result<Vec<u64>, Error> {
    let ops = sim.ops();
    match open(&as_fs(sim), &small()) {
        Ok((_, recovered)) => {
            let records = all(&recovered);
            records.iter().for_each(|record| assert!(record.payload == payload(record.tag, 200)));
            Ok(records.iter().map(|record| record.tag).collect())
        }
        Err(error) => {
            assert_eq!(sim.ops(), ops, "a log was refused after writing to it: {error:?}");
            Err(error)
        }
    }
}

fn file_bytes(sim: &Sim, path: &Path) -> Vec<u8> {
    sim.contents(path).unwrap()
}

#[test]
fn a_flipped_byte_in_a_group_is_torn_or_refused() {
    let sim = written();
    for group in GROUPS - 2..=GROUPS {
        for byte in 0..BLOCK {
            // Every byte of the header, and every fifth one behind it.
            if byte > 200 && byte % 5 != 0 {
                continue;
            }
            let damaged = sim.fork();
            damaged.flip(&segment(1), group * BLOCK + byte, 1 << (byte % 8)).unwrap();
            match open_damaged(&damaged) {
                // Only the last group is confirmed by no later one.
                Ok(found) => assert_eq!((group, found), (GROUPS, (0..GROUPS - 1).collect()), "byte {byte}"),
                Err(Error::LostLog { missing, .. }) => assert!(group < GROUPS && missing == GroupNo(group)),
                Err(error) => panic!("byte {byte} of group {group}: {error:?}"),
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_a_header_block_is_survived_or_refused() {
    let sim = written();
    for (path, block) in [(dir().join("ctl"), 0), (dir().join("ctl"), 1), (segment(1), 0)] {
        for byte in (0..BLOCK).filter(|byte| *byte < 128 || byte % 97 == 0 || *byte >= BLOCK - 4) {
            let damaged = sim.fork();
            damaged.flip(&path, block * BLOCK + byte, 0x10).unwrap();
            match open_damaged(&damaged) {
                Ok(found) => {
                    assert_eq!(found, (0..GROUPS).collect::<Vec<_>>());
                    assert!(path.ends_with("ctl"), "a damaged segment header was accepted");
                }
                Err(Error::Corrupted { file, .. }) => assert_eq!(file, path),
                Err(error) => panic!("byte {byte} of {}: {error:?}", path.display()),
            }
        }
    }
    let damaged = sim.fork();
    damaged.flip(&dir().join("ctl"), 20, 1).unwrap();
    damaged.flip(&dir().join("ctl"), BLOCK + 20, 1).unwrap();
    assert!(matches!(open_damaged(&damaged), Err(Error::Corrupted { .. })));
}

/// Wrong ends of a log, each made of bytes that were valid in another place.
#[test]
fn crafted_ends_are_the_end() {
    let sim = written();
    let path = segment(1);
    let bytes = file_bytes(&sim, &path);
    let block = |group: u64| bytes[(group * BLOCK) as usize..][..BLOCK as usize].to_vec();
    let all_of = (0..GROUPS).collect::<Vec<_>>();
    let with = |at: u64, block: &[u8]| {
        let crafted = sim.fork();
        crafted.patch(&path, at, block).unwrap();
        open_damaged(&crafted)
    };
    let behind = (GROUPS + 1) * BLOCK;
    // A group of an earlier use of the same file, at the end and some blocks further on.
    assert_eq!(with(behind, &block(2)).unwrap(), all_of);
    assert_eq!(with(behind + 3 * BLOCK, &block(GROUPS - 1)).unwrap(), all_of);
    // The last group once more: a repeated group does not count twice.
    assert_eq!(with(behind, &block(GROUPS)).unwrap(), all_of);
    assert_eq!(with(behind + 2 * BLOCK, &block(GROUPS)).unwrap(), all_of);
    // Garbage and ones.
    assert_eq!(with(behind, &[0xff; BLOCK as usize]).unwrap(), all_of);
    assert_eq!(with(behind, &payload(99, BLOCK as usize)).unwrap(), all_of);
    // A log of another database, with the right number, and the same log written by another history.
    let other = Sim::new(2);
    let uuid = foreshore_base::Uuid([3; 16]);
    Log::create(&as_fs(&other), &dir(), uuid, &small()).unwrap();
    let (log, _) = Log::open(&as_fs(&other), &dir(), uuid, &small()).unwrap();
    let mut session = log.session().unwrap();
    for tag in 0..GROUPS + 2 {
        let lsn = append(&mut session, tag, b"foreign").unwrap();
        log.force(lsn).unwrap();
    }
    let foreign = file_bytes(&other, &path);
    let next = &foreign[behind as usize..][..2 * BLOCK as usize];
    assert_eq!(with(behind, next).unwrap(), all_of);
    // Another history of the same log: all fields fit except the checksum of the group before.
    let twin = Sim::new(2);
    let log = fresh(&as_fs(&twin), &small());
    let mut session = log.session().unwrap();
    for tag in 0..GROUPS + 2 {
        let lsn = append(&mut session, tag, &payload(tag + 50, 200)).unwrap();
        log.force(lsn).unwrap();
    }
    let next = &file_bytes(&twin, &path)[behind as usize..][..BLOCK as usize];
    assert_eq!(with(behind, next).unwrap(), all_of);
    // A whole foreign segment in place of ours, and ours under another number.
    let swapped = sim.fork();
    swapped.replace(&path, &other, &path).unwrap();
    assert!(matches!(open_damaged(&swapped), Err(Error::Foreign { .. })));
    let swapped = sim.fork();
    swapped.replace(&path, &sim, &segment(2)).unwrap();
    let outcome = open_damaged(&swapped);
    assert!(matches!(outcome, Err(Error::Foreign { .. })), "{outcome:?}");
}

#[test]
fn a_hole_before_acknowledged_groups_is_lost_media() {
    let sim = written();
    let damaged = sim.fork();
    damaged.patch(&segment(1), 2 * BLOCK, &[0; 3 * BLOCK as usize]).unwrap();
    let check = |damaged: &Sim, group: u64| match open_damaged(damaged) {
        Err(Error::LostLog { file, offset, missing }) => {
            assert_eq!((file, offset, missing), (segment(1), group * BLOCK, GroupNo(group)));
        }
        other => panic!("{other:?}"),
    };
    check(&damaged, 2);
    // The first group itself is missing.
    let damaged = sim.fork();
    damaged.patch(&segment(1), BLOCK, &[0; BLOCK as usize]).unwrap();
    check(&damaged, 1);
    // The first segment, or one in the middle, is missing; all later groups are in other segments.
    let sim = Sim::new(1);
    let log = fresh(&as_fs(&sim), &small());
    let mut session = log.session().unwrap();
    for tag in 0..60 {
        let lsn = append(&mut session, tag, &payload(tag, 5000)).unwrap();
        log.force(lsn).unwrap();
    }
    drop((session, log));
    sim.stop_recording();
    for lost in 1..6 {
        let damaged = sim.fork();
        damaged.remove(&segment(lost)).unwrap();
        let outcome = open(&as_fs(&damaged), &small());
        assert!(matches!(outcome, Err(Error::LostLog { .. })), "segment {lost}: {:?}", outcome.err());
        let damaged = sim.fork();
        damaged.truncate(&segment(lost), 20_000).unwrap();
        let outcome = open(&as_fs(&damaged), &small());
        assert!(matches!(outcome, Err(Error::LostLog { .. } | Error::Truncated { .. })), "{:?}", outcome.err());
    }
}

#[test]
fn a_newer_version_is_refused() {
    let sim = written();
    let reseal = |path: &Path, block: u64, at: u64, size: usize, crc: u64| {
        let newer = sim.fork();
        newer.patch(path, block * BLOCK + at, &[2]).unwrap();
        let bytes = file_bytes(&newer, path);
        let start = (block * BLOCK) as usize;
        let sum = foreshore_base::crc32c(&bytes[start..start + size]);
        newer.patch(path, block * BLOCK + crc, &sum.to_le_bytes()).unwrap();
        open_damaged(&newer)
    };
    let ctl = dir().join("ctl");
    for (path, block, at, size, crc) in [
        (&ctl, 0, 8, 4092, 4092),
        (&ctl, 1, 8, 4092, 4092),
        (&segment(1), 0, 8, 4092, 4092),
        (&segment(1), 6, 8, 92, 92),
    ] {
        let outcome = reseal(path, block, at, size, crc);
        assert!(matches!(outcome, Err(Error::Newer { found: 2, supported: 1, .. })), "{outcome:?}");
    }
}

/// A group that was dropped once never comes back, because a new incarnation takes its place.
#[test]
fn a_dropped_group_stays_dropped() {
    let sim = written();
    let torn = sim.fork();
    torn.flip(&segment(1), GROUPS * BLOCK + 120, 1).unwrap();
    let (log, recovered) = open(&as_fs(&torn), &small()).unwrap();
    assert_eq!(tags(&recovered), (0..GROUPS - 1).collect::<Vec<_>>());
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 77, &payload(77, 200)).unwrap();
    log.force(lsn).unwrap();
    drop((session, log));
    // A whole copy of the dropped group appears further on.
    let back = torn.fork();
    let old = file_bytes(&sim, &segment(1))[(GROUPS * BLOCK) as usize..][..BLOCK as usize].to_vec();
    for at in GROUPS + 3..GROUPS + 6 {
        back.patch(&segment(1), at * BLOCK, &old).unwrap();
    }
    let found = open_damaged(&back).unwrap();
    assert_eq!(found, [(0..GROUPS - 1).collect::<Vec<_>>(), vec![77]].concat());
}

/// The last group may have been visible at one start without being on the medium. Its repetition replaces it.
#[test]
fn a_vanished_last_group_is_found_in_its_repetition() {
    let sim = written();
    drop(open(&as_fs(&sim), &small()).unwrap());
    for groups in 0..2 {
        if groups > 0 {
            let (log, _) = open(&as_fs(&sim), &small()).unwrap();
            let lsn = append(&mut log.session().unwrap(), GROUPS, &payload(GROUPS, 200)).unwrap();
            log.force(lsn).unwrap();
        }
        let vanished = sim.fork();
        vanished.patch(&segment(1), GROUPS * BLOCK, &[0; BLOCK as usize]).unwrap();
        assert_eq!(open_damaged(&vanished).unwrap(), (0..GROUPS + groups).collect::<Vec<_>>());
    }
}

/// The control file names a later group than the first only once that group is durable. So it confirms the group by
/// itself.
#[test]
fn a_truncated_log_without_its_first_group_is_lost_media() {
    let sim = Sim::new(1);
    let log = fresh(&as_fs(&sim), &small());
    let mut session = log.session().unwrap();
    let mut tag = 0;
    // The last group is the first one of its segment, so that none follows.
    while log.retained_bytes() <= (64 << 10) - BLOCK {
        let lsn = append(&mut session, tag, &payload(tag, 5000)).unwrap();
        log.force(lsn).unwrap();
        tag += 1;
    }
    let last = GroupNo(log.next_group().0 - 1);
    log.truncate(last).unwrap();
    log.truncate(last).unwrap();
    drop((session, log));
    sim.stop_recording();
    let whole = sim.fork();
    assert_eq!(tags(&open(&as_fs(&whole), &small()).unwrap().1), [tag - 1]);
    let damaged = sim.fork();
    damaged.patch(&segment(2), BLOCK, &[0; 2 * BLOCK as usize]).unwrap();
    assert!(matches!(open_damaged(&damaged), Err(Error::LostLog { missing, .. }) if missing == last));
}

/// Recovery cannot start from a group that did not become durable, even if it is the first one of a segment.
#[test]
fn truncation_stops_before_a_group_that_failed() {
    let sim = Sim::new(1);
    let log = fresh(&as_fs(&sim), &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    let mut acked = 0;
    while log.retained_bytes() < (64 << 10) - BLOCK {
        let lsn = append(&mut session, acked, &payload(acked, 200)).unwrap();
        log.force(lsn).unwrap();
        acked += 1;
    }
    let lsn = append(&mut session, acked, &payload(acked, 200)).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: false });
    assert!(matches!(log.force(lsn), Err(Error::Poisoned { .. })));
    log.truncate(log.next_group()).unwrap();
    log.truncate(log.next_group()).unwrap();
    drop((session, log));
    let (_, recovered) = open(&as_fs(&sim), &small()).unwrap();
    assert!(tags(&recovered).starts_with(&(0..acked).collect::<Vec<_>>()), "{:?}", tags(&recovered));
}
