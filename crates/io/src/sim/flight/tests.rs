use crate::{
    File, Fs, Sim,
    sim::{Fault, FaultKind, Flight, OpNo, Persist},
};
use foreshore_base::limits::SECTOR;
use foreshore_sync::primitive::thread;
use std::{collections::BTreeSet, io::ErrorKind, sync::Arc};

const LOG: &str = "log";
/// Bytes of each write: four sectors.
const WRITE: usize = 4 * SECTOR;

/// A disk with a durable file of `writes` times `WRITE` bytes of 0xEE.
fn prepared(writes: usize) -> (Sim, Arc<dyn File>) {
    let sim = Sim::new(3);
    let file = sim.create(LOG.as_ref()).unwrap();
    sim.sync_dir("".as_ref()).unwrap();
    file.write_durable(&vec![0xEE; writes * WRITE], 0).unwrap();
    (sim, file)
}

/// Issues `writes` writes of 0, 1, 2, … side by side, each by a thread of its own, and runs `test` while they are in
/// flight. Returns what each of them was answered.
fn in_flight(
    sim: &Sim,
    file: &Arc<dyn File>,
    writes: usize,
    test: impl FnOnce(&[Flight]),
) -> Vec<Result<(), ErrorKind>> {
    sim.hold(|path| path.ends_with(LOG));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut flights = Vec::new();
        for i in 0..writes {
            threads.push(scope.spawn(move || file.write_durable(&[i as u8; WRITE], (i * WRITE) as u64)));
            flights = sim.wait_for_flights(i + 1);
        }
        test(&flights);
        sim.stop_holding();
        let answer = |error| match error {
            foreshore_base::Error::Io { source, .. } => source.kind(),
            foreshore_base::Error::DiskFull { .. } => ErrorKind::StorageFull,
            other => panic!("{other:?}"),
        };
        threads.into_iter().map(|thread| thread.join().unwrap().map_err(answer)).collect()
    })
}

/// What a crash image has of each write: its byte if it is whole, 0xEE if it is missing, 0xFF if it is torn.
fn found(sim: &Sim, policy: &Persist, seed: u64) -> Vec<u8> {
    let bytes = sim.crash_image(policy, seed).contents(LOG.as_ref()).unwrap();
    let whole = |write: &[u8]| if write.iter().all(|b| *b == write[0]) { write[0] } else { 0xFF };
    bytes.chunks(WRITE).map(whole).collect()
}

fn numbers(flights: &[Flight]) -> Vec<OpNo> {
    flights.iter().map(|flight| flight.no).collect()
}

#[test]
fn a_later_write_is_durable_before_an_earlier_one() {
    let (sim, file) = prepared(3);
    let answers = in_flight(&sim, &file, 3, |flights| {
        let expected = |i: usize| (LOG.as_ref(), (i * WRITE) as u64, WRITE);
        for (i, flight) in flights.iter().enumerate() {
            assert_eq!((flight.path.as_path(), flight.offset, flight.len), expected(i));
        }
        assert_eq!(found(&sim, &Persist::None, 0), [0xEE; 3]);
        sim.release(flights[2].no);
        assert_eq!(found(&sim, &Persist::None, 0), [0xEE, 0xEE, 2]);
        assert_eq!(sim.contents(LOG.as_ref()).unwrap()[0], 0xEE, "what is in flight cannot be read");
        sim.release(flights[0].no);
        assert_eq!(found(&sim, &Persist::None, 0), [0, 0xEE, 2]);
        assert_eq!(sim.flights(), flights[1..2]);
    });
    assert_eq!(answers, [Ok(()); 3]);
    assert_eq!(found(&sim, &Persist::None, 0), [0, 1, 2], "the last one landed when holding stopped");
}

#[test]
fn one_fails_while_the_others_succeed() {
    let (sim, file) = prepared(3);
    let answers = in_flight(&sim, &file, 3, |flights| {
        sim.release(flights[1].no);
        sim.fail(flights[0].no);
    });
    assert_eq!(answers, [Err(rustix::io::Errno::IO.kind()), Ok(()), Ok(())]);
    assert_eq!(found(&sim, &Persist::None, 0), [0xEE, 1, 2]);
    assert_eq!(found(&sim, &Persist::All, 0), [0, 1, 2], "a failed write may be there all the same");
}

#[test]
fn a_fault_of_the_issue_tells_on_release() {
    for (kind, answer, left) in [
        (FaultKind::Eio, Err(rustix::io::Errno::IO.kind()), 0xEE),
        (FaultKind::Enospc, Ok(()), 0),
        (FaultKind::Eintr, Ok(()), 0),
        (FaultKind::ShortWrite(700), Ok(()), 0),
    ] {
        let (sim, file) = prepared(2);
        sim.inject(Fault { at: sim.ops(), kind, sticky: false });
        let answers = in_flight(&sim, &file, 2, |flights| {
            let first = flights[0].no;
            sim.release(first);
            // What is interrupted or cut short is issued again, as a flight of its own.
            if matches!(kind, FaultKind::Eintr | FaultKind::ShortWrite(_)) {
                let again = &sim.wait_for_flights(2)[1];
                let done = if kind == FaultKind::Eintr { 0 } else { 700 };
                assert_eq!((again.offset, again.len), (done as u64, WRITE - done), "{kind:?}");
                sim.release(again.no);
            }
            assert_eq!(numbers(&sim.flights()), [flights[1].no]);
        });
        assert_eq!(answers, [answer, Ok(())], "{kind:?}: no space is needed where there is some");
        assert_eq!(found(&sim, &Persist::None, 0), [left, 1], "{kind:?}");
    }
}

#[test]
fn a_full_disk_fails_the_flight_that_needs_space() {
    let (sim, file) = prepared(0);
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: false });
    assert_eq!(in_flight(&sim, &file, 2, |_| ()), [Err(ErrorKind::StorageFull), Ok(())]);
    assert_eq!(found(&sim, &Persist::All, 0), [0, 1], "nothing of the first, and the file has grown over it");
}

#[test]
fn the_medium_may_have_any_part_of_what_is_in_flight() {
    let (sim, file) = prepared(4);
    in_flight(&sim, &file, 4, |flights| {
        sim.reach(flights[3].no, 0..4);
        sim.reach(flights[1].no, 1..3);
        assert_eq!(found(&sim, &Persist::None, 0), [0xEE, 0xFF, 0xEE, 3]);
        let bytes = sim.crash_image(&Persist::None, 0).contents(LOG.as_ref()).unwrap();
        let sectors: Vec<_> = bytes[WRITE..2 * WRITE].chunks(SECTOR).map(|sector| sector[0]).collect();
        assert_eq!(sectors, [0xEE, 1, 1, 0xEE]);
        assert_eq!(sim.flights(), flights, "nobody has been told");

        // Each write whole or not at all: of the three that are open, every subset turns up.
        let subsets: BTreeSet<_> = (0..200).map(|seed| found(&sim, &Persist::Whole(0.5), seed)).collect();
        assert_eq!(subsets.iter().filter(|subset| !subset.contains(&0xFF)).count(), 4, "write 1 is torn or whole");
        assert_eq!(subsets.len(), 8);
        assert!(subsets.iter().all(|subset| subset[3] == 3));
        // Sector by sector, and within sectors.
        for policy in [Persist::RandomHalf, Persist::Prefix, Persist::Torn] {
            assert!((0..50).any(|seed| found(&sim, &policy, seed)[0] == 0xFF), "{policy:?}");
        }
    });
}

#[test]
fn a_power_loss_ends_the_waits() {
    for by_fault in [false, true] {
        let (sim, file) = prepared(3);
        let answers = in_flight(&sim, &file, 2, |flights| {
            sim.release(flights[1].no);
            if by_fault {
                sim.inject(Fault { at: sim.ops(), kind: FaultKind::Crash, sticky: false });
                assert!(file.sync().is_err());
            } else {
                sim.power_off();
            }
            sim.release(flights[0].no);
        });
        assert_eq!(answers, [Err(ErrorKind::Other), Ok(())]);
        assert_eq!(found(&sim, &Persist::None, 0), [0xEE, 1, 0xEE], "nothing lands without power");
        assert_eq!(found(&sim, &Persist::All, 0), [0, 1, 0xEE]);
        assert!(sim.wait_for_flights(1).is_empty());
    }
}

#[test]
fn a_loss_at_the_issue_may_leave_the_write() {
    let (sim, file) = prepared(1);
    sim.hold(|_| true);
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Crash, sticky: false });
    assert!(file.write_durable(&[0; WRITE], 0).is_err());
    assert_eq!((found(&sim, &Persist::None, 0), found(&sim, &Persist::All, 0)), (vec![0xEE], vec![0]));
}

#[test]
fn crash_points_know_what_is_in_flight() {
    let (sim, file) = prepared(2);
    let start = sim.ops();
    in_flight(&sim, &file, 2, |flights| {
        assert_eq!(numbers(flights), [start, start + 1]);
        sim.reach(flights[0].no, 0..1);
        sim.release(flights[1].no);
    });
    let at = |op, policy| {
        let image = sim.image_at(op, &policy, 0).contents(LOG.as_ref()).unwrap();
        (image[0], image[WRITE - 1], image[WRITE])
    };
    // The issues of both, what was reached of the first, the landing of the second, that of the first.
    let none = [(0xEE, 0xEE, 0xEE), (0xEE, 0xEE, 0xEE), (0xEE, 0xEE, 0xEE), (0, 0xEE, 0xEE), (0, 0xEE, 1), (0, 0, 1)];
    let all = [(0, 0, 0xEE), (0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)];
    for (i, (none, all)) in none.into_iter().zip(all).enumerate() {
        let op = start + i as u64;
        assert_eq!((at(op, Persist::None), at(op, Persist::All)), (none, all), "operation {i}");
    }
    assert_eq!(sim.ops(), start + 5);
}

#[test]
fn writes_land_in_an_order_that_the_seed_determines() {
    let order = |seed: u64| {
        let (sim, file) = prepared(5);
        let mut order = Vec::new();
        in_flight(&sim, &file, 5, |_| {
            while let Some(flight) = sim.release_any(seed + order.len() as u64) {
                order.push(flight.offset / WRITE as u64);
            }
        });
        assert_eq!(found(&sim, &Persist::None, 0), [0, 1, 2, 3, 4]);
        order
    };
    assert_eq!(order(1), order(1));
    assert!((2..10).any(|seed| order(seed) != order(1)));
}

#[test]
fn a_lying_device_answers_and_keeps_nothing() {
    let (sim, file) = prepared(2);
    sim.set_lying(true);
    assert_eq!(in_flight(&sim, &file, 2, |_| ()), [Ok(()); 2]);
    assert_eq!(sim.contents(LOG.as_ref()).unwrap()[WRITE], 1);
    assert_eq!(found(&sim, &Persist::None, 0), [0xEE; 2]);
}

#[test]
fn only_durable_writes_to_named_files_are_held() {
    let (sim, file) = prepared(1);
    let other = sim.create("other".as_ref()).unwrap();
    sim.hold(|path| path.ends_with(LOG));
    other.write_durable(&[1; 10], 0).unwrap();
    file.write_at(&[2; WRITE], 0).unwrap();
    file.sync().unwrap();
    assert!(sim.flights().is_empty());
    // No program runs on a copy of the machine, so the copy holds no write in flight.
    let copy = sim.fork();
    copy.open(LOG.as_ref()).unwrap().write_durable(&[3; WRITE], 0).unwrap();
    assert_eq!(found(&copy, &Persist::None, 0), [3]);
}
