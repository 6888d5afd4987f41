//! Crafted ends of a log: each case damages a small log in one way and says what a start makes of it.
//!
//! The log has six groups of one block in segment 1, of incarnation 3. Group `n` has two records: one of lane 0 at
//! `10 * n - 5`, and one of lane 1 at `10 * n`, which is the cut. Each group confirms the one before.

use super::super::Rule;
use super::craft::{Craft, Draft, UUID, record};
use crate::format::{CtlSlot, Decoded, Extent, FIRST_GROUP, GROUP_HEADER, GroupHeader, MAX_GROUP, STAMP_LIMIT};
use crate::segment::Control;
use crate::{Dep, Log, LogOptions, Record, Session};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Uuid, crc32c};
use std::path::PathBuf;

const SIZE: u64 = 64 << 10;
const GROUPS: u64 = 6;
const INCARNATION: u32 = 3;
const AT: u64 = (1 + GROUPS) * BLOCK as u64;

/// The result of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The log has so many groups.
    Ends(u64),
    /// This group had been acknowledged.
    Lost(u64),
    Corrupted,
    Foreign,
    Newer,
    Truncated,
    NotFound,
}
use Outcome::{Corrupted, Ends, Foreign, Lost, Newer, NotFound, Truncated};

type Case = (&'static str, fn(&mut Craft), Outcome);

fn draft(craft: &Craft) -> Draft {
    let next = craft.next;
    craft.draft(INCARNATION, 10 * next).lane(0, &[10 * next - 5]).lane(1, &[10 * next])
}

fn base() -> Craft {
    let mut craft = Craft::new(SIZE);
    Control::open(&craft.home).unwrap().renew(Incarnation(INCARNATION)).unwrap();
    (0..GROUPS).for_each(|_| craft.put(&draft(&craft)));
    craft
}

fn write(craft: &Craft, at: u64, bytes: &[u8]) {
    craft.file(1).write_at(bytes, at).unwrap();
}

/// Writes the next group, after a `change` of its draft.
fn next(craft: &mut Craft, change: impl FnOnce(&mut Draft)) {
    let mut draft = draft(craft);
    change(&mut draft);
    write(craft, AT, &draft.seal().0);
}

/// Returns the bytes of the next group, with a changed header that is sealed again.
fn header(craft: &mut Craft, change: impl FnOnce(&mut GroupHeader)) {
    let mut bytes = draft(craft).seal().0;
    let Decoded::Header(mut header, _) = GroupHeader::decode(&bytes) else { panic!("a sound header") };
    change(&mut header);
    bytes[..GROUP_HEADER].copy_from_slice(&header.encode().0);
    write(craft, AT, &bytes);
}

/// The next group with one byte of `change` more at `at`.
fn flipped(craft: &mut Craft, at: usize, change: u8) {
    let mut bytes = draft(craft).seal().0;
    bytes[at] ^= change;
    write(craft, AT, &bytes);
}

/// The next group with an extent of lane 0 that holds `data`.
fn data(craft: &mut Craft, data: Vec<u8>) {
    next(craft, |draft| {
        draft.extents.clear();
        draft.extent(0, 0, data);
    });
}

/// Changes block `block` of a file and seals it again.
fn block(craft: &Craft, path: PathBuf, block: u64, at: usize, bytes: &[u8]) {
    let file = craft.home.fs.open(&path).unwrap();
    let mut whole = vec![0; BLOCK];
    file.read_at(&mut whole, block * BLOCK as u64).unwrap();
    whole[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c(&whole[..BLOCK - 4]);
    whole[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&whole, block * BLOCK as u64).unwrap();
}

fn segment_block(craft: &Craft, at: usize, bytes: &[u8]) {
    block(craft, craft.home.segment_path(1), 0, at, bytes);
}

fn ctl(craft: &Craft) -> PathBuf {
    craft.home.dir.join("ctl")
}

fn ctl_blocks(craft: &Craft, at: usize, bytes: &[u8]) {
    (0..2).for_each(|slot| block(craft, ctl(craft), slot, at, bytes));
}

fn damage_ctl(craft: &Craft, slots: &[u64]) {
    let file = craft.home.fs.open(&ctl(craft)).unwrap();
    slots.iter().for_each(|slot| file.write_at(&[0xa5; 64], slot * BLOCK as u64 + 20).unwrap());
}

/// A group that does not fit in segment 1 and so begins segment 2, and one behind it.
fn roll(craft: &mut Craft) {
    craft.at = SIZE;
    (0..2).for_each(|_| craft.put(&draft(craft)));
}

/// The last group, once more at `at`, but for the bytes from `until` on.
fn repeat(craft: &Craft, at: u64, until: usize) {
    let mut last = vec![0; BLOCK];
    craft.file(1).read_at(&mut last, AT - BLOCK as u64).unwrap();
    write(craft, at, &last[..until]);
}

/// The group after the next one, which says that `acked` is durable. The next one is missing.
fn beyond(craft: &mut Craft, incarnation: u32, acked: u64) -> Vec<u8> {
    (craft.prev_crc, craft.next) = (draft(craft).seal().1, craft.next + 1);
    let mut draft = draft(craft);
    draft.header.acked_upto = GroupNo(acked);
    draft.header.incarnation = Incarnation(incarnation);
    draft.seal().0
}

const BEHIND: [Case; 19] = [
    ("zeros", |_| {}, Ends(6)),
    ("ones", |craft| write(craft, AT, &[0xff; BLOCK]), Ends(6)),
    ("noise", |craft| write(craft, AT, &[0x6b; 3 * BLOCK]), Ends(6)),
    ("a magic and nothing more", |craft| write(craft, AT, b"FSHORGRP"), Ends(6)),
    ("the next group", |craft| next(craft, |_| {}), Ends(7)),
    ("a group without data", |craft| next(craft, |draft| draft.extents.clear()), Ends(7)),
    (
        "the first group of the log",
        |craft| {
            let mut first = vec![0; BLOCK];
            craft.file(1).read_at(&mut first, FIRST_GROUP).unwrap();
            write(craft, AT, &first);
        },
        Ends(6),
    ),
    ("the last group again", |craft| repeat(craft, AT, BLOCK), Ends(6)),
    (
        "the last group twice more",
        |craft| {
            repeat(craft, AT, BLOCK);
            repeat(craft, AT + BLOCK as u64, BLOCK);
        },
        Ends(6),
    ),
    (
        "the last group again behind noise",
        |craft| {
            write(craft, AT, &[0x6b; 3 * BLOCK]);
            repeat(craft, AT + 3 * BLOCK as u64, BLOCK);
        },
        Ends(6),
    ),
    ("the last group again, torn", |craft| repeat(craft, AT, 100), Ends(6)),
    (
        "the next group behind noise",
        |craft| {
            write(craft, AT, &[0x6b; BLOCK]);
            let bytes = draft(craft).seal().0;
            write(craft, AT + BLOCK as u64, &bytes);
        },
        Ends(7),
    ),
    (
        "a group too many",
        |craft| {
            let bytes = beyond(craft, INCARNATION, GROUPS);
            write(craft, AT, &bytes);
        },
        Ends(6),
    ),
    (
        "a missing group before one that does not confirm it",
        |craft| {
            let bytes = beyond(craft, INCARNATION, GROUPS);
            write(craft, AT + BLOCK as u64, &bytes);
        },
        Ends(6),
    ),
    (
        "a missing group before one that confirms it",
        |craft| {
            let bytes = beyond(craft, INCARNATION, GROUPS + 1);
            write(craft, AT + BLOCK as u64, &bytes);
        },
        Lost(7),
    ),
    (
        "a missing group before an older one that confirms it",
        |craft| {
            let bytes = beyond(craft, INCARNATION - 1, GROUPS + 1);
            write(craft, AT + BLOCK as u64, &bytes);
        },
        Ends(6),
    ),
    (
        "a missing group before a newer one that confirms it",
        |craft| {
            let bytes = beyond(craft, INCARNATION + 1, GROUPS + 1);
            write(craft, AT + BLOCK as u64, &bytes);
        },
        Lost(7),
    ),
    (
        "a missing group before one in the next segment that confirms it",
        |craft| {
            let bytes = beyond(craft, INCARNATION, GROUPS + 1);
            craft.create_segment(2);
            craft.file(2).write_at(&bytes, FIRST_GROUP).unwrap();
        },
        Lost(7),
    ),
    (
        "a torn group that confirms itself",
        |craft| {
            next(craft, |draft| draft.header.acked_upto = GroupNo(GROUPS + 1));
            write(craft, AT + 2000, &[1]);
        },
        Lost(7),
    ),
];

const HEADERS: [Case; 21] = [
    ("the checksum of the header", |craft| flipped(craft, 92, 1), Ends(6)),
    ("the checksum of the data", |craft| flipped(craft, 68, 1), Ends(6)),
    ("the data", |craft| flipped(craft, GROUP_HEADER + 40, 1), Ends(6)),
    ("the padding", |craft| flipped(craft, BLOCK - 1, 1), Ends(6)),
    ("an older incarnation", |craft| header(craft, |h| h.incarnation = Incarnation(2)), Ends(6)),
    ("a newer incarnation", |craft| header(craft, |h| h.incarnation = Incarnation(4)), Ends(7)),
    ("an impossible incarnation", |craft| header(craft, |h| h.incarnation = Incarnation(u32::MAX)), Ends(6)),
    ("another log", |craft| header(craft, |h| h.uuid = Uuid([9; 16])), Ends(6)),
    ("a number too small", |craft| header(craft, |h| h.group = GroupNo(GROUPS)), Ends(6)),
    ("a number too large", |craft| header(craft, |h| h.group = GroupNo(GROUPS + 2)), Ends(6)),
    ("number zero", |craft| header(craft, |h| h.group = GroupNo(0)), Ends(6)),
    ("another group before it", |craft| header(craft, |h| h.prev_crc ^= 1), Ends(6)),
    ("an impossible cut", |craft| header(craft, |h| h.cut = Lsn(STAMP_LIMIT)), Ends(6)),
    ("a lower cut", |craft| header(craft, |h| h.cut = Lsn(1)), Ends(7)),
    ("a group that confirms what is not written", |craft| header(craft, |h| h.acked_upto = GroupNo(99)), Ends(7)),
    ("more data than the group holds", |craft| header(craft, |h| h.data_len = BLOCK as u32), Ends(6)),
    ("no length", |craft| header(craft, |h| h.total_len = 0), Ends(6)),
    ("a length of no whole blocks", |craft| header(craft, |h| h.total_len = 5000), Ends(6)),
    ("a length beyond all groups", |craft| header(craft, |h| h.total_len = (MAX_GROUP + BLOCK) as u32), Ends(6)),
    ("a length beyond the segment", |craft| header(craft, |h| h.total_len = SIZE as u32), Ends(6)),
    ("more extents than the group holds", |craft| header(craft, |h| h.n_ext = u16::MAX), Ends(6)),
];

const CONTENTS: [Case; 14] = [
    ("extents that hold less than the data", |craft| next(craft, |d| d.extents[0].0.len -= 8), Corrupted),
    ("extents that hold more than the data", |craft| next(craft, |d| d.extents[1].0.len += 8), Corrupted),
    ("an extent of huge length", |craft| next(craft, |d| d.extents[1].0.len = u32::MAX), Corrupted),
    (
        "two extents of a lane that overlap",
        |craft| {
            next(craft, |d| d.extents[1].0 = Extent { lane: 0, at: 8, ..d.extents[1].0 });
        },
        Corrupted,
    ),
    (
        "two extents of a lane, one after the other",
        |craft| {
            next(craft, |d| d.extents[1].0 = Extent { lane: 0, at: 24, ..d.extents[1].0 });
        },
        Ends(7),
    ),
    ("an extent at the end of all lanes", |craft| next(craft, |d| d.extents[1].0.at = u64::MAX), Corrupted),
    ("extents without data", |craft| next(craft, |d| (0..3).for_each(|_| d.extent(0, 0, Vec::new()))), Ends(7)),
    ("an extent shorter than an envelope", |craft| data(craft, vec![0; 16]), Corrupted),
    (
        "a record that crosses its extent",
        |craft| {
            let mut bytes = record(65, 65, 0, &[1; 40]);
            bytes.truncate(48);
            data(craft, bytes);
        },
        Corrupted,
    ),
    (
        "a record of huge length",
        |craft| {
            let mut bytes = record(65, 65, 0, &[]);
            bytes[0..4].fill(0xff);
            data(craft, bytes);
        },
        Corrupted,
    ),
    ("an impossible stamp", |craft| data(craft, record(STAMP_LIMIT, 1, 0, &[])), Corrupted),
    ("the largest stamp of all", |craft| data(craft, record(u64::MAX, 1, 0, &[])), Corrupted),
    (
        "stamps of a lane that fall",
        |craft| {
            data(craft, [record(66, 66, 0, &[]), record(65, 65, 0, &[])].concat());
        },
        Corrupted,
    ),
    ("a record that an earlier cut covers", |craft| data(craft, record(60, 60, 0, &[])), Corrupted),
];

const FILES: [Case; 31] = [
    (
        "a newer group",
        |craft| {
            next(craft, |_| {});
            let mut head = vec![0; GROUP_HEADER];
            craft.file(1).read_at(&mut head, AT).unwrap();
            head[8] = 2;
            let crc = crc32c(&head[..92]);
            head[92..].copy_from_slice(&crc.to_le_bytes());
            write(craft, AT, &head);
        },
        Newer,
    ),
    ("a newer group with a wrong checksum", |craft| flipped(craft, 8, 3), Ends(6)),
    ("a torn segment header", |craft| write(craft, 512, &[1; 512]), Corrupted),
    ("a segment header of zeros", |craft| write(craft, 0, &[0; BLOCK]), Corrupted),
    ("a segment of another number", |craft| segment_block(craft, 32, &[2]), Foreign),
    ("a segment of another log", |craft| segment_block(craft, 16, &[9; 16]), Foreign),
    ("a newer segment", |craft| segment_block(craft, 8, &[2]), Newer),
    ("a segment of impossible size", |craft| segment_block(craft, 40, &[1]), Corrupted),
    ("a file of another kind", |craft| segment_block(craft, 0, b"FSHORCTL"), Foreign),
    ("a segment cut short", |craft| craft.file(1).set_len(AT).unwrap(), Truncated),
    ("a segment without a header", |craft| craft.file(1).set_len(100).unwrap(), Truncated),
    ("a longer segment than its header says", |craft| craft.file(1).write_at(&[7; BLOCK], SIZE).unwrap(), Ends(6)),
    ("the first segment missing", |craft| craft.home.fs.remove(&craft.home.segment_path(1)).unwrap(), NotFound),
    ("a second segment", roll, Ends(8)),
    (
        "a second segment with a torn header",
        |craft| {
            roll(craft);
            craft.file(2).write_at(&[3; 64], 100).unwrap();
        },
        Corrupted,
    ),
    (
        "a middle segment missing",
        |craft| {
            roll(craft);
            craft.at = SIZE;
            craft.put(&draft(craft));
            craft.home.fs.remove(&craft.home.segment_path(2)).unwrap();
        },
        Lost(7),
    ),
    // No group is left to confirm it: this is the one loss that cannot be detected.
    (
        "the last segment missing",
        |craft| {
            roll(craft);
            craft.home.fs.remove(&craft.home.segment_path(2)).unwrap();
        },
        Ends(6),
    ),
    (
        "a segment twice, the second under its own number",
        |craft| {
            let mut bytes = vec![0; SIZE as usize - BLOCK];
            craft.file(1).read_at(&mut bytes, BLOCK as u64).unwrap();
            craft.create_segment(2);
            craft.file(2).write_at(&bytes, BLOCK as u64).unwrap();
        },
        Ends(6),
    ),
    (
        "a segment twice, the second under the number of the first",
        |craft| {
            let mut bytes = vec![0; SIZE as usize];
            craft.file(1).read_at(&mut bytes, 0).unwrap();
            craft.create_segment(2);
            craft.file(2).write_at(&bytes, 0).unwrap();
        },
        Foreign,
    ),
    (
        "a prepared segment without a header",
        |craft| {
            craft.create_segment(2);
            craft.file(2).write_at(&[0; BLOCK], 0).unwrap();
        },
        Ends(6),
    ),
    ("one damaged slot of ctl", |craft| damage_ctl(craft, &[0]), Ends(6)),
    ("the other damaged slot of ctl", |craft| damage_ctl(craft, &[1]), Ends(6)),
    ("both slots of ctl damaged", |craft| damage_ctl(craft, &[0, 1]), Corrupted),
    ("both slots of ctl of one sequence number", |craft| ctl_blocks(craft, 32, &[8]), Corrupted),
    ("ctl of another log", |craft| ctl_blocks(craft, 16, &[9; 16]), Foreign),
    ("a newer ctl", |craft| ctl_blocks(craft, 8, &[2]), Newer),
    ("impossible numbers in ctl", |craft| ctl_blocks(craft, 40, &[0xff; 8]), Corrupted),
    ("half of ctl", |craft| craft.home.fs.open(&ctl(craft)).unwrap().set_len(BLOCK as u64).unwrap(), Ends(6)),
    ("an empty ctl", |craft| craft.home.fs.open(&ctl(craft)).unwrap().set_len(0).unwrap(), Truncated),
    ("no ctl", |craft| craft.home.fs.remove(&ctl(craft)).unwrap(), NotFound),
    (
        "ctl names a group that is not there",
        |craft| {
            let (first, prev_crc) = (GroupNo(99), 1);
            let slot = CtlSlot { uuid: UUID, incarnation: Incarnation(3), seq: 9, first, segment: 1, prev_crc };
            Control::open(&craft.home).unwrap().advance(slot).unwrap();
        },
        Lost(99),
    ),
];

fn outcome(error: &Error) -> Outcome {
    match error {
        Error::LostLog { missing, .. } => Lost(missing.0),
        Error::Corrupted { .. } => Corrupted,
        Error::Foreign { .. } => Foreign,
        Error::Newer { .. } => Newer,
        Error::Truncated { .. } => Truncated,
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => NotFound,
        other => panic!("an unexpected error: {other:?}"),
    }
}

/// The bytes of every file.
fn image(craft: &Craft) -> Vec<(String, Vec<u8>)> {
    let names = craft.home.fs.list(&craft.home.dir).unwrap();
    let read = |name: String| {
        let file = craft.home.fs.open(&craft.home.dir.join(&name)).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// Reads the log, opens it, goes on with it if that is possible, and reads it once more.
fn check(name: &str, craft: &Craft, expected: Outcome) {
    let before = image(craft);
    let read = match craft.recover(Rule::Sound) {
        Ok((scanned, recovered)) => {
            let lsns = recovered.records(GroupNo(1)).map(|record| record.unwrap().lsn.0).collect::<Vec<_>>();
            Ok((scanned.next.0 - 1, lsns))
        }
        Err(error) => Err(outcome(&error)),
    };
    assert!(image(craft) == before, "{name}: a scan has written");
    let options = LogOptions {
        segment_bytes: SIZE,
        ring_bytes: 64 << 10,
        max_sessions: 1,
        ready_segments: 1,
        background: false,
        ..LogOptions::default()
    };
    let open = || Log::open(&craft.home.fs, &craft.home.dir, UUID, &options);
    let (groups, mut lsns) = match read {
        Ok(read) => read,
        Err(refused) => {
            assert_eq!(refused, expected, "{name}");
            assert_eq!(open().map(drop).map_err(|error| outcome(&error)), Err(expected), "{name}");
            assert!(image(craft) == before, "{name}: a log was refused and written to");
            return;
        }
    };
    assert_eq!(Ends(groups), expected, "{name}");
    let six = (1..=GROUPS).flat_map(|group| [10 * group - 5, 10 * group]).collect::<Vec<_>>();
    assert!(lsns.starts_with(&six) && lsns.is_sorted(), "{name}: {lsns:?}");
    let (log, _) = open().unwrap();
    let mut session = log.session().unwrap();
    session.reserve(Session::cost(0)).unwrap();
    let lsn = session.append(Record { tag: 7, flags: 0, parts: &[] }, Dep::none());
    drop(session);
    log.close().unwrap();
    lsns.push(lsn.0);
    let (_, recovered) = open().unwrap();
    assert_eq!(recovered.next_group(), GroupNo(groups + 2), "{name}");
    let again = recovered.records(GroupNo(1)).map(|record| record.unwrap().lsn.0).collect::<Vec<_>>();
    assert_eq!(again, lsns, "{name}");
}

#[test]
fn every_crafted_end_is_found_or_refused() {
    for cases in [&BEHIND[..], &HEADERS, &CONTENTS, &FILES] {
        for &(name, damage, expected) in cases {
            let mut craft = base();
            damage(&mut craft);
            check(name, &craft, expected);
        }
    }
}

/// A start repeats the last groups of two segments in a third one, and power is lost before the next group. So the
/// third segment begins with an older group than the second.
#[test]
fn groups_of_two_segments_are_repeated_in_a_third_one() {
    let mut craft = base();
    let unconfirmed = |craft: &Craft| {
        let mut draft = draft(craft);
        draft.header.acked_upto = GroupNo(GROUPS - 1);
        draft
    };
    craft.put(&unconfirmed(&craft));
    craft.at = SIZE;
    craft.put(&unconfirmed(&craft));
    craft.create_segment(3);
    for (at, (segment, offset)) in (1..).zip([(1, AT - BLOCK as u64), (1, AT), (2, FIRST_GROUP)]) {
        let mut group = vec![0; BLOCK];
        craft.file(segment).read_at(&mut group, offset).unwrap();
        craft.file(3).write_at(&group, at * BLOCK as u64).unwrap();
    }
    let (_, recovered) = craft.recover(Rule::Sound).unwrap();
    let bytes: Vec<_> = (1..=9).map(|group| recovered.bytes_from(GroupNo(group)) / BLOCK as u64).collect();
    // The third segment counts to its end, with the repeated groups.
    assert_eq!(bytes, [11, 10, 9, 8, 7, 6, 5, 4, 0]);
    check("repeated in a third segment", &craft, Ends(8));
}

/// A group of two blocks of which only the front, or only the back, was written, over zeros, ones, or an older group.
#[test]
fn a_group_torn_at_any_sector_is_the_end() {
    for sectors in 1..16 {
        for (front, below) in [(true, 0), (false, 0), (true, 0xff), (false, 0xff)] {
            let mut craft = base();
            let mut draft = draft(&craft);
            draft.extents.clear();
            draft.extent(0, 0, record(65, 65, 0, &[0x55; 8000]));
            let bytes = draft.seal().0;
            assert_eq!(bytes.len(), 2 * BLOCK);
            write(&craft, AT, &vec![below; bytes.len()]);
            let cut = sectors * 512;
            match front {
                true => write(&craft, AT, &bytes[..cut]),
                false => write(&craft, AT + cut as u64, &bytes[cut..]),
            }
            check(&format!("{sectors} sectors, front {front}, over {below}"), &craft, Ends(6));
            craft = base();
            write(&craft, AT, &bytes);
            check("the whole group", &craft, Ends(7));
        }
    }
}

/// Each byte of the last three groups is flipped, and the log is cut there by zeros.
#[test]
fn each_byte_of_the_last_three_groups_may_be_cut_or_flipped() {
    let craft = base();
    let mut bytes = vec![0; SIZE as usize];
    craft.file(1).read_at(&mut bytes, 0).unwrap();
    let judge = |group: u64, what: &str, at: usize| match craft.recover(Rule::Sound) {
        // No later group confirms the last one.
        Ok((scanned, _)) => assert_eq!((group, scanned.next), (GROUPS, GroupNo(GROUPS)), "byte {at} {what}"),
        Err(Error::LostLog { missing, .. }) => {
            assert!(group < GROUPS && missing == GroupNo(group), "byte {at} {what}: group {missing} is lost");
        }
        Err(error) => panic!("byte {at} {what}: {error:?}"),
    };
    for at in (GROUPS as usize - 2) * BLOCK..(GROUPS as usize + 1) * BLOCK {
        let group = (at / BLOCK) as u64;
        write(&craft, at as u64, &[bytes[at] ^ (1 << (at % 8))]);
        judge(group, "flipped", at);
        write(&craft, at as u64, &bytes[at..=at]);
        // All from here to the end of the group is lost; where that is zeros already, nothing is.
        let end = (at / BLOCK + 1) * BLOCK;
        if bytes[at..end].iter().any(|&byte| byte != 0) {
            write(&craft, at as u64, &vec![0; end - at]);
            judge(group, "cut", at);
            write(&craft, at as u64, &bytes[at..end]);
        }
        // Zeros from here to the end of the log: the confirming group is lost together with the confirmed one.
        if bytes[at..end].iter().any(|&byte| byte != 0) {
            let rest = vec![0; (GROUPS as usize + 1) * BLOCK - at];
            write(&craft, at as u64, &rest);
            let (scanned, _) = craft.recover(Rule::Sound).unwrap();
            assert_eq!(scanned.next, GroupNo(group), "cut at byte {at}");
            write(&craft, at as u64, &bytes[at..(GROUPS as usize + 1) * BLOCK]);
        }
    }
    assert_eq!(craft.recover(Rule::Sound).unwrap().0.next, GroupNo(GROUPS + 1));
}
