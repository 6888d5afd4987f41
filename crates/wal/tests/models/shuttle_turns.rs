//! More sessions than lanes: late sessions share lanes, one at a time, under random schedules. Every record is found
//! once and in order, and no thread waits for ever.

use crate::common::*;
use foreshore_base::{Error, Lsn};
use foreshore_io::{Fs, Mem};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_wal::{Dep, Log, LogOptions, LoggedRecord, Record, Session, flags};
use std::sync::Arc;

const ITERATIONS: usize = 300;
/// Four lanes: three for sessions of their own, one that the other two share.
const SESSIONS: u64 = 5;
const OPERATIONS: u64 = 4;
/// Records of a session. A lane holds some twenty.
const SIZE: usize = 3000;

/// Does one operation of a transaction whose last record is at `before`: reserves, appends two records, and releases
/// the lane.
fn operation(log: &Log, session: &mut Session, tag: u64, before: Lsn) -> Lsn {
    session.reserve(2 * Session::cost(SIZE)).expect("a reservation");
    let append = |session: &mut Session, tag: u64, flags, dep| {
        let body = payload(tag, SIZE);
        session.append(Record { tag, flags, parts: &[&body] }, Dep::none().transaction(dep))
    };
    let first = append(session, tag, 0, before);
    let second = append(session, tag + 1, flags::COMMIT, first);
    assert!(before < first && first < second, "whatever lanes they were in");
    session.release();
    if tag.is_multiple_of(3) {
        log.force(second).expect("a force");
    }
    second
}

fn take_turns() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = LogOptions { max_sessions: SESSIONS as usize, lane_memory: 256 << 10, ..small() };
    let log = fresh(&fs, &options);
    let sessions: Vec<_> = (0..SESSIONS).map(|number| (number, log.session().expect("a session"))).collect();
    let threads: Vec<_> = sessions
        .into_iter()
        .map(|(number, mut session)| {
            let log = log.clone();
            thread::spawn(move || {
                let tags = (0..OPERATIONS).map(|n| 100 * number + 2 * n);
                tags.fold(Lsn::ZERO, |last, tag| operation(&log, &mut session, tag, last))
            })
        })
        .collect();
    let last = threads.into_iter().map(|thread| thread.join().expect("a session")).max().expect("some");
    log.force(last).expect("a force");
    assert_eq!(log.stats().buffer_bytes, 256 << 10);
    log.close().expect("a close");
    drop(log);
    let found = all(&open(&fs, &options).expect("a log").1);
    for number in 0..SESSIONS {
        let own = |record: &&LoggedRecord| record.tag / 100 == number;
        let tags: Vec<_> = found.iter().filter(own).map(|record| record.tag - 100 * number).collect();
        assert_eq!(tags, (0..2 * OPERATIONS).collect::<Vec<_>>(), "records of session {number}");
    }
    assert!(found.iter().all(|record| record.payload == payload(record.tag, SIZE)), "records are whole");
}

#[test]
fn sessions_take_turns_in_a_lane() {
    shuttle(ITERATIONS, take_turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_release_of_a_lane_wakes_the_next_waiter() {
    shuttle_mutated("lanes: a lane is released without a notification", ITERATIONS, take_turns);
}

/// Three sessions share one lane when the log stops. Each gets the error, also the waiters for the lane: a session that
/// releases the lane wakes one of them.
fn stop_beside_turns() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = LogOptions { max_sessions: SESSIONS as usize + 1, lane_memory: 256 << 10, ..small() };
    let log = fresh(&fs, &options);
    let sessions: Vec<_> = (0..SESSIONS + 1).map(|_| log.session().expect("a session")).collect();
    let threads: Vec<_> = sessions
        .into_iter()
        .skip(3)
        .map(|mut session| {
            thread::spawn(move || {
                let body = payload(1, SIZE);
                let stopped = (0..12).any(|_| {
                    let reserved = session.reserve(Session::cost(SIZE));
                    if reserved.is_ok() {
                        session.append(Record { tag: 1, flags: 0, parts: &[&body] }, Dep::none());
                        session.release();
                    }
                    reserved.is_err()
                });
                // The session is kept, like that of a transaction that has not ended.
                (session, stopped)
            })
        })
        .collect();
    log.poison(&Error::Closed);
    threads.into_iter().for_each(|thread| drop(thread.join().expect("a session")));
}

#[test]
fn a_waiter_for_a_lane_ends_when_the_log_stops() {
    shuttle(ITERATIONS, stop_beside_turns);
}

/// A session keeps the shared lane, as in a long operation. Two others wait for the lane when the log stops. A flusher
/// wakes them.
fn stop_beside_a_lane_that_is_kept() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let max_sessions = SESSIONS as usize + 1;
    let options = LogOptions { max_sessions, lane_memory: 256 << 10, background: true, ..small() };
    let log = fresh(&fs, &options);
    let mut sessions: Vec<_> = (0..SESSIONS + 1).map(|_| log.session().expect("a session")).collect();
    sessions[3].reserve(Session::cost(SIZE)).expect("a log that goes on");
    let waiters = sessions.split_off(4).into_iter().map(|mut session| {
        thread::spawn(move || {
            let refused = session.reserve(Session::cost(SIZE));
            assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
            session
        })
    });
    let waiters: Vec<_> = waiters.collect();
    log.poison(&Error::Closed);
    waiters.into_iter().for_each(|waiter| drop(waiter.join().expect("it is told")));
}

#[test]
fn waiters_for_a_lane_end_at_a_stop_though_the_lane_is_kept() {
    shuttle(ITERATIONS, stop_beside_a_lane_that_is_kept);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stop_wakes_the_sessions_that_wait_for_a_lane() {
    shuttle_mutated("lanes: a stop wakes no waiter", ITERATIONS, stop_beside_a_lane_that_is_kept);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_that_gives_up_on_a_lane_wakes_the_next() {
    shuttle_mutated("lanes: a session gives up without a notification", ITERATIONS, stop_beside_turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_refused_session_releases_its_lane() {
    shuttle_mutated("lanes: a refused session keeps its lane", 100 * ITERATIONS, stop_beside_turns);
}

#[test]
#[should_panic]
fn a_cut_reads_shared_lanes() {
    shuttle_mutated("lanes: shared lanes are passed over", ITERATIONS, take_turns);
}
