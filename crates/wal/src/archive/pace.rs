//! The pace of the archiver.

use crate::log_core::Core;
use crate::pace;
use foreshore_sync::Parker;
use std::cell::Cell;
use std::time::Duration;

/// All rests of one file. Closes, and writers on a full disk, may wait for it.
const LONGEST: Duration = Duration::from_secs(1);
/// The archiver is behind when so many segments wait, with the one that is being filled.
const BEHIND: u64 = 4;

/// The pace of one file: that of [`crate::pace`], unless the archiver is behind.
pub(super) struct Pace<'a> {
    slices: pace::Pace<'a>,
    /// What is left of all rests.
    left: Cell<Duration>,
}

impl<'a> Pace<'a> {
    /// The pace of a file while `waiting` bytes of log are not archived. `has_thread`: a thread writes it.
    pub(super) fn new(core: &'a Core, waiting: u64, has_thread: bool) -> Self {
        // Without threads nothing depends on time.
        let rests = has_thread && waiting < BEHIND * core.options.segment_bytes;
        Self { slices: pace::Pace::new(core), left: Cell::new(if rests { LONGEST } else { Duration::ZERO }) }
    }

    /// Rests if it is time to.
    pub(super) fn rest(&self) {
        let left = self.left.get();
        if left.is_zero() {
            return;
        }
        let Some(rest) = self.slices.rest().map(|rest| rest.min(left)) else { return };
        if !rest.is_zero() {
            self.left.set(left - rest);
            // WAIT: park - for the time alone. An unpark for an earlier wait may shorten it.
            Parker::current().park_timeout(rest);
        }
        self.slices.begin();
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::{Log, LogOptions};

    #[test]
    fn it_rests_only_in_a_thread_that_keeps_up() {
        let options = LogOptions { background: false, ..LogOptions::default() };
        let log = Log::discarding(&options).expect("a log");
        let segment = log.core().options.segment_bytes;
        let left = |waiting, has_thread| Pace::new(log.core(), waiting, has_thread).left.get();
        assert_eq!(left(2 * segment, true), LONGEST);
        assert_eq!(left(4 * segment, true), Duration::ZERO, "it is behind");
        assert_eq!(left(2 * segment, false), Duration::ZERO, "it has no thread");
    }
}
