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
//! How many frames the queue has before its oldest go first is its **quota**, one in [`LEAST`] to begin with. A table that is
//! scanned again and again would never stay in memory with that, also where nobody else wants the frames. So the ids of the
//! pages that have passed are kept for a while, and whether they had passed before. One that a scan brings in for the third time
//! would have been there in a longer queue, and the quota grows by a frame; each page that comes in for anybody else takes a
//! frame back. That is how ARC shares its memory between its two lists (Megiddo and Modha, FAST 2003), but that a second scan
//! shows nothing yet: a check after a backup, say. Pages that are always there never come in. So a victim of the policy that
//! was used while the last such row of pages came, or the one before, is spared and takes a frame back too: scans grow at the cost
//! of pages that nobody uses. The quota ends at [`MOST`], and ids are kept for as many departures as lie
//! between the two: a scan of more than that is read from disk each time, and takes nothing from anybody.
//!
//! **Every passing page is in the queue**, or in the hands of a thread that looks at it, because a policy need not know of it: who
//! takes an entry out gives up the frame, or tells the policy, or puts the entry back. Entries may be stale, of a page that has
//! left its frame otherwise, or twice there; who meets one drops it.

use crate::frame::FrameNo;
use crate::pool::Core;
use crate::replacement::Ghosts;
use foreshore_base::PageId;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Range, RangeInclusive};

/// Of so many frames one at least may hold a passing page before the oldest of them go first. Twice what scans read ahead, so
/// that they come to those pages before they leave.
const LEAST: usize = 8;
/// Of four frames so many at most.
const MOST: usize = 3;
/// Victims of the policy that a sweep passes over because they were used. A bound, so that somebody is named soon.
const SPARED: usize = 16;
/// Pages that a sweep gives over to the policy before it asks the policy, whose turn a long row of them would only put off.
const HAND_OVERS: usize = 16;

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
    queue: Mutex<VecDeque<Entry>>,
    /// Entries up to which the policy's victims go first.
    quota: AtomicUsize,
    bounds: RangeInclusive<usize>,
    /// Pages that have left through the queue, with a mark if they had passed before.
    gone: Ghosts,
    frames: usize,
    /// Pages that have come.
    come: CachePadded<AtomicUsize>,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug)]
struct Entry {
    no: FrameNo,
    pid: PageId,
    /// Whether it had passed before.
    again: bool,
}

impl Passing {
    pub(crate) fn new(frames: usize) -> io::Result<Self> {
        let (least, most) = (frames / LEAST, frames * MOST / 4);
        Ok(Self {
            queue: Mutex::new(LockRank::Leaf, VecDeque::new()),
            quota: AtomicUsize::new(least),
            bounds: least..=most,
            gone: Ghosts::new(most - least)?,
            frames,
            come: CachePadded::new(AtomicUsize::new(0)),
        })
    }

    fn quota(&self) -> usize {
        // ORDERING: hint, a share that is a little off costs a read at most; here and below.
        self.quota.load(Ordering::Relaxed)
    }

    /// Positions of frames, beyond their number too, whose uses grow old as a page comes in: all frames once while as many come as
    /// are kept in mind.
    fn lap(&self) -> Range<usize> {
        let span = (self.bounds.end() - self.bounds.start()).max(1);
        // ORDERING: ticket; a hand that guards nothing.
        let come = self.come.fetch_add(1, Ordering::Relaxed);
        come * self.frames / span..(come + 1) * self.frames / span
    }

    /// Page `pid` comes in for a scan. If it has passed twice of late the queue was too short for it.
    fn come(&self, no: FrameNo, pid: PageId) {
        let passed = self.gone.take(pid);
        if passed == Some(true) && self.quota() < *self.bounds.end() {
            // ORDERING: as in `quota`; that threads that do this at once go beyond the bound by their number makes no difference.
            self.quota.fetch_add(1, Ordering::Relaxed);
        }
        self.put(Entry { no, pid, again: passed.is_some() });
    }

    /// A page has left through the queue.
    fn go(&self, entry: Entry) {
        self.gone.add(entry.pid, entry.again);
    }

    /// Whether the scans have a larger share than the least.
    fn has_more(&self) -> bool {
        self.quota() > *self.bounds.start()
    }

    /// Somebody else has a frame from the scans, as far as they have more than the least.
    fn yield_one(&self) {
        let quota = self.quota();
        if quota > *self.bounds.start() {
            // ORDERING: as in `quota`. Another thread that changes it makes this one's frame good for both.
            let _ = self.quota.compare_exchange(quota, quota - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes the oldest entry if there are more than `keep`.
    fn take(&self, keep: usize) -> Option<Entry> {
        let mut queue = self.queue.lock();
        if queue.len() > keep { queue.pop_front() } else { None }
    }

    fn put(&self, entry: Entry) {
        self.queue.lock().push_back(entry);
    }
}

impl Core {
    /// Page `pid` comes into the frame, whose exclusive latch is held. True if it passes through; else the policy is to hear of it.
    pub(crate) fn on_arrival(&self, no: FrameNo, pid: PageId, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Again => {
                self.memory.frames()[no as usize].grow_old(true);
                self.passing.yield_one();
            }
            Wanted::Once => {
                self.memory.frames()[no as usize].set_passing();
                self.passing.come(no, pid);
                for no in self.passing.lap() {
                    self.memory.frames()[no % self.memory.frames().len()].grow_old(false);
                }
            }
        }
        wanted == Wanted::Once
    }

    /// Hands frames to `consider`, the one to give up first, until it breaks or there are no more.
    pub(crate) fn sweep(&self, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        self.sweep_passing(self.passing.quota(), HAND_OVERS, consider)?;
        let mut spared = 0;
        self.replacement.sweep(self.view(), &mut |no| {
            if spared == SPARED || !self.passing.has_more() || !self.memory.frames()[no as usize].is_recent() {
                return consider(no);
            }
            spared += 1;
            self.passing.yield_one();
            self.sweep_passing(self.passing.quota(), HAND_OVERS, consider)
        })?;
        self.sweep_passing(0, usize::MAX, consider)
    }

    /// Hands the frames of passing pages to `consider`, the oldest first, but for the youngest `keep`, until it has given as many
    /// as `hand_overs` to the policy.
    fn sweep_passing(
        &self,
        keep: usize,
        mut hand_overs: usize,
        consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // Each once: those that stay stand behind the others then.
        let turns = self.passing.queue.lock().len();
        for _ in 0..turns {
            let Some(entry) = self.passing.take(keep) else { break };
            let Entry { no, pid, .. } = entry;
            let frame = &self.memory.frames()[no as usize];
            let mut flow = ControlFlow::Continue(());
            if frame.uses() > 0 || frame.is_dirty() {
                self.hand_over(no, pid);
                hand_overs -= 1;
            } else if self.passes(no, pid) {
                flow = consider(no);
                if !self.passes(no, pid) {
                    self.passing.go(entry);
                }
            }
            if self.passes(no, pid) && !mutant("passing: who cannot go leaves the queue") {
                self.passing.put(entry);
            }
            flow?;
            if hand_overs == 0 {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the entry says what is. Stable under a latch.
    fn passes(&self, no: FrameNo, pid: PageId) -> bool {
        let frame = &self.memory.frames()[no as usize];
        frame.is_passing() && frame.pid() == pid
    }

    /// Gives a passing page over to the policy, unless somebody has it latched.
    fn hand_over(&self, no: FrameNo, pid: PageId) {
        let latch = self.memory.frames()[no as usize].latch();
        if latch.try_lock_exclusive() {
            if self.passes(no, pid) {
                self.memory.frames()[no as usize].end_passing();
                self.replacement.on_load(self.view(), no, pid);
            }
            latch.unlock_exclusive_unchanged(self.memory.parks());
        }
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::pool::tests::{empty_pool, pool_with};
    use crate::replacement::{Frames, MakeReplacementPolicy, ReplacementPolicy};
    use std::sync::Arc;

    /// Names each page that it knows once, in the order of arrival.
    #[derive(Debug)]
    struct Fifo(Mutex<Vec<FrameNo>>);

    impl ReplacementPolicy for Fifo {
        fn on_load(&self, _: Frames<'_>, no: FrameNo, _: PageId) {
            self.0.lock().push(no);
        }

        fn sweep(&self, _: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
            let known = self.0.lock().clone();
            known.into_iter().try_for_each(consider)
        }
    }

    #[derive(Debug)]
    struct MakeFifo;

    impl MakeReplacementPolicy for MakeFifo {
        fn make(&self, _: usize) -> io::Result<Box<dyn ReplacementPolicy>> {
            Ok(Box::new(Fifo(Mutex::new(LockRank::Leaf, Vec::new()))))
        }
    }

    #[test]
    fn a_scan_leaves_no_trace_on_a_page_that_is_there() {
        let pool = empty_pool(128);
        let pid = PageId(1);
        drop(pool.pin_unread(pid).expect("a frame"));
        let frame = &pool.core.memory.frames()[pool.core.table.get(pid).expect("in memory") as usize];
        let before = frame.uses();
        drop(pool.shared_as(pid, Wanted::Once).expect("in memory"));
        drop(pool.try_shared_as(pid, Wanted::Once).expect("in memory"));
        assert!(pool.optimistic_as(pid, Wanted::Once).expect("in memory").validate(), "one thread");
        assert!(
            pool.try_optimistic_as(pid, Wanted::Once).expect("in memory").is_some_and(|guard| guard.validate()),
            "one thread"
        );
        drop(pool.pin_as(pid, Wanted::Once).expect("in memory"));
        assert_eq!((frame.uses(), frame.is_passing()), (before, false));
        assert!(pool.core.passing.queue.lock().is_empty());
    }

    #[test]
    fn what_was_scanned_long_ago_is_forgotten() {
        let passing = Passing::new(128).expect("memory");
        let (least, span) = (passing.quota(), 128 * MOST as u64 / 4 - 128 / LEAST as u64);
        let scan = |pids: std::ops::Range<u64>| {
            for pid in pids.map(PageId) {
                passing.come(0, pid);
                passing.go(passing.take(0).expect("it has come"));
            }
        };
        scan(1..11);
        scan(1..11);
        // Others, for the first time.
        scan(100..100 + 2 * span);
        scan(1..11);
        assert_eq!(passing.quota(), least);
        scan(1..11);
        scan(1..11);
        assert_eq!(passing.quota(), least + 10, "now it is the third time");
    }

    #[test]
    fn a_long_row_of_pages_that_stay_does_not_put_the_policy_off() {
        let pool = pool_with(128, Some(Arc::new(MakeFifo)));
        let core = &pool.core;
        drop(pool.pin_unread(PageId(1000)).expect("a frame"));
        let own = core.table.get(PageId(1000)).expect("in memory");
        for pid in (1..=100).map(PageId) {
            let no = core.take_frame().expect("a free frame");
            let frame = &core.memory.frames()[no as usize];
            frame.set_pid(pid);
            assert!(core.table.insert(pid, no) && core.on_arrival(no, pid, Wanted::Once));
            frame.count_use(1);
            frame.latch().unlock_exclusive(core.memory.parks());
        }
        let mut first = None;
        let _ = core.sweep(&mut |no| {
            first = Some(no);
            ControlFlow::Break(())
        });
        assert_eq!(first, Some(own), "the policy knows it for longest");
        assert_eq!(core.memory.frames().iter().filter(|frame| frame.is_passing()).count(), 100 - HAND_OVERS);
        let mut named = 0;
        let _ = core.sweep(&mut |_| {
            named += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(named, 1 + 2 * HAND_OVERS, "those that can go");
        assert_eq!(
            core.memory.frames().iter().filter(|frame| frame.is_passing()).count(),
            0,
            "the last resort is not bounded"
        );
    }
}
