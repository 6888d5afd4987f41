//! The pace of the archiver.

use super::Archive;
use crate::log_core::Core;
use crate::pace;
use foreshore_sync::Parker;
use std::cell::Cell;
use std::time::Duration;

/// All rests of one file. A close may wait for it.
const LONGEST: Duration = Duration::from_secs(1);
/// How long a rest lasts until it is asked again whether there is time for it.
const LOOK: Duration = Duration::from_millis(100);
/// The archiver is behind when so many segments wait, with the one that is being filled.
const BEHIND: u64 = 4;

/// The pace of one file: that of [`crate::pace`], unless the archiver is behind, or writers wait for space.
pub(super) struct Pace<'a> {
    archive: &'a Archive,
    core: &'a Core,
    slices: pace::Pace<'a>,
    /// What is left of all rests.
    left: Cell<Duration>,
}

impl<'a> Pace<'a> {
    /// The pace of the next file.
    pub(super) fn new(archive: &'a Archive, core: &'a Core) -> Self {
        let waiting = core.segments.list().bytes_since(archive.next());
        let left = allowed(waiting, core.options.segment_bytes, archive.budget);
        Self { archive, core, slices: pace::Pace::new(core), left: Cell::new(left) }
    }

    /// Rests if it is time to. Under the turn.
    pub(super) fn rest(&self) {
        if !self.may_rest() {
            return;
        }
        let Some(mut rest) = self.slices.rest().map(|rest| rest.min(self.left.get())) else { return };
        while !rest.is_zero() && self.may_rest() {
            let look = rest.min(LOOK);
            // WAIT: park - for the time alone. An unpark for an earlier wait may shorten it.
            Parker::current().park_timeout(look);
            rest -= look;
            self.left.set(self.left.get() - look);
            // A device that rests does not hang.
            self.archive.note_work(&mut self.archive.state.lock());
        }
        self.slices.begin();
    }

    /// Without a thread nothing depends on time, and writers that wait for space are in a hurry.
    fn may_rest(&self) -> bool {
        !self.left.get().is_zero() && self.archive.has_thread() && self.core.requests.newest_unanswered().is_none()
    }
}

/// Returns the time of all rests of a file while `waiting` bytes of log are not archived. From half of the budget on a
/// checkpoint waits for the archiver.
fn allowed(waiting: u64, segment_bytes: u64, budget: u64) -> Duration {
    if waiting < (BEHIND * segment_bytes).min(budget / 2) { LONGEST } else { Duration::ZERO }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_archiver_that_is_behind_does_not_rest() {
        let [small, large] = [|waiting| allowed(waiting, 16, 64), |waiting| allowed(waiting, 16, 1024)];
        assert_eq!([small(31), small(32)], [LONGEST, Duration::ZERO], "half of the budget waits");
        assert_eq!([large(63), large(64)], [LONGEST, Duration::ZERO], "four segments wait");
    }
}
