//! How an archive holds log back, and when that log is given up.

use super::work::upto;
use super::{Archive, Extent};
use crate::log_core::Core;
use foreshore_base::GroupNo;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{Clock, Nanos};
use std::time::Duration;

/// Attempts in a row that fail before log is given up.
const TRIES: u32 = 3;
/// The time for one file, of 64 MiB at most, after which a device counts as one that hangs.
const HANGS: Duration = Duration::from_secs(20);
/// The same while writers wait for space: they do so for ten seconds in all.
const HANGS_URGENT: Duration = Duration::from_secs(4);
/// The pause between checks of a thread that waits for the archiver.
const CHECK: Duration = Duration::from_millis(100);

impl Archive {
    /// Returns the first group that has to stay in the log if all before `wanted` is to be truncated.
    pub(crate) fn held(&self, wanted: GroupNo) -> GroupNo {
        if self.yields() { wanted } else { self.next().min(wanted) }
    }

    fn yields(&self) -> bool {
        // ORDERING: hint, only the thread that has set it relies on it.
        self.yields.load(Ordering::Relaxed)
    }

    /// Has complete segments copied, since the disk of the log is full. If the archive fails, no log is held for it
    /// until [`hold`](Self::hold). Then log that is truncated is lost to it. Returns whether more log may be truncated
    /// than when all before group `before` was archived. No log is lost if some was archived since.
    pub(crate) fn yield_space(&self, core: &Core, before: GroupNo) -> bool {
        let fails = self.fails(core, true);
        let is_ahead = self.next() > before;
        // ORDERING: hint, see `yields`.
        self.yields.store(fails && !is_ahead, Ordering::Relaxed);
        fails || is_ahead
    }

    /// Ends [`yield_space`](Self::yield_space).
    pub(crate) fn hold(&self) {
        // ORDERING: hint, see `yields`.
        self.yields.store(false, Ordering::Relaxed);
    }

    /// As [`held`](Self::held), and helps an archive that is behind. Counts log as lost if the archive fails and the
    /// budget is used up, or the disk of the log is full.
    pub(crate) fn bound(&self, core: &Core, wanted: GroupNo) -> GroupNo {
        if mutant("sabotage: log is recycled before it is archived") {
            return wanted;
        }
        let waiting = || self.waiting(core, wanted);
        if self.yields() || waiting() > self.budget / 2 && self.fails(core, false) && waiting() > self.budget {
            let mut state = self.state.lock();
            state.lose(wanted);
            self.publish(state);
        }
        self.next().min(wanted)
    }

    /// Returns the bytes of log before `wanted` that are not archived.
    fn waiting(&self, core: &Core, wanted: GroupNo) -> u64 {
        let next = self.next();
        if wanted <= next {
            return 0;
        }
        let list = core.segments.list();
        list.bytes_since(next).saturating_sub(list.bytes_since(wanted))
    }

    /// Has the segments copied that are complete: by the archiver's thread, or by this one if that is not there.
    /// Returns whether the archive fails: the last [`TRIES`] attempts at least, or it hangs. Without `is_urgent` it is
    /// over when writers find the disk full; otherwise as soon as a file is archived and they have waited for long.
    fn fails(&self, core: &Core, is_urgent: bool) -> bool {
        let (goal, before, began) = (upto(core, Extent::Segments), self.next(), self.clock.now());
        let patience = if is_urgent { HANGS_URGENT } else { HANGS };
        let failures = self.state.lock().shown.stats.failures;
        loop {
            core.segments.rolled_signal().notify();
            let state = self.state.lock();
            let passed = |since: Nanos| self.clock.now().since(since) >= patience;
            let has_failed = state.failed >= TRIES && state.shown.stats.failures > failures;
            if has_failed || state.at_work.is_some_and(passed) {
                return true;
            }
            if is_urgent && passed(began) {
                return state.next == before;
            }
            let is_over = state.next > goal || state.lock.is_none() || core.pipeline.progress().stop_error().is_some();
            if is_over || !is_urgent && core.requests.newest_unanswered().is_some() {
                return false;
            }
            if state.at_work.is_some() || self.has_thread() {
                // WAIT: park - for the end of the archiver's attempt, or for one pause between checks.
                drop(self.changed.wait_timeout(state, CHECK));
                continue;
            }
            // WAIT: help - the archiver has no thread. The error is counted.
            let _ = self.copy_in(&self.take_turn(state), core, (Extent::Segments, 1));
        }
    }
}
