//! Policies of group commit: each seals groups by its own rule and makes every commit durable. A full log buffer does
//! not wait for any of them.

use crate::common::policies::{bounded, delay};
use crate::common::*;
use foreshore_base::Lsn;
use foreshore_io::{Fs, Mem};
use foreshore_sync::{NextWake, primitive::thread};
use foreshore_wal::{Group, Log, LogOptions, Session};
use std::sync::Arc;
use std::time::Duration;

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The policies of the engine, and some that a user supplies.
fn policies() -> Vec<LogOptions> {
    let own = [Group::Greedy, Group::Window(us(1)), Group::Window(us(250)), Group::Window(us(5000))];
    let plugged = [
        delay(us(50)),
        bounded(us(10_000), Some(3), None),
        bounded(us(10_000), None, Some(1024)),
        bounded(us(10_000), Some(1000), None),
        bounded(us(200), Some(2), Some(4096)),
        delay(Duration::from_nanos(100)),
    ];
    let own = own.map(|group| LogOptions { group, ..options() });
    own.into_iter().chain(plugged.map(|group_from| LogOptions { group_from, ..options() })).collect()
}

fn options() -> LogOptions {
    LogOptions { max_sessions: 32, ..small() }
}

fn pipelined(log: &Log, session: &mut Session, tag: u64) -> Lsn {
    let lsn = append(session, tag, &payload(tag, 100)).unwrap();
    log.flush_soon(session, lsn);
    lsn
}

#[test]
fn every_policy_answers_all_commits() {
    for policy in policies() {
        for (background, in_flight) in [(false, 1), (true, 1), (true, 3)] {
            let fs: Arc<dyn Fs> = Arc::new(Mem::delay(Duration::from_micros(100)));
            let log = fresh(&fs, &LogOptions { background, in_flight, ..policy.clone() });
            let policy = (policy.group, &policy.group_from);
            let handles: Vec<_> = (0..6)
                .map(|thread: u64| {
                    let log = log.clone();
                    let policy = format!("{policy:?}");
                    thread::spawn(move || {
                        let mut session = log.session().unwrap();
                        for commit in 0..12 {
                            let lsn = append(&mut session, thread << 8 | commit, b"a commit").unwrap();
                            match (thread + commit) % 3 {
                                0 => log.flush_soon(&mut session, lsn),
                                1 => {
                                    _ = log.ticket(lsn, lsn.csn(), lsn).wait_timeout(Duration::from_micros(30)).unwrap()
                                }
                                _ => {}
                            }
                            log.force(lsn).unwrap();
                            assert!(log.durable() >= lsn, "{policy}");
                        }
                    })
                })
                .collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(log.stats().records, 72);
        }
    }
}

/// A single commit reaches no policy's bound of commits or bytes, so the group-commit delay has to end by time.
#[test]
fn a_commit_that_is_alone_is_answered() {
    for policy in policies() {
        let fs = Arc::new(Mem::null()) as Arc<dyn Fs>;
        let log = fresh(&fs, &policy);
        let mut session = log.session().unwrap();
        let lsn = append(&mut session, 1, b"alone").unwrap();
        log.force(lsn).unwrap();
        assert_eq!(log.durable(), lsn, "{policy:?}");
    }
}

/// The flusher does nothing before the bound is reached, and seals a group then.
#[test]
fn bounds_end_the_wait_for_the_timer() {
    let fs = || Arc::new(Mem::null()) as Arc<dyn Fs>;
    let long = Duration::from_secs(10);
    // A record takes 128 bytes.
    for group_from in [bounded(long, Some(3), None), bounded(long, None, Some(384))] {
        let policy = format!("{group_from:?}");
        let log = fresh(&fs(), &LogOptions { group_from, ..options() });
        let mut session = log.session().unwrap();
        for round in 0..3 {
            let before = log.durable();
            for tag in 0..2 {
                pipelined(&log, &mut session, round * 3 + tag);
                assert!(matches!(log.flush_step(), NextWake::After(left) if left > Duration::from_secs(1)), "{policy}");
            }
            assert_eq!(log.durable(), before, "{policy}");
            let last = pipelined(&log, &mut session, round * 3 + 2);
            assert_eq!(log.flush_step(), NextWake::Now, "{policy}");
            assert_eq!(log.durable(), last, "{policy}");
            assert_eq!(log.flush_step(), NextWake::OnSignal, "{policy}");
        }
        assert_eq!(log.stats().groups, 3, "{policy}");
    }
    let log = fresh(&fs(), &LogOptions { group_from: delay(long), ..options() });
    pipelined(&log, &mut log.session().unwrap(), 1);
    assert!(matches!(log.flush_step(), NextWake::After(left) if left > Duration::from_secs(1)));
    assert_eq!(log.stats().groups, 0);
}

#[test]
fn space_pressure_does_not_wait_for_a_timer() {
    let long = Duration::from_secs(10);
    for group_from in [delay(long), bounded(long, Some(1_000_000), None)] {
        let log = fresh(&(Arc::new(Mem::null()) as Arc<dyn Fs>), &LogOptions { group_from, ..options() });
        let mut session = log.session().unwrap();
        // The records fill the ring several times, and no thread waits for durability.
        let last = (0..400).map(|tag| pipelined(&log, &mut session, tag)).last();
        let last = (400..3000).map(|tag| append(&mut session, tag, &payload(tag, 100)).unwrap()).last().or(last);
        assert!(log.stats().groups > 0 && log.durable() < last.unwrap());
    }
}
