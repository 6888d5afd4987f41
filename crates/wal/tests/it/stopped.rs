//! A session that is stopped in the middle of its copy. With `lanes` the commits of other sessions go on. With every
//! other buffer they wait until it continues. If it is stopped in the few instructions in which `lanes` draws a stamp,
//! the commits behind it wait there too.

use crate::common::*;
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::{Fs, Mem};
use foreshore_sync::{pause, primitive::thread};
use foreshore_wal::{Dep, Log, LogOptions, Record, Session, flags};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// In the middle of a copy, and between the first and the last step of a draw of `lanes`.
const COPY: &str = "wal: copy";
const DRAW: &str = "wal: draw";
/// A timeout that only a missing commit reaches.
const FOREVER: Duration = Duration::from_secs(60);
/// How long the test checks that a commit does not come. It cannot come before the session goes on.
const A_WHILE: Duration = Duration::from_millis(50);

/// Appends a record in two parts, and stops at the first pass of `point` until the test lets it go on.
fn stop_at(point: &'static str, log: &Log, stopped: Sender<()>, go_on: Receiver<()>) {
    let mut session = log.session().unwrap();
    let (head, tail) = (payload(1, 100), payload(2, 100));
    session.reserve(Session::cost(200)).unwrap();
    let mut halts = 1;
    pause::set(point, move || {
        if halts > 0 {
            halts -= 1;
            stopped.send(()).unwrap();
            // WAIT: park - until the test says so.
            go_on.recv().unwrap();
        }
    });
    let lsn = session.append(Record { tag: 1, flags: 0, parts: &[&head, &tail] }, Dep::none());
    log.force(lsn).unwrap();
}

/// `commits` commits, each reported.
fn commit(log: &Log, tag: u64, commits: u64, done: &Sender<u64>) {
    let mut session = log.session().unwrap();
    for i in 0..commits {
        session.reserve(Session::cost(100)).unwrap();
        let bytes = payload(tag + i, 100);
        let lsn = session.append(Record { tag: tag + i, flags: flags::COMMIT, parts: &[&bytes] }, Dep::none());
        log.force(lsn).unwrap();
        done.send(tag + i).unwrap();
    }
}

/// Runs two committers beside a session stopped at `point`. Returns whether their commits came while it was stopped.
fn commits_go_on(buffer: BufferKind, point: &'static str) -> bool {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = LogOptions { buffer: buffer.maker(), background: true, ring_bytes: 256 << 10, ..small() };
    let log = fresh(&fs, &options);
    let ((stopped, is_stopped), (go, go_on), (done, commits)) = (channel(), channel(), channel());
    let stopper = {
        let log = log.clone();
        thread::spawn(move || stop_at(point, &log, stopped, go_on))
    };
    is_stopped.recv_timeout(FOREVER).expect("the session reaches its copy");
    let committers: Vec<_> = [10, 20]
        .map(|tag| {
            let (log, done) = (log.clone(), done.clone());
            thread::spawn(move || commit(&log, tag, 5, &done))
        })
        .into_iter()
        .collect();
    let limit = if buffer == BufferKind::Lanes && point == COPY { FOREVER } else { A_WHILE };
    let goes_on = match commits.recv_timeout(limit) {
        Ok(_) => true,
        Err(RecvTimeoutError::Timeout) => false,
        Err(RecvTimeoutError::Disconnected) => unreachable!("the test keeps a sender"),
    };
    let wait = |rest: usize| {
        for _ in 0..rest {
            commits.recv_timeout(FOREVER).expect("all commits come");
        }
    };
    // All of them, before the session goes on or after.
    if goes_on {
        wait(9);
    }
    go.send(()).unwrap();
    if !goes_on {
        wait(10);
    }
    committers.into_iter().chain([stopper]).for_each(|thread| thread.join().unwrap());
    log.close().unwrap();
    drop(log);
    let mut found = tags(&open(&fs, &options).unwrap().1);
    found.sort_unstable();
    assert_eq!(found, [1, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]);
    goes_on
}

#[test]
fn a_session_stopped_in_its_copy_delays_no_other_in_lanes() {
    assert!(commits_go_on(BufferKind::Lanes, COPY));
}

#[test]
fn a_session_stopped_in_its_copy_holds_up_all_commits_elsewhere() {
    for buffer in KINDS.into_iter().filter(|&kind| kind != BufferKind::Lanes) {
        assert!(!commits_go_on(buffer, COPY), "commits through {buffer} came before a record that precedes them");
    }
}

#[test]
fn a_session_stopped_in_its_draw_holds_up_the_commits_behind_it_until_it_goes_on() {
    assert!(!commits_go_on(BufferKind::Lanes, DRAW), "a cut passed a stamp that was being drawn");
}
