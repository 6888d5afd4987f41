//! Pages that pass through: what a scan reads is not wanted again, and must not push out what is.
//!
//! Whoever fixes a page says whether it is [`Wanted`] once or again. A page that comes in for a scan, read ahead or not, is
//! **passing**: its policy does not hear of it, and it stands in a queue, whose oldest give up their frames before the policy names any.
//! So a scan reads through a small part of the frames over and over, whatever the policy, and what the others hold stays. A
//! scan that finds a page in memory leaves no trace there.
//!
//! A passing page that somebody else uses meanwhile **stays**: when its turn comes it goes over to the policy, as a page that has
//! just come in. So does one that is dirty.
//!
//! **Every passing page is in the queue**, or in the hands of a thread that looks at it, because a policy need not know of it: who
//! takes an entry out gives up the frame, or tells the policy, or puts the entry back. Entries may be stale, of a page that has
//! left its frame otherwise, or twice there; who meets one drops it.

use crate::frame::FrameNo;
use crate::pool::Core;
use foreshore_base::PageId;
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Of so many frames one may hold a passing page before the oldest of them go first. Twice what scans read ahead, so that they
/// come to those pages before they leave.
const SHARE: usize = 8;

/// What is known of a page's future as it is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// It counts as used.
    #[default]
    Again,
    /// The caller scans: if the page is not in memory it comes in as a passing one, and if it is that does not count as a use.
    Once,
}

/// The queue, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Passing {
    queue: Mutex<VecDeque<(FrameNo, PageId)>>,
    /// Entries up to which the policy's victims go first.
    quota: usize,
}

impl Passing {
    pub(crate) fn new(frames: usize) -> Self {
        Self { queue: Mutex::new(LockRank::Leaf, VecDeque::new()), quota: frames / SHARE }
    }

    /// Takes the oldest entry if there are more than `keep`.
    fn take(&self, keep: usize) -> Option<(FrameNo, PageId)> {
        let mut queue = self.queue.lock();
        if queue.len() > keep { queue.pop_front() } else { None }
    }

    fn put(&self, no: FrameNo, pid: PageId) {
        self.queue.lock().push_back((no, pid));
    }
}

impl Core {
    /// Page `pid` has come into the frame, whose exclusive latch is held, for a scan.
    pub(crate) fn on_pass(&self, no: FrameNo, pid: PageId) {
        self.frames[no as usize].set_passing();
        self.passing.put(no, pid);
    }

    /// Hands frames to `consider`, the one to give up first, until it breaks or there are no more.
    pub(crate) fn sweep(&self, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        self.sweep_passing(self.passing.quota, consider)?;
        self.replacer.sweep(&self.frames, consider)?;
        self.sweep_passing(0, consider)
    }

    /// Hands the frames of passing pages to `consider`, the oldest first, but for the youngest `keep`.
    fn sweep_passing(&self, keep: usize, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        // Each once: those that stay stand behind the others then.
        let turns = self.passing.queue.lock().len();
        for _ in 0..turns {
            let Some((no, pid)) = self.passing.take(keep) else { break };
            let frame = &self.frames[no as usize];
            let mut flow = ControlFlow::Continue(());
            if frame.uses() > 0 || frame.is_dirty() {
                self.hand_over(no, pid);
            } else if self.passes(no, pid) {
                flow = consider(no);
            }
            if self.passes(no, pid) && !mutant("passing: who cannot go leaves the queue") {
                self.passing.put(no, pid);
            }
            flow?;
        }
        ControlFlow::Continue(())
    }

    /// Whether the entry says what is. Stable under a latch.
    fn passes(&self, no: FrameNo, pid: PageId) -> bool {
        let frame = &self.frames[no as usize];
        frame.is_passing() && frame.pid() == pid
    }

    /// Gives a passing page over to the policy, unless somebody has it latched.
    fn hand_over(&self, no: FrameNo, pid: PageId) {
        let latch = &self.frames[no as usize].latch;
        if latch.try_lock_exclusive() {
            if self.passes(no, pid) {
                self.frames[no as usize].end_passing();
                self.replacer.on_load(&self.frames, no, pid);
            }
            latch.unlock_exclusive_unchanged(&self.parks);
        }
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::ReplacementKind;
    use crate::pool::tests::pool_with;

    #[test]
    fn a_scan_leaves_no_trace_on_a_page_that_is_there() {
        for kind in ReplacementKind::ALL {
            let pool = pool_with(128, kind);
            let pid = PageId(1);
            drop(pool.pin_unread(pid).expect("a frame"));
            let frame = &pool.core.frames[pool.core.table.get(pid).expect("in memory") as usize];
            let before = frame.uses();
            drop(pool.shared_as(pid, Wanted::Once).expect("in memory"));
            drop(pool.try_shared_as(pid, Wanted::Once).expect("in memory"));
            drop(pool.optimistic_as(pid, Wanted::Once).expect("in memory"));
            drop(pool.try_optimistic_as(pid, Wanted::Once).expect("in memory"));
            drop(pool.pin_as(pid, Wanted::Once).expect("in memory"));
            assert_eq!((frame.uses(), frame.is_passing()), (before, false), "{kind}");
            assert!(pool.core.passing.queue.lock().is_empty());
        }
    }
}
