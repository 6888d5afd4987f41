//! The commit clock covers every commit, and the durable LSN can reach a stamp that the clock was raised to.

use crate::common::*;
use foreshore_base::{Csn, Lsn};
use foreshore_io::{Fs, Mem};
use foreshore_wal::{Dep, Log, LogOptions, Record, Session, flags};
use std::sync::Arc;

fn commit(session: &mut Session) -> Lsn {
    session.reserve(Session::cost(1)).unwrap();
    session.append(Record { tag: 1, flags: flags::COMMIT, parts: &[b"c"] }, Dep::none())
}

/// Returns the stamp of a commit that already has one above `least`.
fn again(log: &Log, session: &mut Session, least: Csn) -> Lsn {
    if log.raise_commit_clock(least) { least.lsn() } else { commit(session) }
}

#[test]
fn the_clock_covers_every_commit() {
    for buffer in KINDS {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let log = fresh(&fs, &LogOptions { buffer: buffer.maker(), ..small() });
        let mut sessions = [log.session().unwrap(), log.session().unwrap()];
        let mut last = log.commit_clock();
        for n in 0..20 {
            let session = &mut sessions[n % 2];
            append(session, 1, b"update").unwrap();
            let lsn = commit(session);
            assert!(lsn.csn() > last, "{buffer:?}");
            last = log.commit_clock();
            assert!(last >= lsn.csn() && last <= log.current().csn(), "{buffer:?}");
        }
    }
}

#[test]
fn an_idle_log_becomes_durable_up_to_where_the_clock_was_raised() {
    for buffer in KINDS {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let options = LogOptions { buffer: buffer.maker(), ..small() };
        let log = fresh(&fs, &options);
        let mut session = log.session().unwrap();
        let first = commit(&mut session);
        log.force(first).unwrap();
        // A reader that meets a commit in progress pushes its stamp above all that the reader could have read.
        let least = Csn(log.commit_clock().0.max(log.durable().0) + 1);
        let stamp = again(&log, &mut session, least);
        assert!(stamp.csn() >= least, "{buffer:?}");
        assert!(log.commit_clock() >= stamp.csn(), "{buffer:?}");
        log.force(stamp).unwrap();
        assert!(log.durable() >= stamp, "{buffer:?}");
        let later = commit(&mut session);
        assert!(later > stamp, "{buffer:?}: a later commit has a later stamp");
        drop((session, log));
        let (log, _) = open(&fs, &options).unwrap();
        assert!(log.commit_clock() >= stamp.csn(), "{buffer:?}: a restart goes on above");
        assert!(commit(&mut log.session().unwrap()) > stamp, "{buffer:?}");
    }
}
