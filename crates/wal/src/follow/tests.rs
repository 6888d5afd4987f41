//! Crafted logs that are followed while they grow, break and are truncated.

use super::*;
use crate::format::{CtlSlot, FIRST_GROUP, SegmentHeader};
use crate::scan::tests::craft::Craft;
use foreshore_base::Lsn;
use foreshore_io::{File, FsLayer};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};

const SIZE: u64 = 64 << 10;

fn follow(craft: &Craft, from: u64) -> Result<Follower> {
    let Home { fs, dir, uuid } = &craft.home;
    Follower::open(fs, dir, *uuid, GroupNo(from))
}

/// Returns the stamps of all records up to the present end.
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
fn a_group_whose_segment_a_start_has_dropped_is_reported() {
    let mut craft = Craft::new(SIZE);
    let mut follower = follow(&craft, 0).unwrap().unconfirmed();
    for i in 1.. {
        group(&mut craft, 1, 10 * i, &[10 * i]);
        assert_eq!(read(&mut follower), [10 * i]);
        if craft.segment == 2 {
            break;
        }
    }
    let last = craft.next - 1;
    // The file stays as it was for a reader that has it open.
    craft.home.fs.remove(&craft.home.segment_path(2)).unwrap();
    match follower.read() {
        Err(Error::LogRetracted { group, .. }) => assert_eq!(group, GroupNo(last)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_that_are_kept_only_where_a_start_has_repeated_them_are_found() {
    let mut craft = Craft::new(SIZE);
    (1..4).for_each(|i| group(&mut craft, 1, 10 * i, &[10 * i]));
    let (mut follower, mut hasty) = (follow(&craft, 0).unwrap(), follow(&craft, 0).unwrap().unconfirmed());
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![10, 20], vec![10, 20, 30]));
    // A start repeats the last two groups in the next segment, and the first one is given up.
    let mut groups = vec![0; 3 * BLOCK];
    craft.file(1).read_at(&mut groups, FIRST_GROUP).unwrap();
    let Decoded::Header(second, _) = GroupHeader::decode(&groups[BLOCK..]) else { panic!("a group") };
    craft.at = SIZE;
    let (segment, at) = craft.place(2 * BLOCK as u64);
    assert_eq!((segment, at), (2, FIRST_GROUP));
    craft.file(2).write_at(&groups[BLOCK..], at).unwrap();
    let mut control = Control::open(&craft.home).unwrap();
    control.renew(Incarnation(2)).unwrap();
    let slot = CtlSlot { first: second.group, segment: 2, prev_crc: second.prev_crc, ..control.newest() };
    (0..2).for_each(|_| control.advance(slot).unwrap());
    craft.home.fs.remove(&craft.home.segment_path(1)).unwrap();
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![], vec![]));
    (4..6).for_each(|i| group(&mut craft, 2, 10 * i, &[10 * i]));
    assert_eq!((read(&mut follower), read(&mut hasty)), (vec![30, 40], vec![40, 50]));
}

/// A file system on which something happens before a file is opened for the so-many-eth time.
struct Meddled {
    inner: Arc<dyn Fs>,
    opens: AtomicU64,
    at: u64,
    meddle: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Meddled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meddled").field("at", &self.at).finish_non_exhaustive()
    }
}

impl FsLayer for Meddled {
    fn below(&self) -> &dyn Fs {
        &*self.inner
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.opens.fetch_add(1, Ordering::Relaxed) == self.at {
            (self.meddle)();
        }
        self.inner.open(path)
    }
}

/// Truncates the segments before that of `slot`, and reuses their files for later segments.
fn recycle(home: &Home, slot: CtlSlot) {
    let mut control = Control::open(home).unwrap();
    (0..2).for_each(|_| control.advance(slot).unwrap());
    for number in 1..slot.segment {
        let (old, new) = (home.segment_path(number), home.segment_path(100 + number));
        let header = SegmentHeader { uuid: home.uuid, number: 100 + number, size: SIZE }.encode();
        home.fs.open(&old).unwrap().write_at(&header, 0).unwrap();
        home.fs.rename(&old, &new).unwrap();
    }
}

#[test]
fn truncation_at_any_moment_is_reported_as_such() {
    let (mut whole, mut cut, mut at) = (0, 0, 0);
    while whole < 3 {
        let mut craft = Craft::new(SIZE);
        let mut slot = Control::open(&craft.home).unwrap().newest();
        for i in 1..40 {
            let (next, prev_crc) = (craft.next, craft.prev_crc);
            group(&mut craft, 1, 10 * i, &[10 * i]);
            if craft.segment > slot.segment {
                slot = CtlSlot { first: GroupNo(next), segment: craft.segment, prev_crc, ..slot };
            }
        }
        assert_eq!(slot.segment, 3);
        let Home { fs: inner, dir, uuid } = craft.home.clone();
        let home = craft.home.clone();
        let meddle = Box::new(move || recycle(&home, slot));
        let fs: Arc<dyn Fs> = Arc::new(Meddled { inner, opens: AtomicU64::new(0), at, meddle });
        let mut read = Vec::new();
        let outcome = Follower::open(&fs, &dir, uuid, GroupNo::ZERO).and_then(|mut follower| {
            while let Some(record) = follower.read()? {
                read.push(record.lsn.0);
            }
            Ok(())
        });
        let front = read.first().is_none_or(|&first| first == 10 || first == 10 * slot.first.0);
        assert!(front && read.windows(2).all(|two| two[1] == two[0] + 10), "open {at}: {read:?}");
        match outcome {
            Ok(()) => assert_eq!(read.last(), Some(&380), "open {at}"),
            Err(Error::LogTruncated { first, .. }) if first == slot.first => cut += 1,
            Err(other) => panic!("open {at}: {other:?}"),
        }
        // All opens have been met when a follower ends before.
        whole += u64::from(read.len() == 38);
        at += 1;
    }
    assert!(cut > 0 && at > 10, "{cut} of {at}");
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

/// Searches for holes become rare, what a search has found stays.
#[test]
fn what_comes_behind_a_hole_shows_however_long_the_log_was_idle() {
    let mut craft = Craft::new(SIZE);
    (1..3).for_each(|i| group(&mut craft, 1, 10 * i, &[10 * i]));
    let mut follower = follow(&craft, 0).unwrap();
    let mut second = vec![0; BLOCK];
    craft.file(1).read_at(&mut second, FIRST_GROUP + BLOCK as u64).unwrap();
    // A torn group, and behind it what a start repeats.
    craft.at += BLOCK as u64;
    let at = craft.place(BLOCK as u64).1;
    craft.file(1).write_at(&second, at).unwrap();
    Control::open(&craft.home).unwrap().renew(Incarnation(2)).unwrap();
    assert_eq!(read(&mut follower), [10]);
    (0..1000).for_each(|_| assert_eq!(read(&mut follower), []));
    group(&mut craft, 2, 30, &[30]);
    assert_eq!(read(&mut follower), [20]);
    group(&mut craft, 2, 40, &[40]);
    assert_eq!(read(&mut follower), [30]);
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
