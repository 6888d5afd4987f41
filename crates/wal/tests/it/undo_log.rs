//! The account of log space for rollbacks: charged space is on the disk, and no other session gets it.

use crate::common::*;
use foreshore_base::Error;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Sim};
use foreshore_sync::{NextWake, rmw};
use foreshore_wal::{Dep, Log, Record, Session, undo_log_cost};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const PAYLOAD: usize = 3000;
const COUNT: u64 = 400;

fn one(session: &mut Session, tag: u64) {
    session.append(Record { tag, flags: 0, parts: &[&payload(tag, PAYLOAD)] }, Dep::none());
}

/// Charges `COUNT` compensations, fills the disk, and lets another session log until it is refused.
fn charged(sim: &Sim) -> (Log, Session, u64) {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    for _ in 0..COUNT {
        let cost = undo_log_cost(Session::cost(PAYLOAD));
        session.reserve_undo_log(cost).unwrap();
        session.charge_undo_log(cost);
    }
    while log.prepare_step() == NextWake::Now {}
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut other = log.session().unwrap();
    let mut tag = 0;
    let refused = loop {
        match append(&mut other, tag, &payload(tag, PAYLOAD)) {
            Ok(lsn) => log.force(lsn).unwrap(),
            Err(error) => break error,
        }
        tag += 1;
    };
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    assert!(matches!(other.reserve_undo_log(1 << 20), Err(Error::DiskFull { .. })), "nor is it granted twice");
    (log, session, tag)
}

#[test]
fn compensations_find_the_log_that_they_are_charged_for() {
    let sim = Sim::new(1);
    let (log, mut session, mut tag) = charged(&sim);
    for _ in 0..COUNT {
        session.reserve_rollback(Session::cost(PAYLOAD)).unwrap();
        one(&mut session, tag);
        session.pay_undo_log(Session::cost(PAYLOAD) as u64);
        tag += 1;
    }
    session.reserve_end(Session::cost(8)).unwrap();
    session.end_undo_log();
    log.force(log.current()).unwrap();
    assert!(log.poisoned().is_none());
    assert_eq!(session.undo_log(), 0);
}

/// The prepared segments are there after a restart, which repeats the last group and goes on with the compensations.
#[test]
fn a_restart_on_a_full_disk_finds_what_was_charged_before() {
    let sim = Sim::new(2);
    let (log, session, mut tag) = charged(&sim);
    drop((session, log));
    for round in 0..3 {
        let sim = sim.crash_image(&Persist::All, round);
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let (log, _) = open(&fs, &small()).unwrap();
        let mut session = log.session().unwrap();
        for _ in 0..COUNT {
            session.reserve_rollback(Session::cost(PAYLOAD)).unwrap();
            one(&mut session, tag);
            tag += 1;
        }
        session.reserve_rollback(16 << 10).unwrap();
        log.force(log.current()).unwrap();
        assert!(log.poisoned().is_none(), "round {round}");
    }
}

#[test]
fn what_is_given_back_goes_to_others() {
    let sim = Sim::new(3);
    let (log, mut session, tag) = charged(&sim);
    let mut other = log.session().unwrap();
    assert!(append(&mut other, tag, &payload(tag, PAYLOAD)).is_err());
    session.end_undo_log();
    for tag in tag..tag + 100 {
        let lsn = append(&mut other, tag, &payload(tag, PAYLOAD)).unwrap();
        log.force(lsn).unwrap();
    }
}

/// Sessions take space from the account in blocks and keep one, so that small transactions change nothing shared.
#[test]
fn small_transactions_change_nothing_shared() {
    let fs: Arc<dyn Fs> = Arc::new(Sim::new(4));
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    let transaction = |session: &mut Session| {
        for _ in 0..4 {
            session.reserve_undo_log(16 << 10).unwrap();
            session.charge_undo_log(500);
        }
        session.pay_undo_log(500);
        session.lower_undo_log(500);
        session.end_undo_log();
    };
    transaction(&mut session);
    let before = rmw::counted();
    (0..100).for_each(|_| transaction(&mut session));
    assert_eq!(rmw::counted(), before);
    // A large one takes many at once and gives them back.
    session.reserve_undo_log(400 << 10).unwrap();
    session.charge_undo_log(400 << 10);
    session.end_undo_log();
    assert_eq!(rmw::counted(), before + 2);
}

/// A session that the full disk refuses waits for another one that is at work and returns its space.
#[test]
fn a_refused_session_waits_for_space_that_another_one_gives_back() {
    let sim = Sim::new(5);
    let (log, mut session, mut tag) = charged(&sim);
    let mut other = log.session().unwrap();
    thread::scope(|scope| {
        let (asks, asked) = mpsc::channel();
        let refused = scope.spawn(move || {
            asks.send(()).unwrap();
            other.reserve_undo_log(400 << 10)
        });
        asked.recv().unwrap();
        // The other session is at work: it logs compensations, each in a group of its own.
        for _ in 0..COUNT / 2 {
            session.reserve_rollback(Session::cost(PAYLOAD)).unwrap();
            one(&mut session, tag);
            session.pay_undo_log(Session::cost(PAYLOAD) as u64);
            tag += 1;
            log.force(log.current()).unwrap();
        }
        session.end_undo_log();
        refused.join().unwrap().unwrap();
    });
}

/// An idle session returns no space, and sessions that wait for each other do not wait for ever.
#[test]
fn a_refused_session_does_not_wait_for_one_that_is_left_open() {
    let sim = Sim::new(6);
    let (log, session, _) = charged(&sim);
    let mut others = [log.session().unwrap(), log.session().unwrap()];
    let began = std::time::Instant::now();
    for other in &mut others {
        assert!(matches!(other.reserve_undo_log(400 << 10), Err(Error::DiskFull { .. })));
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "it has not waited to the end");
    drop(session);
}

/// It does not even ask idle sessions for their blocks, and takes what is there.
#[test]
fn a_request_that_does_not_wait_is_refused_until_space_is_there() {
    let sim = Sim::new(8);
    let (log, mut session, _) = charged(&sim);
    let asked = Arc::new(Mutex::new(0));
    log.on_shortage({
        let asked = Arc::clone(&asked);
        move || {
            *asked.lock().unwrap() += 1;
            0
        }
    });
    let mut other = log.session().unwrap();
    assert!(!other.try_reserve_undo_log(400 << 10).unwrap());
    assert_eq!(*asked.lock().unwrap(), 0);
    assert!(matches!(other.reserve_undo_log(400 << 10), Err(Error::DiskFull { .. })));
    assert!(*asked.lock().unwrap() > 0);
    session.end_undo_log();
    assert!(other.try_reserve_undo_log(400 << 10).unwrap());
    other.charge_undo_log(400 << 10);
    assert!(matches!(session.try_reserve_undo_log(2 << 20), Ok(false)), "nor is it granted twice");
}

/// A refused session takes the blocks that idle sessions keep for later.
#[test]
fn a_refused_session_takes_what_idle_ones_keep() {
    let sim = Sim::new(7);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    let mut sessions: Vec<Session> = (0..7).map(|_| log.session().unwrap()).collect();
    for session in &mut sessions {
        session.reserve_undo_log(1).unwrap();
    }
    while log.prepare_step() == NextWake::Now {}
    sessions.iter_mut().for_each(Session::end_undo_log);
    while log.prepare_step() == NextWake::Now {}
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut other = log.session().unwrap();
    while other.reserve_undo_log(1 << 15).is_ok() {
        other.charge_undo_log(1 << 15);
    }
    let idle = Mutex::new(sessions);
    log.on_shortage(move || idle.lock().unwrap().iter_mut().map(Session::take_idle_undo_log).sum());
    for _ in 0..7 {
        other.reserve_undo_log(1 << 15).unwrap();
        other.charge_undo_log(1 << 15);
    }
}
