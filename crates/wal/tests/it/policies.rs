//! Group policies: each cuts when it says, none forgets anybody, and space pressure overrides all.

use crate::common::*;
use foreshore_base::Lsn;
use foreshore_io::{Fs, Mem};
use foreshore_sync::{NextWake, primitive::thread};
use foreshore_wal::{Log, LogOptions, Session};
use std::sync::Arc;
use std::time::Duration;

const POLICIES: [&str; 9] = [
    "greedy",
    "adaptive",
    "delay:50us",
    "fixed:100us",
    "fixed:3txn",
    "fixed:1KiB",
    "fixed:1000txn",
    "fixed:200us,2txn,4KiB",
    "fixed:100ns",
];

fn options(policy: &str) -> LogOptions {
    LogOptions { group: policy.parse().unwrap(), max_sessions: 32, ..small() }
}

fn pipelined(log: &Log, session: &mut Session, tag: u64) -> Lsn {
    let lsn = append(session, tag, &payload(tag, 100)).unwrap();
    log.flush_soon(session, lsn);
    lsn
}

#[test]
fn every_policy_answers_everybody() {
    for policy in POLICIES {
        for (background, in_flight) in [(false, 1), (true, 1), (true, 3)] {
            let fs: Arc<dyn Fs> = Arc::new(Mem::delay(Duration::from_micros(100)));
            let log = fresh(&fs, &LogOptions { background, in_flight, ..options(policy) });
            let handles: Vec<_> = (0..6)
                .map(|thread: u64| {
                    let log = log.clone();
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

/// Who is alone never brings the third commit, nor the bytes: the default period ends the wait.
#[test]
fn a_commit_that_is_alone_is_answered() {
    for policy in POLICIES {
        let fs = Arc::new(Mem::null()) as Arc<dyn Fs>;
        let log = fresh(&fs, &options(policy));
        let mut session = log.session().unwrap();
        let lsn = append(&mut session, 1, b"alone").unwrap();
        log.force(lsn).unwrap();
        assert_eq!(log.durable(), lsn, "{policy}");
    }
}

/// What the flusher does when asked: nothing before the bound is reached, a group then.
#[test]
fn bounds_end_the_wait_for_the_timer() {
    let fs = || Arc::new(Mem::null()) as Arc<dyn Fs>;
    // A record takes 128 bytes.
    for policy in ["fixed:10s,3txn", "fixed:10s,384B"] {
        let log = fresh(&fs(), &options(policy));
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
    for policy in ["fixed:10s", "delay:10s"] {
        let log = fresh(&fs(), &options(policy));
        let mut session = log.session().unwrap();
        pipelined(&log, &mut session, 1);
        assert!(matches!(log.flush_step(), NextWake::After(left) if left > Duration::from_secs(1)), "{policy}");
        assert_eq!(log.stats().groups, 0, "{policy}");
    }
}

#[test]
fn space_pressure_does_not_wait_for_a_timer() {
    for policy in ["fixed:10s", "delay:10s", "fixed:1000000txn,10s"] {
        let log = fresh(&(Arc::new(Mem::null()) as Arc<dyn Fs>), &options(policy));
        let mut session = log.session().unwrap();
        // Several times the ring, and nobody waits for durability.
        let last = (0..400).map(|tag| pipelined(&log, &mut session, tag)).last();
        let last = (400..3000).map(|tag| append(&mut session, tag, &payload(tag, 100)).unwrap()).last().or(last);
        assert!(log.stats().groups > 0 && log.durable() < last.unwrap());
    }
}
