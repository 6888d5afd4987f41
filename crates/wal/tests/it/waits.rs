//! The parts of waits are counted for every buffer, and only if that is requested.

use crate::common::policies::delay;
use crate::common::*;
use foreshore_base::Lsn;
use foreshore_io::{Fs, Mem};
use foreshore_wal::{LogOptions, LogStats, Waits};
use std::sync::Arc;
use std::time::Duration;

/// Time of a write, and of a delayed cut.
const WRITE: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(2);

/// Returns the waits of `commits` commits of one session, each waited for or left to the flusher.
fn commits(options: &LogOptions, commits: u64, waited: bool) -> LogStats {
    let fs: Arc<dyn Fs> = Arc::new(Mem::delay(WRITE));
    let log = fresh(&fs, options);
    let mut session = log.session().unwrap();
    let mut last = Lsn::ZERO;
    for commit in 0..commits {
        let lsn = append(&mut session, commit, &payload(commit, 100)).unwrap();
        if waited {
            log.force(lsn).unwrap();
            // Nothing is waited for any more.
            log.force(lsn).unwrap();
        } else {
            log.flush_soon(&mut session, lsn);
        }
        last = lsn;
    }
    while log.durable() < last {
        log.flush_step();
    }
    // The session counts its commits at the next one.
    if !waited {
        let lsn = append(&mut session, commits, b"the last").unwrap();
        log.flush_soon(&mut session, lsn);
    }
    log.stats()
}

#[test]
fn every_buffer_counts_the_waits_of_its_commits() {
    for buffer in KINDS {
        let group_from = delay(DELAY);
        let options =
            LogOptions { buffer: buffer.maker(), group_from, measure_waits: true, background: false, ..small() };
        let Waits { count, a, b, c, d, e } = commits(&options, 3, true).waits;
        assert_eq!(count, 3, "{buffer}");
        assert!(b >= 3 * DELAY && d >= 3 * WRITE, "{buffer}: {b:?} {d:?}");
        assert!(!a.is_zero() && !c.is_zero() && !e.is_zero(), "{buffer}: {a:?} {c:?} {e:?}");

        let waits = commits(&options, 3, false).waits;
        assert_eq!(waits.count, 3, "{buffer}");
        // One group for all commits: it was sealed after the delay, counted from the first.
        assert!(waits.b >= DELAY && waits.d >= 3 * WRITE, "{buffer}: {waits:?}");
        let means = waits.means().unwrap();
        assert!(means[3] >= WRITE, "{buffer}: {means:?}");
    }
}

#[test]
fn nothing_is_measured_unasked() {
    for waited in [false, true] {
        let waits = commits(&LogOptions { background: false, ..small() }, 3, waited).waits;
        assert_eq!((waits, waits.means()), (Waits::default(), None));
    }
}
