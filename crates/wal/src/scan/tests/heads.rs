//! Segments that a start passes over: their readers find what a whole scan would have found.

use super::super::Rule;
use super::craft::Craft;
use crate::format::{Decoded, GroupHeader};
use crate::reader::Recovered;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo};

/// Room for four groups of one block.
const SMALL: u64 = 5 * BLOCK as u64;
const GROUPS: u64 = 26;

/// A log of one run, whose group `n` has one record with LSN `10 * n`.
fn long() -> Craft {
    let mut craft = Craft::new(SMALL);
    for group in 1..=GROUPS {
        let draft = craft.draft(1, 10 * group).lane(0, &[10 * group]);
        craft.put(&draft);
    }
    craft
}

fn unread(recovered: &Recovered) -> Vec<u64> {
    recovered.live.iter().filter(|live| live.is_unread()).map(|live| live.number).collect()
}

/// Returns the LSNs from a group on, up to an error.
fn lsns(recovered: &Recovered, from: u64) -> Result<Vec<u64>, Error> {
    recovered.records(GroupNo(from)).map(|record| record.map(|record| record.lsn.0)).collect()
}

#[test]
fn a_segment_that_is_passed_over_is_read_like_any_other() {
    let (scanned, recovered) = long().recover(Rule::Sound).unwrap();
    // Segment 7 has the last two groups. A head that is in the chain must confirm the head behind a segment.
    assert_eq!((unread(&recovered), scanned.next), (vec![1, 2, 3, 4], GroupNo(GROUPS + 1)));
    assert_eq!((recovered.first_group(), scanned.tail.len()), (GroupNo(1), 1));
    for from in 1..=GROUPS {
        assert_eq!(lsns(&recovered, from).unwrap(), (from..=GROUPS).map(|group| 10 * group).collect::<Vec<_>>());
    }
}

#[test]
fn the_first_reader_of_an_unread_segment_finds_where_later_ones_begin() {
    let (_, recovered) = long().recover(Rule::Sound).unwrap();
    let copy = recovered.clone();
    let begin = |group: u64| copy.live[1].seek(GroupNo(group)).0.0;
    assert_eq!((begin(5), begin(7), begin(8)), (5, 5, 5));
    let bytes = copy.bytes_from(GroupNo(8));
    lsns(&recovered, 6).unwrap();
    assert_eq!((begin(5), begin(7), begin(8)), (5, 7, 8));
    assert_eq!(bytes - copy.bytes_from(GroupNo(8)), 3 * BLOCK as u64);
    assert_eq!(lsns(&copy, 7).unwrap(), lsns(&recovered, 7).unwrap());
}

#[test]
fn a_group_that_is_missing_in_an_unread_segment_is_lost_log() {
    let (segment, group, at) = (3, 10, 2 * BLOCK as u64);
    let check = |craft: &Craft, what: &str| {
        let (scanned, recovered) = craft.recover(Rule::Sound).unwrap();
        assert_eq!((unread(&recovered), scanned.next), (vec![1, 2, 3, 4], GroupNo(GROUPS + 1)), "{what}");
        assert_eq!(lsns(&recovered, 13).unwrap().len() as u64, GROUPS - 12, "{what}: behind the damage");
        match lsns(&recovered, 1) {
            Err(Error::LostLog { file, offset, missing }) => {
                let found = (file, offset, missing);
                assert_eq!(found, (craft.home.segment_path(segment), at, GroupNo(group)), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    };
    let craft = long();
    craft.file(segment).write_at(&[0xa5], at + 100).unwrap();
    check(&craft, "a flipped byte");
    let craft = long();
    craft.file(segment).write_at(&[0; BLOCK], at).unwrap();
    check(&craft, "zeros");
    // A group of the same number and run that is whole, and follows another one.
    let mut craft = long();
    craft.next = group;
    let (bytes, _) = craft.draft(1, 10 * group).lane(0, &[10 * group]).seal();
    craft.file(segment).write_at(&bytes, at).unwrap();
    check(&craft, "a group behind another one");
}

#[test]
fn the_last_group_before_a_segment_that_is_read_is_checked_by_its_reader() {
    let mut craft = long();
    // Group 16, whole and of the same run, which group 17 does not follow.
    let mut before = vec![0; BLOCK];
    craft.file(4).read_at(&mut before, 4 * BLOCK as u64).unwrap();
    let Decoded::Header(header, _) = GroupHeader::decode(&before) else { panic!("a sound header") };
    (craft.next, craft.prev_crc) = (16, header.prev_crc);
    let (bytes, _) = craft.draft(1, 155).lane(0, &[155]).seal();
    craft.file(4).write_at(&bytes, 4 * BLOCK as u64).unwrap();
    let (_, recovered) = craft.recover(Rule::Sound).unwrap();
    let read = lsns(&recovered, 1);
    assert!(matches!(read, Err(Error::LostLog { missing: GroupNo(17), .. })), "{read:?}");
}

#[test]
fn a_damaged_head_behind_confirmed_groups_is_lost_log() {
    // In the header, and in the data.
    for (segment, at) in (2..=6).flat_map(|segment| [(segment, 8), (segment, 90), (segment, 130)]) {
        let craft = long();
        craft.file(segment).write_at(&[0xa5], BLOCK as u64 + at).unwrap();
        let missing = GroupNo(4 * (segment - 1) + 1);
        let refused = craft.recover(Rule::Sound).map(|(scanned, _)| scanned.next);
        assert!(matches!(refused, Err(Error::LostLog { missing: found, .. }) if found == missing), "{refused:?}");
    }
}
