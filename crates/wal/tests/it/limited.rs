//! Waits for log space end with the time limit of their session.

use crate::common::*;
use foreshore_base::{Error, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_sync::{NextWake, Signal};
use foreshore_wal::{LogLimits, LogOptions, Session, SpaceServer};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(30);
/// A wait for a full disk without a limit takes ten seconds, the others take for ever.
const LONG: Duration = Duration::from_secs(8);

/// Reserves within the limit, which is too short.
fn refused(session: &mut Session, bytes: usize) -> Error {
    let began = Instant::now();
    session.limit_waits(Some(LIMIT));
    let refused = session.reserve(bytes).unwrap_err();
    assert!(LIMIT <= began.elapsed() && began.elapsed() < LONG, "{:?}: {refused:?}", began.elapsed());
    session.limit_waits(None);
    refused
}

#[test]
fn a_wait_for_the_ring_ends() {
    for buffer in KINDS.into_iter().filter(|&buffer| buffer != BufferKind::Lanes) {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let log = fresh(&fs, &LogOptions { buffer: buffer.maker(), ..small() });
        let mut others: Vec<Session> = (0..4).map(|_| log.session().unwrap()).collect();
        let mut session = log.session().unwrap();
        others.iter_mut().for_each(|other| other.limit_waits(Some(Duration::ZERO)));
        // These sessions hold the whole ring, and append nothing.
        let held: Vec<Result<()>> = others.iter_mut().map(|other| other.reserve(log.max_reserve())).collect();
        assert!(held[0].is_ok(), "{buffer}: what is free is not waited for: {held:?}");
        let error = refused(&mut session, log.max_reserve());
        assert!(matches!(error, Error::LogSpace), "{buffer}: {error:?}");
        drop(others);
        session.reserve(log.max_reserve()).unwrap();
    }
}

#[test]
fn a_wait_for_a_shared_lane_ends() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = LogOptions { buffer: None, lane_memory: 1, max_sessions: 64, ..small() };
    let log = fresh(&fs, &options);
    let mut sessions: Vec<Session> = (0..64).map(|_| log.session().unwrap()).collect();
    let mut last = sessions.pop().unwrap();
    // Each keeps the lane that it has got.
    for session in &mut sessions {
        session.limit_waits(Some(Duration::ZERO));
        session.reserve(100).ok();
    }
    let error = refused(&mut last, 100);
    assert!(matches!(error, Error::LogSpace), "{error:?}");
    drop(sessions);
    last.reserve(100).unwrap();
}

#[test]
fn a_wait_for_the_budget_ends_and_one_for_a_rollback_does_not() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    append(&mut session, 1, b"to pay for").unwrap();
    log.force(log.current()).unwrap();
    assert!(!log.slows_writers());
    log.limit_backlog(Some(LogLimits { soft: 0, hard: 1 }));
    assert!(log.slows_writers());
    for attempt in ["the first one", "the one after a refusal"] {
        let error = refused(&mut session, 100);
        assert!(matches!(error, Error::LogSpace), "{attempt}: {error:?}");
    }
    session.limit_waits(Some(Duration::ZERO));
    session.reserve_rollback(1000).unwrap();
    session.reserve_end(2000).unwrap();
}

#[test]
fn a_wait_for_a_full_disk_ends() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    while log.prepare_step() == NextWake::Now {}
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    // No thread answers its requests.
    log.serve_space(SpaceServer::Thread(Signal::new()));
    let begun = Instant::now();
    let error = loop {
        session.limit_waits(Some(LIMIT));
        match append(&mut session, 7, &payload(7, 3000)) {
            Ok(lsn) => log.force(lsn).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DiskFull { .. }) && begun.elapsed() < LONG, "{:?}: {error:?}", begun.elapsed());
    let error = refused(&mut session, 3000);
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
}
