use super::*;
use crate::visibility::readers::{About, Mark, SnapshotCost};
use foreshore_sync::Nanos;
use std::cell::Cell;
use std::time::Duration;

fn reader(readers: &Readers, csn: u64, hi: u64) -> Mark {
    let about = About::new("reader", Nanos::ZERO);
    readers.take(about, || Xid(1).into(), || Csn(csn), None::<fn() -> Csn>, || Xid(hi))
}

fn view(readers: &Readers, pins: &Pins, floor: u64) -> View {
    View::of(readers, pins, (Xid(100), [(Xid(30), Some(Csn(45)))].into()), || Csn(floor))
}

#[test]
fn without_readers_all_up_to_the_floor_is_dead_but_the_newest() {
    let view = view(&Readers::new(4), &Pins::new(1), 50);
    assert_eq!((view.horizon(), view.floor(), view.newest_reader()), (Csn(50), Csn(50), None));
    assert!(view.is_dead(Csn(1), Csn(50)));
    assert!(!view.is_dead(Csn(1), Csn(51)), "a reader may come at the floor");
}

#[test]
fn a_version_is_dead_if_no_reader_is_in_its_time() {
    let (readers, pins) = (Readers::new(4), Pins::new(1));
    let old = reader(&readers, 20, 60);
    let _young = reader(&readers, 40, 90);
    let _later = reader(&readers, 70, 95);
    let found = view(&readers, &pins, 50);
    assert_eq!((found.horizon(), found.floor(), found.newest_reader()), (Csn(20), Csn(50), Some(Csn(40))));
    assert!(found.is_dead(Csn(1), Csn(20)), "replaced by what the oldest sees");
    assert!(!found.is_dead(Csn(1), Csn(21)));
    assert!(!found.is_dead(Csn(20), Csn(21)));
    assert!(found.is_dead(Csn(21), Csn(40)));
    assert!(!found.is_dead(Csn(21), Csn(41)));
    assert!(found.is_dead(Csn(41), Csn(50)));
    readers.release(&old);
    assert!(view(&readers, &pins, 50).is_dead(Csn(1), Csn(40)));
}

/// The number that stands for a forgotten one is at or below a snapshot if and only if that snapshot sees the commit.
#[test]
fn a_forgotten_commit_says_the_same_to_every_reader() {
    let (readers, pins) = (Readers::new(4), Pins::new(1));
    let marks = [reader(&readers, 20, 60), reader(&readers, 40, 90)];
    let view = view(&readers, &pins, 50);
    for (xid, seen_by) in [(29, [true, true]), (30, [false, false]), (60, [false, true]), (95, [false, false])] {
        let csn = view.csn_of_frozen(Xid(xid)).expect("below the window");
        let seen = marks.each_ref().map(|mark| csn <= mark.csn);
        assert_eq!(seen, seen_by, "xid {xid} stands for {csn:?}");
        assert!(csn <= view.floor(), "those to come see it");
    }
    assert_eq!(view.csn_of_frozen(Xid(100)), None);
}

#[test]
fn a_killed_reader_needs_nothing_and_learns_of_it() {
    let (readers, pins) = (Readers::new(4), Pins::new(1));
    let (young, old) = (reader(&readers, 40, 90), reader(&readers, 20, 60));
    let cost = SnapshotCost { age: Duration::from_secs(5), bytes: 7 };
    assert!(readers.cancel_oldest(|_, _| None).is_none() && readers.cost(&old).is_none());
    let (csn, about, _) = readers.cancel_oldest(|csn, _| (csn == Csn(20)).then_some(cost)).expect("two read");
    assert_eq!((csn, about.label, readers.cost(&old), readers.cost(&young)), (Csn(20), "reader", Some(cost), None));
    assert!(readers.is_cancelled(&old) && !readers.is_cancelled(&young));
    assert_eq!(view(&readers, &pins, 50).horizon(), Csn(40));
    assert_eq!(readers.oldest().map(|(csn, _)| csn), Some(Csn(40)));
    readers.release(&old);
    readers.release(&young);
    assert!(readers.cancel_oldest(|_, _| Some(SnapshotCost::default())).is_none());
    assert_eq!(view(&readers, &pins, 50).horizon(), Csn(50));
}

#[test]
fn of_each_reader_it_is_judged_whether_it_is_cancelled() {
    let (readers, pins) = (Readers::new(4), Pins::new(1));
    let marks = [reader(&readers, 20, 60), reader(&readers, 30, 80), reader(&readers, 40, 90)];
    readers.release(&marks[1]);
    let cost = |csn: Csn| SnapshotCost { age: Duration::ZERO, bytes: csn.0 };
    assert_eq!(readers.cancel_each(|csn, _| (csn > Csn(20)).then(|| cost(csn))), 1, "one of them has ended");
    assert_eq!(marks.each_ref().map(|mark| readers.cost(mark)), [None, None, Some(cost(Csn(40)))]);
    assert_eq!(view(&readers, &pins, 50).horizon(), Csn(20), "an older one stays");
    assert_eq!(readers.cancel_each(|csn, _| Some(cost(csn))), 1);
    assert_eq!(view(&readers, &pins, 50).horizon(), Csn(50));
}

/// Between the check of a reader and its cancellation, its slot goes to another reader with the same snapshot.
#[test]
fn a_reader_is_judged_by_what_is_told_of_itself() {
    let readers = Readers::new(1);
    let (old, young) = (reader(&readers, 20, 60), Cell::new(None));
    let killed = readers.cancel_oldest(|csn, about| {
        assert_eq!(csn, Csn(20));
        if about.since > Nanos::ZERO {
            return None;
        }
        readers.release(&old);
        let about = About::new("reader", Nanos(1));
        let next = readers.take(about, || Xid(1).into(), || Csn(20), None::<fn() -> Csn>, || Xid(60));
        young.set(Some(next));
        Some(SnapshotCost::default())
    });
    assert!(killed.is_none() && !readers.is_cancelled(&young.take().expect("a free slot")), "{killed:?}");
}

#[test]
fn more_readers_than_fixed_slots_are_all_found_until_they_end() {
    let readers = Readers::new(2);
    let found = || {
        let mut found: Vec<_> = readers.all().map(|reader| reader.csn.0).collect();
        found.sort_unstable();
        found
    };
    // In the second round the slots are reused, in another order.
    for forwards in [true, false] {
        let mut marks: Vec<_> = (1..=40).map(|csn| reader(&readers, csn, 1)).collect();
        assert_eq!(found(), (1..=40).collect::<Vec<_>>());
        while !marks.is_empty() {
            let ended = if forwards { marks.remove(0) } else { marks.pop().expect("one") };
            readers.release(&ended);
            assert_eq!(found(), marks.iter().map(|mark| mark.csn.0).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_snapshot_of_the_latest_is_not_below_what_is_durable() {
    let readers = Readers::new(2);
    let about = About::new("", Nanos::ZERO);
    let take = |clock: u64| {
        let mark = readers.take(about, || Xid(1).into(), || Csn(30), Some(|| Csn(clock)), || Xid(1));
        readers.release(&mark);
        mark.csn
    };
    assert_eq!((take(20), take(40)), (Csn(30), Csn(40)));
}

#[test]
fn a_pin_holds_the_horizon_or_moves_up_to_it() {
    let (readers, pins) = (Readers::new(1), Pins::new(3));
    assert_eq!(view(&readers, &pins, 50).horizon(), Csn(50));
    assert_eq!(pins.pin(2, Csn(20)), Csn(50), "what was replaced up to 50 may be gone");
    assert_eq!(view(&readers, &pins, 80).horizon(), Csn(50));
    assert_eq!(pins.pin(0, Csn(50)), Csn(80), "80 was announced");
    pins.unpin(2);
    assert_eq!(view(&readers, &pins, 90).horizon(), Csn(80));
    pins.unpin(0);
    assert_eq!(view(&readers, &pins, 90).horizon(), Csn(90));
}
