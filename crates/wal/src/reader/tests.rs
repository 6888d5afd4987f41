//! Histories of several lanes against a model that knows everything at once.

use super::RecordIter;
use crate::record::{LoggedRecord, flags};
use crate::scan::Rule;
use crate::scan::tests::craft::{Craft, record};
use foreshore_base::{GroupNo, Lsn};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A logical record to be: its lane, how far its stamp lies above the one before in the lane, how many cuts early it is
/// copied, and its fragments.
type Step = (u16, u64, usize, usize);

/// One incarnation: the distances between its cuts, and its records.
type Life = (Vec<u64>, Vec<Step>);

/// A physical record.
#[derive(Clone, Debug)]
struct Piece {
    lsn: u64,
    bytes: Vec<u8>,
    cut: usize,
}

/// A logical record, as its last fragment makes it whole.
#[derive(Clone, Debug)]
struct Whole {
    lane: u16,
    tag: u64,
    /// Indices of the first and the last piece in the lane.
    pieces: (usize, usize),
}

fn payload(tag: u64, fragments: usize) -> Vec<u8> {
    (0..fragments * 3).map(|i| (tag as usize + i) as u8).collect()
}

/// The pieces of one logical record; the first stamp is `lsn`, and one follows the other.
fn pieces(lsn: u64, tag: u64, fragments: usize) -> Vec<(u64, Vec<u8>)> {
    let payload = payload(tag, fragments);
    if fragments == 1 {
        return vec![(lsn, record(lsn, tag, flags::COMMIT, &payload))];
    }
    let piece = |i: usize| {
        let (kind, link) = match i {
            0 => (flags::FIRST, payload.len() as u64),
            i if i + 1 < fragments => (flags::MIDDLE, lsn),
            _ => (flags::LAST | flags::COMMIT, lsn),
        };
        let bytes = [&link.to_le_bytes()[..], &payload[i * 3..i * 3 + 3]].concat();
        (lsn + i as u64, record(lsn + i as u64, tag, kind, &bytes))
    };
    (0..fragments).map(piece).collect()
}

/// What a reader is to find: stamp, tag, payload, group.
type Expected = (u64, u64, Vec<u8>, u64);

/// Writes one incarnation above `base`; returns the stamps used and adds what counts to `expected`.
fn live(craft: &mut Craft, incarnation: u32, base: u64, life: &Life, expected: &mut Vec<Expected>) -> u64 {
    let mut cuts = vec![base];
    life.0.iter().for_each(|step| cuts.push(cuts[cuts.len() - 1] + step));
    let last = cuts.len() - 1;
    let (mut lanes, mut wholes) = (BTreeMap::<u16, Vec<Piece>>::new(), Vec::new());
    for (tag, &(lane, step, early, fragments)) in life.1.iter().enumerate() {
        let list = lanes.entry(lane).or_default();
        let lsn = list.last().map_or(base, |piece| piece.lsn) + step;
        let first = list.len();
        for (lsn, bytes) in pieces(lsn, tag as u64, fragments) {
            // The first cut that covers it; what none covers may stand in any group.
            let due = cuts.partition_point(|&cut| cut < lsn).min(last);
            list.push(Piece { lsn, bytes, cut: due.saturating_sub(early).max(1) });
        }
        wholes.push(Whole { lane, tag: tag as u64, pieces: (first, list.len() - 1) });
    }
    for list in lanes.values_mut() {
        // A lane is copied from its front.
        for i in (1..list.len()).rev() {
            list[i - 1].cut = list[i - 1].cut.min(list[i].cut);
        }
    }
    let mut groups = BTreeMap::new();
    for cut in 1..=last {
        // A cut travels in as many groups as the smallest number of records of a lane asks for, up to three.
        let parts = 1 + (cuts[cut] % 3) as usize;
        for part in 0..parts {
            let header_cut = if part + 1 == parts { cuts[cut] } else { cuts[cut - 1] };
            let mut draft = craft.draft(incarnation, header_cut);
            for (&lane, list) in &lanes {
                let own: Vec<usize> = (0..list.len()).filter(|&i| list[i].cut == cut).collect();
                let (from, to) = (own.len() * part / parts, own.len() * (part + 1) / parts);
                let data: Vec<u8> = own[from..to].iter().flat_map(|&i| list[i].bytes.clone()).collect();
                groups.extend(own[from..to].iter().map(|&i| ((lane, i), craft.next)));
                draft.extent(lane, 0, data);
            }
            craft.put(&draft);
        }
    }
    for Whole { lane, tag, pieces: (first, end) } in wholes {
        let lsn = lanes[&lane][end].lsn;
        if lsn <= cuts[last] {
            expected.push((lsn, tag, payload(tag, end - first + 1), groups[&(lane, first)]));
        }
    }
    let highest = lanes.values().filter_map(|list| list.last()).map(|piece| piece.lsn).max();
    highest.unwrap_or(0).max(cuts[last])
}

fn life() -> impl Strategy<Value = Life> {
    let step = (0..4_u16, 1..12_u64, 0..3_usize, prop_oneof![4 => Just(1_usize), 1 => 2..5_usize]);
    (prop::collection::vec(0..40_u64, 1..5), prop::collection::vec(step, 0..30))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn records_come_in_the_order_of_their_stamps_and_those_that_count(lives in prop::collection::vec(life(), 1..4)) {
        let mut craft = Craft::new(256 << 10);
        let (mut base, mut expected) = (0, Vec::new());
        for (i, life) in lives.iter().enumerate() {
            base = live(&mut craft, i as u32 + 1, base, life, &mut expected);
        }
        let (scanned, recovered) = craft.recover(Rule::Sound).unwrap();
        prop_assert_eq!(scanned.next, GroupNo(craft.next));
        prop_assert!(recovered.max_lsn() <= Lsn(base));
        expected.sort();
        for from in 1..=craft.next {
            let found: Vec<_> = recovered.records(GroupNo(from)).map(|found| found.unwrap()).collect();
            prop_assert_eq!(&in_one_memory(recovered.records(GroupNo(from))), &found, "from group {}", from);
            prop_assert!(found.is_sorted_by_key(|found| found.lsn));
            prop_assert!(found.iter().all(|found| found.flags == flags::COMMIT));
            let mut found: Vec<Expected> =
                found.into_iter().map(|found| (found.lsn.0, found.tag, found.payload, found.group.0)).collect();
            found.sort();
            let expected: Vec<Expected> = expected.iter().filter(|&&(.., group)| group >= from).cloned().collect();
            prop_assert_eq!(found, expected, "from group {}", from);
        }
    }
}

/// Reads all records in the memory of one that has other values.
fn in_one_memory(mut records: RecordIter<'_>) -> Vec<LoggedRecord> {
    let used = LoggedRecord { lsn: Lsn(u64::MAX), tag: 77, flags: 0xff, payload: vec![9; 999], group: GroupNo(9999) };
    let (mut record, mut found) = (used.clone(), Vec::new());
    while records.next_into(&mut record).unwrap() {
        found.push(record.clone());
        record = LoggedRecord { payload: record.payload, ..used.clone() };
    }
    found
}

/// What is held is bounded by one cut, however long the log.
#[test]
fn groups_are_let_go_when_their_records_are_out() {
    let mut craft = Craft::new(1 << 20);
    for i in 1..200_u64 {
        // Lane 1 is always one record ahead of the cut.
        let draft = craft.draft(1, 10 * i);
        craft.put(&draft.lane(0, &[10 * i - 5]).lane(1, &[10 * i + 1]));
    }
    let (_, recovered) = craft.recover(Rule::Sound).unwrap();
    let mut records = recovered.records(GroupNo(1));
    let mut last = 0;
    while let Some(found) = records.next() {
        let lsn = found.unwrap().lsn.0;
        assert!(lsn > last);
        last = lsn;
        assert!(records.merge.held_groups() <= 2, "{} groups are held", records.merge.held_groups());
    }
    assert_eq!(last, 1985);
}

#[test]
fn fragments_of_two_lanes_with_equal_stamps_do_not_mix() {
    let mut craft = Craft::new(64 << 10);
    let fragment =
        |lsn, tag, kind, link: u64, piece: &[u8]| record(lsn, tag, kind, &[&link.to_le_bytes()[..], piece].concat());
    let mut draft = craft.draft(1, 20);
    for (lane, piece) in [(3, b'a'), (7, b'b')] {
        let first = fragment(10, u64::from(lane), flags::FIRST, 4, &[piece; 2]);
        let last = fragment(12, u64::from(lane), flags::LAST, 10, &[piece; 2]);
        draft.extent(lane, 0, [first, last].concat());
    }
    craft.put(&draft);
    let (_, recovered) = craft.recover(Rule::Sound).unwrap();
    let found: Vec<_> = recovered.records(GroupNo(1)).map(|found| found.unwrap()).collect();
    let found: Vec<_> = found.iter().map(|found| (found.lsn.0, found.tag, &found.payload[..])).collect();
    assert_eq!(found, [(12, 3, &b"aaaa"[..]), (12, 7, &b"bbbb"[..])]);
}
