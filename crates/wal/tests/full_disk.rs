//! A full disk refuses new work, leaves room for rollbacks, harms nobody who waits, and is over when there is space.
#![cfg(not(foreshore_loom))]

mod common;

use common::*;
use foreshore_base::Error;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Sim};
use foreshore_sync::NextWake;
use foreshore_wal::{BufferKind, Dep, LogOptions, Record, Session};
use std::sync::Arc;

#[test]
fn ordinary_work_stops_and_rollbacks_fit() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut tag = 0;
    let refused = loop {
        match append(&mut session, tag, &payload(tag, 3000)) {
            Ok(lsn) => log.force(lsn).unwrap(),
            Err(error) => break error,
        }
        tag += 1;
        assert!(tag < 1000, "a full disk was never noticed");
    };
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    assert!(log.poisoned().is_none());
    let ordinary = tag;
    // What is kept back takes a whole segment of rollbacks.
    let mut written = 0;
    while written < 60 << 10 {
        session.reserve_rollback(Session::cost(3000)).unwrap();
        let lsn = session.append(Record { tag, flags: 0, parts: &[&payload(tag, 3000)] }, Dep::none());
        log.force(lsn).unwrap();
        tag += 1;
        written += 4096;
        let error = session.reserve(Session::cost(20) + 3000).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    }
    // Space freed: old segments become new ones without the disk giving any.
    let keep = log.next_group();
    log.truncate(keep).unwrap();
    // Falling back to the older control slot still works, so its segments are kept until it has moved, too.
    assert!(matches!(session.reserve(Session::cost(3000)), Err(Error::DiskFull { .. })));
    log.truncate(keep).unwrap();
    for _ in 0..5 {
        let lsn = append(&mut session, tag, &payload(tag, 3000)).unwrap();
        log.force(lsn).unwrap();
        tag += 1;
    }
    drop(session);
    log.close().unwrap();
    drop(log);
    sim.clear_faults();
    let (_, recovered) = open(&fs, &small()).unwrap();
    let found = tags(&recovered);
    assert_eq!(found, (found[0]..tag).collect::<Vec<_>>());
    assert!(found[0] >= ordinary && found[0] < tag - 5, "{found:?} after {ordinary} ordinary records");
}

/// What sessions were admitted for before is not the loophole: the smallest records, each a group of its own.
#[test]
fn small_groups_of_many_sessions_do_not_use_up_what_is_kept_back() {
    for buffer in KINDS {
        let options = LogOptions { buffer, ..small() };
        let sim = Sim::new(1);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let log = fresh(&fs, &options);
        let mut sessions: Vec<_> = (0..8).map(|_| log.session().unwrap()).collect();
        while log.prepare_step() == NextWake::Now {}
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        let mut refused = 0;
        for session in &mut sessions {
            while let Ok(lsn) = append(session, 1, b"small") {
                log.force(lsn).unwrap();
            }
            refused += 1;
        }
        assert!(refused == 8 && log.poisoned().is_none(), "{buffer}");
        // And what is in the buffers still finds its place.
        log.force(log.current()).unwrap();
    }
}

/// Lanes may hold more than the ring of other buffers does.
#[test]
fn full_lanes_find_their_place_on_a_full_disk() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &LogOptions { buffer: BufferKind::Lanes, ..small() });
    let mut sessions: Vec<_> = (0..8).map(|_| log.session().unwrap()).collect();
    while log.prepare_step() == NextWake::Now {}
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    // Nobody forces, so nothing is written before all lanes are full; a lane that is full makes room by itself.
    let mut refused = 0;
    'sessions: for session in &mut sessions {
        for _ in 0..14 {
            if append(session, 1, &payload(1, 4000)).is_err() {
                refused += 1;
                continue 'sessions;
            }
        }
    }
    log.force(log.current()).unwrap();
    let error =
        (0..).find_map(|tag| append(&mut sessions[0], tag, &payload(tag, 4000)).and_then(|lsn| log.force(lsn)).err());
    assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?} after {refused}");
}

/// Segments that are to be used again are not lost where that fails: after a restart there are some that already have
/// their name, and some of old groups.
#[test]
fn a_failure_of_the_preparer_costs_no_segment() {
    let (mut failures, mut needed) = (0, None);
    // The first time without a failure.
    for at in [1000].into_iter().chain(0..12) {
        let sim = Sim::new(1);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let log = fresh(&fs, &small());
        let mut session = log.session().unwrap();
        for tag in 0..100 {
            log.force(append(&mut session, tag, &payload(tag, 3000)).unwrap()).unwrap();
        }
        // Old segments become spare ones when both slots of the control file are past them.
        let keep = log.next_group();
        (0..2).for_each(|_| log.truncate(keep).unwrap());
        drop(session);
        log.close().unwrap();
        drop(log);
        let (log, _) = open(&fs, &small()).unwrap();
        let _sessions: Vec<_> = (0..4).map(|_| log.session().unwrap()).collect();
        let segments = || fs.list(&dir()).unwrap().iter().filter(|name| name.ends_with(".seg")).count();
        let before = segments();
        sim.inject(Fault { at: sim.ops() + at, kind: FaultKind::Eio, sticky: false });
        let mut steps = 0;
        loop {
            match log.prepare_step() {
                NextWake::Now => steps += 1,
                NextWake::After(_) => failures += 1,
                NextWake::OnSignal => break,
            }
        }
        assert!(steps > 0 && segments() >= before, "{} of {before} are left after a failure at {at}", segments());
        let made = log.stats().segments_made;
        assert_eq!(made, *needed.get_or_insert(made), "one instead of one that was lost by the failure at {at}");
    }
    assert!(failures > 6, "{failures}");
}

#[test]
fn the_preparer_tries_again_when_space_is_back() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut tag = 0;
    while let Ok(lsn) = append(&mut session, tag, &payload(tag, 3000)) {
        log.force(lsn).unwrap();
        tag += 1;
    }
    assert!(matches!(log.prepare_step(), NextWake::After(_)));
    sim.clear_faults();
    append(&mut session, tag, &payload(tag, 3000)).unwrap();
    assert!(!matches!(log.prepare_step(), NextWake::After(_)));
}

#[test]
fn what_is_kept_back_ends_in_a_stop_and_not_in_a_loss() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut acked = 0;
    let error = loop {
        session.reserve_rollback(Session::cost(3000)).unwrap();
        let lsn = session.append(Record { tag: acked, flags: 0, parts: &[&payload(acked, 3000)] }, Dep::none());
        match log.force(lsn) {
            Ok(()) => acked += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Poisoned { cause } if matches!(**cause, Error::DiskFull { .. })), "{error:?}");
    assert!(acked > 30, "{acked} records in what was ready");
    drop((session, log));
    sim.clear_faults();
    let (_, recovered) = open(&fs, &small()).unwrap();
    assert_eq!(tags(&recovered), (0..acked).collect::<Vec<_>>());
}
