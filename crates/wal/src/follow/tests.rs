//! Logs made by hand, followed while they grow, break and are given up.

use super::*;
use crate::format::CtlSlot;
use crate::scan::craft::Craft;
use foreshore_base::Lsn;

const SIZE: u64 = 64 << 10;

fn follow(craft: &Craft, from: u64) -> Result<Follower> {
    let Home { fs, dir, uuid } = &craft.home;
    Follower::open(fs, dir, *uuid, GroupNo(from))
}

/// The stamps of everything there is to read.
fn read(follower: &mut Follower) -> Vec<u64> {
    std::iter::from_fn(|| follower.read().unwrap()).map(|record| record.lsn.0).collect()
}

fn group(craft: &mut Craft, incarnation: u32, cut: u64, lsns: &[u64]) {
    let draft = craft.draft(incarnation, cut).lane(0, lsns);
    craft.put(&draft);
}

#[test]
fn a_group_shows_when_a_later_one_confirms_it() {
    let mut craft = Craft::new(SIZE);
    let (mut follower, mut hasty) = (follow(&craft, 0).unwrap(), follow(&craft, 0).unwrap().unconfirmed());
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![], vec![]));
    group(&mut craft, 1, 10, &[3, 10]);
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![], vec![3, 10]));
    group(&mut craft, 1, 20, &[11]);
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![3, 10], vec![11]));
    // A group that confirms nothing new.
    let mut draft = craft.draft(1, 30).lane(0, &[25, 30]);
    draft.header.acked_upto = GroupNo(1);
    craft.put(&draft);
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![], vec![25, 30]));
    group(&mut craft, 1, 30, &[]);
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![11, 25, 30], vec![]));
    assert_eq!((follower.resume_at(), hasty.resume_at()), (GroupNo(4), GroupNo(5)));
}

#[test]
fn records_above_the_cut_wait_for_the_next_one_or_are_forgotten() {
    let mut craft = Craft::new(SIZE);
    let mut follower = follow(&craft, 0).unwrap().unconfirmed();
    group(&mut craft, 1, 10, &[5, 12]);
    assert_eq!(read(&mut follower), [5]);
    assert_eq!(follower.resume_at(), GroupNo(1));
    let draft = craft.draft(1, 12).lane(1, &[11, 15]);
    craft.put(&draft);
    assert_eq!(read(&mut follower), [11, 12]);
    // A start drops 15; what comes later passes its stamp.
    group(&mut craft, 2, 30, &[20]);
    assert_eq!(read(&mut follower), [20]);
    assert_eq!(follower.resume_at(), GroupNo(4));
}

#[test]
fn a_later_group_on_disk_before_an_earlier_one_waits_for_it() {
    let mut craft = Craft::new(SIZE);
    let mut follower = follow(&craft, 0).unwrap().unconfirmed();
    let (first, crc) = craft.draft(1, 10).lane(0, &[10]).seal();
    (craft.next, craft.prev_crc) = (2, crc);
    craft.at += first.len() as u64;
    group(&mut craft, 1, 20, &[20]);
    assert_eq!(read(&mut follower), []);
    craft.file(1).write_at(&first, FIRST_GROUP).unwrap();
    assert_eq!(read(&mut follower), [10, 20]);
}

#[test]
fn groups_that_a_start_replaces_are_read_anew_or_reported() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 10, &[10]);
    let fork = (craft.at, craft.next, craft.prev_crc);
    group(&mut craft, 1, 20, &[20]);
    let (mut follower, mut hasty) = (follow(&craft, 0).unwrap(), follow(&craft, 0).unwrap().unconfirmed());
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![10], vec![10, 20]));
    // The second group was never whole on the medium; a start put another one in its place.
    (craft.at, craft.next, craft.prev_crc) = fork;
    group(&mut craft, 2, 30, &[25]);
    group(&mut craft, 2, 40, &[35]);
    assert_eq!(read(&mut follower), [25]);
    assert!(matches!(hasty.read(), Err(Error::LogRetracted { group: GroupNo(2), .. })));
}

#[test]
fn repeated_groups_and_holes_are_passed_over() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 10, &[10]);
    let (again, place) = ((craft.next, craft.prev_crc), craft.at);
    group(&mut craft, 1, 20, &[20]);
    let mut second = vec![0; BLOCK];
    craft.file(1).read_at(&mut second, place).unwrap();
    let mut follower = follow(&craft, 0).unwrap();
    assert_eq!(read(&mut follower), [10]);
    // A start repeats the last group, and the original vanishes.
    let at = craft.place(BLOCK as u64).1;
    craft.file(1).write_at(&second, at).unwrap();
    Control::open(&craft.home).unwrap().renew(Incarnation(2)).unwrap();
    assert_eq!(read(&mut follower), []);
    craft.file(1).write_at(&vec![0xee; BLOCK], place).unwrap();
    group(&mut craft, 2, 30, &[30]);
    group(&mut craft, 2, 40, &[40]);
    // A hole is searched for at the first look after a start, and then now and again.
    let later: Vec<u64> = (0..2).flat_map(|_| read(&mut follower)).collect();
    assert_eq!(later, [20, 30]);
    assert_eq!(read(&mut follow(&craft, 0).unwrap()), [10, 20, 30]);
    assert_eq!(read(&mut follow(&craft, again.0).unwrap()), [20, 30]);
}

#[test]
fn a_log_given_up_under_a_follower_is_reported() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 10, &[10]);
    let mut follower = follow(&craft, 0).unwrap();
    let mut starts = Vec::new();
    for i in 2..40 {
        let (next, prev_crc) = (craft.next, craft.prev_crc);
        group(&mut craft, 1, 10 * i, &[10 * i]);
        if craft.at == FIRST_GROUP + BLOCK as u64 {
            starts.push(CtlSlot {
                uuid: craft.home.uuid,
                incarnation: Incarnation(1),
                seq: 0,
                first: GroupNo(next),
                segment: craft.segment,
                prev_crc,
            });
        }
    }
    let mut late = follow(&craft, 0).unwrap();
    let [.., slot] = starts[..] else { panic!("no second segment") };
    Control::open(&craft.home).unwrap().advance(slot).unwrap();
    for number in 1..slot.segment {
        craft.home.fs.remove(&craft.home.segment_path(number)).unwrap();
    }
    let wanted = |result: Result<_>| match result {
        Err(Error::LogTruncated { wanted, first, .. }) if first == slot.first => wanted.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(wanted(follow(&craft, 1).map(drop)), 1);
    // What is open is read to its end.
    for follower in [&mut follower, &mut late] {
        let mut count = 0;
        let end = loop {
            match follower.read() {
                Ok(Some(_)) => count += 1,
                Ok(None) => panic!("the end was read as the end of the log"),
                Err(error) => break Err::<(), _>(error),
            }
        };
        // The last group of a segment is confirmed by the next one.
        assert_eq!((count, wanted(end)), (14, 15));
    }
    let mut rest = follow(&craft, 0).unwrap();
    assert_eq!(read(&mut rest), (slot.first.0..39).map(|i| 10 * i).collect::<Vec<_>>());
    assert!(matches!(follow(&craft, 1), Err(Error::LogTruncated { wanted: GroupNo(1), .. })));
    // A segment that was used again under another number.
    let mut stuck = follow(&craft, 0).unwrap();
    let next = CtlSlot { first: GroupNo(100), segment: slot.segment + 1, ..slot };
    craft.file(slot.segment).write_at(&vec![7; SIZE as usize], 0).unwrap();
    Control::open(&craft.home).unwrap().advance(next).unwrap();
    assert!(matches!(stuck.read(), Err(Error::LogTruncated { first: GroupNo(100), .. })));
}

#[test]
fn a_confirmed_group_that_cannot_be_read_is_lost() {
    let mut craft = Craft::new(SIZE);
    (1..6).for_each(|i| group(&mut craft, 1, 10 * i, &[10 * i]));
    let mut follower = follow(&craft, 0).unwrap();
    assert_eq!(follower.read().unwrap().map(|record| record.lsn), Some(Lsn(10)));
    follower.confirmed = GroupNo(4);
    craft.file(1).write_at(&[9], FIRST_GROUP + BLOCK as u64 + 200).unwrap();
    assert!(matches!(follower.read(), Err(Error::LostLog { missing: GroupNo(2), .. })));
}
