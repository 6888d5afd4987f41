//! The pace of work beside commits, such as a backup or the archiver: it rests while sessions write log.
//!
//! A commit waits for a durable write. It shares the disk with all that such work reads and writes, so beside work at
//! full speed commits wait for milliseconds. The work therefore goes in short slices. After a slice in which the log
//! has grown it rests for as long as that slice took.
//!
//! - *Commits* have the disk to themselves for half of the time.
//! - *The work* takes two to three times as long. While there is no commit it is not slowed at all.
//!
//! Its requests are short, too ([`REQUEST`]): a commit that comes in the middle of one waits for the rest of it. Short
//! requests matter more than long rests: with 1 MiB and rests of three times the slice, a backup took longer and left
//! less of the disk to commits.

use crate::log_core::Core;
use foreshore_sync::{Clock, Nanos, SystemClock};
use std::cell::Cell;
use std::time::Duration;

/// The most bytes that such work reads or writes at once, except for a larger group of the log.
pub const REQUEST: usize = 128 << 10;
/// The shortest slice: a rest costs two switches of the thread, and no timer is exact.
const SLICE: Duration = Duration::from_millis(1);
/// The longest rest. A slice that would ask for more was slow for another reason.
const LONGEST: Duration = Duration::from_secs(1);

/// The slices of one work.
pub struct Pace<'l> {
    core: &'l Core,
    clock: SystemClock,
    /// When the slice began.
    began: Cell<Nanos>,
    /// Bytes of log that were written by then.
    written: Cell<u64>,
}

impl<'l> Pace<'l> {
    /// Begins the first slice.
    pub(crate) fn new(core: &'l Core) -> Self {
        let clock = SystemClock::new();
        let (began, written) = (Cell::new(clock.now()), Cell::new(core.growth.written()));
        Self { core, clock, began, written }
    }

    /// Returns how long to rest now; `None` if the slice is short, and goes on. After the rest call
    /// [`begin`](Self::begin).
    pub fn rest(&self) -> Option<Duration> {
        let worked = self.clock.now().since(self.began.get());
        (worked >= SLICE).then(|| {
            let (before, now) = (self.written.get(), self.core.growth.written());
            assert!(before <= now, "a log of {before} bytes has shrunk to {now}");
            if before < now { worked.min(LONGEST) } else { Duration::ZERO }
        })
    }

    /// Begins the next slice.
    pub fn begin(&self) {
        self.began.set(self.clock.now());
        self.written.set(self.core.growth.written());
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::{Dep, Log, LogOptions, Record, Session};

    #[test]
    fn a_rest_follows_a_slice_in_which_the_log_has_grown() {
        let options = LogOptions { background: false, ..LogOptions::default() };
        let log = Log::discarding(&options).expect("a log");
        let mut session = log.session().expect("a session");
        let mut commit = || {
            session.reserve(Session::cost(3)).expect("no disk is full");
            let lsn = session.append(Record { tag: 1, flags: 0, parts: &[b"abc"] }, Dep::none());
            log.force(lsn).expect("no disk fails");
        };
        let pace = log.pace();
        let work = |ago: Duration| pace.began.set(pace.clock.now() - ago);
        std::thread::sleep(Duration::from_millis(50));
        work(SLICE);
        assert_eq!(pace.rest(), Some(Duration::ZERO), "nothing is committed beside it");
        pace.begin();
        commit();
        work(10 * SLICE);
        assert!(pace.rest().is_some_and(|rest| (10 * SLICE..LONGEST).contains(&rest)), "{:?}", pace.rest());
        // A device that hangs makes no rest as long.
        std::thread::sleep(LONGEST);
        assert_eq!(pace.rest(), Some(LONGEST));
        pace.begin();
        assert!(pace.rest().is_none_or(|rest| rest.is_zero()), "{:?}", pace.rest());
    }
}
