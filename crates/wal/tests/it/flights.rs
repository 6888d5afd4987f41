//! Several groups in flight on a simulated disk. A test chooses the order in which they reach the medium and land. The
//! durable LSN moves in the order of groups, and a restart finds the groups up to the first that did not land.

use crate::common::flights::{BUFFERS, DEPTH, Flights, LINKS, ORDERS, deep, fail_in, fs, land_in};
use crate::common::*;
use foreshore_base::{Error, GroupNo};
use foreshore_io::Sim;
use foreshore_io::sim::Persist;
use foreshore_wal::Log;

/// The part of a group in flight that is on the medium when power is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Front,
    Back,
    All,
}

/// Opens `image`, and returns the links that the start found, and the log.
fn start(image: &Sim, flights: &Flights, context: &str) -> (u64, Log) {
    let options = deep(BUFFERS[0]);
    let (log, recovered) = open(&fs(image), &options).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    (flights.found(&recovered), log)
}

/// Checks that the links found by a start stay, and that the others never come back, through two further power losses.
fn goes_on(image: &Sim, log: Log, found: u64, flights: &Flights, context: &str) {
    let before = image.crash_image(&Persist::None, 1);
    assert_eq!(start(&before, flights, context).0, found, "{context}: believed, then lost");
    // Groups of another length than those that were lost.
    let mut session = log.session().unwrap();
    for tag in 1000..1006 {
        let lsn = append(&mut session, tag, &payload(tag, 6000)).unwrap();
        log.force(lsn).unwrap();
        let (_, recovered) = open(&fs(&image.crash_image(&Persist::None, 2)), &deep(BUFFERS[1])).unwrap();
        let expected: Vec<_> = (0..found).chain(1000..=tag).collect();
        assert_eq!(tags(&recovered), expected, "{context}, then {tag}");
    }
}

/// T3.
#[test]
fn a_crash_at_any_operation_leaves_a_front_of_the_chain() {
    for (buffer, seed) in BUFFERS.into_iter().flat_map(|buffer| (1..4).map(move |seed| (buffer, seed))) {
        let mut flights = Flights::new(buffer, seed, 1);
        let (begin, mut random) = (flights.sim.ops(), seed);
        // By operation: the groups that were durable, and the groups that had been issued.
        let mut history = vec![(begin, 1, 1)];
        while flights.groups() < 40 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            if flights.in_flight() == 0 || (flights.has_room() && random >> 63 == 0) {
                flights.fly();
            } else {
                flights.land_any(random >> 8);
            }
            history.push((flights.sim.ops(), flights.durable(), flights.groups()));
        }
        assert!(history.iter().any(|&(_, durable, sent)| sent - durable == DEPTH as u64), "never {DEPTH} in flight");
        let mut points = flights.sim.crash_points();
        let mut between = 0;
        loop {
            let op = points.op();
            if op >= begin {
                let durable = history.iter().take_while(|&&(at, ..)| at <= op).last().expect("the first").1;
                let sent = history.iter().find(|&&(at, ..)| at > op).map_or(flights.groups(), |&(.., sent)| sent);
                for policy in Persist::ALL.into_iter().chain([Persist::Whole(0.5)]) {
                    let context = format!("{buffer}, seed {seed}, operation {op}, {policy:?}");
                    let found = start(&points.image(&policy, op), &flights, &context).0;
                    let (least, most) = (durable * LINKS, sent * LINKS);
                    assert!((least..=most).contains(&found), "{context}: {found} of {least} to {most}");
                    between += u64::from(least < found && found < most);
                }
            }
            if !points.advance() {
                break;
            }
        }
        assert!(between > 20, "a start found more than was promised and less than was sent {between} times only");
        flights.end();
    }
}

/// T5.
#[test]
fn durable_moves_in_the_order_of_groups_whatever_lands_first() {
    for buffer in BUFFERS {
        ORDERS.into_iter().for_each(|order| land_in(buffer, order));
    }
}

/// T6. With different numbers of groups before, so that those in flight lie in one segment or in two.
#[test]
fn groups_behind_one_that_is_lost_or_torn_are_cut_off() {
    const LEFT: [Left; 4] = [Left::Nothing, Left::Front, Left::Back, Left::All];
    for (buffer, before) in BUFFERS.into_iter().flat_map(|buffer| [1, 3, 4].map(|before| (buffer, before))) {
        for i in 0..LEFT.len().pow(DEPTH as u32) {
            let lefts: Vec<_> = (0..DEPTH as u32).map(|group| LEFT[i / LEFT.len().pow(group) % LEFT.len()]).collect();
            let context = format!("{buffer}, {before} before, {lefts:?}");
            let mut flights = Flights::new(buffer, 6, before);
            (0..DEPTH).for_each(|_| flights.fly());
            let image = flights.crash_with(|nth, sectors| match lefts[nth] {
                Left::Nothing => 0..0,
                Left::Front => 0..sectors / 2,
                Left::Back => sectors / 3..sectors,
                Left::All => 0..sectors,
            });
            let whole = lefts.iter().take_while(|&&left| left == Left::All).count() as u64;
            let (found, log) = start(&image, &flights, &context);
            assert_eq!(found, (before + whole) * LINKS, "{context}");
            goes_on(&image, log, found, &flights, &context);
            flights.end();
        }
    }
}

/// T7. The disk reports a write as durable and loses it. A later group that confirms the lost one proves the loss.
#[test]
fn a_lost_group_that_was_acknowledged_is_refused_where_a_later_one_knows_of_it() {
    for (buffer, lost) in BUFFERS.into_iter().flat_map(|buffer| (0..DEPTH).map(move |lost| (buffer, lost))) {
        let mut flights = Flights::new(buffer, 7, 2);
        (0..DEPTH).for_each(|_| flights.fly());
        for nth in 0..DEPTH {
            flights.sim.set_lying(nth == lost);
            flights.land(0);
        }
        flights.sim.set_lying(false);
        assert_eq!(flights.durable(), 2 + DEPTH as u64, "all are acknowledged");
        // The groups beside it were sealed before it landed and do not confirm it, so the loss looks like any torn end.
        let context = format!("{buffer}, group {lost}");
        let unknown = flights.sim.crash_image(&Persist::None, 1);
        assert_eq!(start(&unknown, &flights, &context).0, (2 + lost as u64) * LINKS, "{context}");
        flights.fly();
        flights.land(0);
        let known = flights.sim.crash_image(&Persist::None, 1);
        let ops = known.ops();
        match open(&fs(&known), &deep(buffer)) {
            Err(Error::LostLog { missing, .. }) => assert_eq!(missing, GroupNo(3 + lost as u64), "{context}"),
            other => panic!("{context}: {other:?}"),
        }
        assert_eq!(known.ops(), ops, "a refused log is not written to");
        flights.end();
    }
}

/// T8.
#[test]
fn a_failed_write_ends_acknowledgement_whatever_lands_later() {
    for (buffer, order) in BUFFERS.into_iter().flat_map(|buffer| ORDERS.map(|order| (buffer, order))) {
        for failing in 0..DEPTH {
            let context = format!("{buffer}, {order:?}, group {failing} fails");
            let (flights, acked) = fail_in(buffer, order, failing);
            // Groups that were not acknowledged may exist nevertheless, up to the one that failed.
            let most = (1 + failing as u64) * LINKS;
            for policy in [Persist::None, Persist::All, Persist::Torn] {
                let image = flights.sim.crash_image(&policy, 3);
                let (found, log) = start(&image, &flights, &context);
                let most = if policy == Persist::None { most } else { flights.groups() * LINKS };
                assert!((acked * LINKS..=most).contains(&found), "{context}, {policy:?}: {found}");
                goes_on(&image, log, found, &flights, &context);
            }
            flights.end();
        }
    }
}
