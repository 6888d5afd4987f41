//! Read-ahead: pages that somebody will want soon are read by background threads, several at a time.
//!
//! A request is a hint. Nobody waits for it, it is dropped when there are many, and what becomes of it shows when the page is
//! fixed: in memory, being read, or missing as if nobody had asked. Nor does it count as a use of the page, which passes through
//! ([`crate::passing`]) unless somebody else wants it.

use crate::load::Fill;
use crate::passing::Wanted;
use crate::pool::Core;
use foreshore_base::PageId;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex, NextWake, Signal, Step};
use std::collections::VecDeque;
use std::sync::Arc;

/// Threads that read ahead: one thread that scans is slower than the reads of so many.
pub(crate) const READERS: usize = 4;
/// Most pages that are asked for at a time.
const MAX_DEPTH: usize = 64;
/// Of so many frames one may hold a page that a scan has had read ahead.
const SHARE: usize = 64;
/// Of so many frames one may hold a page that any scan has had read ahead: half of what passes through, so that the scans reach
/// them before they leave.
const SHARE_OF_ALL: usize = 16;

/// What is to be read.
#[derive(Debug)]
pub(crate) struct Ahead {
    queue: Mutex<VecDeque<PageId>>,
    depth: usize,
    /// Pages that all scans together may have read ahead.
    room: usize,
    /// Scans that read ahead.
    scans: AtomicUsize,
    /// Rung when there is something in the queue, one a thread.
    pub(crate) bells: [Signal; READERS],
}

impl Ahead {
    /// For a pool of so many frames. A small one has none to spare.
    pub(crate) fn new(frames: usize) -> Self {
        let depth = if MODEL { 1 } else { (frames / SHARE).min(MAX_DEPTH) };
        let queue = Mutex::new(LockRank::Leaf, VecDeque::with_capacity(depth));
        let bells = std::array::from_fn(|_| Signal::new());
        let room = if MODEL { 1 } else { frames / SHARE_OF_ALL };
        Self { queue, depth, room, scans: AtomicUsize::new(0), bells }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

impl Core {
    /// Asks for pages that are not in memory, as far as there is room.
    pub(crate) fn prefetch(&self, pids: &[PageId]) {
        let missing = |pid: &PageId| self.check(*pid).is_ok() && self.table.get(*pid).is_none();
        let mut asked = 0;
        {
            let mut queue = self.ahead.queue.lock();
            for &pid in pids.iter().filter(|pid| missing(pid)) {
                if queue.len() == self.ahead.depth {
                    break;
                }
                if !queue.contains(&pid) {
                    queue.push_back(pid);
                    asked += 1;
                }
            }
        }
        self.ahead.bells.iter().take(asked).for_each(Signal::notify);
    }

    /// Reads one page that was asked for, if it is still missing; false if there is nothing to do.
    pub(crate) fn read_ahead(&self) -> bool {
        let pid = self.ahead.queue.lock().pop_front();
        let Some(pid) = pid else { return false };
        if self.table.get(pid).is_some() {
            return true;
        }
        // An error is for those who want the page.
        let has_read = self.load(pid, Fill::Read, Wanted::Once).is_ok_and(|page| page.is_some());
        self.counters.pages_ahead.add(has_read.into());
        true
    }
}

/// A scan that reads ahead. Those that there are share the room for it.
#[derive(Debug)]
pub struct Scan {
    core: Arc<Core>,
}

impl Scan {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        // ORDERING: Relaxed, a number that publishes nothing; here and below.
        core.ahead.scans.fetch_add(1, Ordering::Relaxed);
        Self { core: core.clone() }
    }

    /// Most pages that it should have asked for and not come to; none in a small pool.
    #[must_use]
    pub fn depth(&self) -> usize {
        let ahead = &self.core.ahead;
        // ORDERING: as in `new`. This one is among them.
        ahead.depth.min(ahead.room / ahead.scans.load(Ordering::Relaxed))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // ORDERING: as in `new`.
        self.core.ahead.scans.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The background step that reads ahead.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) core: Arc<Core>,
}

impl Step for Reader {
    fn step(&self) -> NextWake {
        if self.core.read_ahead() { NextWake::Now } else { NextWake::OnSignal }
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::pool::tests::empty_pool;

    #[test]
    fn scans_share_the_room_for_reading_ahead() {
        let pool = empty_pool(1024);
        let mut scans = vec![pool.scan()];
        assert_eq!(scans[0].depth(), 1024 / SHARE);
        scans.extend((1..8).map(|_| pool.scan()));
        assert_eq!(scans.iter().map(Scan::depth).sum::<usize>(), 1024 / SHARE_OF_ALL);
        scans.extend((8..65).map(|_| pool.scan()));
        assert_eq!(scans[0].depth(), 0, "more scans than room");
        scans.truncate(4);
        assert_eq!(scans[0].depth(), 1024 / SHARE);
        assert_eq!(empty_pool(63).scan().depth(), 0, "a small pool has no frames to spare");
    }

    #[test]
    fn reading_a_page_ahead_is_no_use_of_it() {
        let pool = empty_pool(128);
        drop(pool.pin_unread(PageId(1)).expect("a frame"));
        let frame = &pool.core.memory.frames()[pool.core.table.get(PageId(1)).expect("in memory") as usize];
        let before = frame.uses();
        pool.prefetch(&[PageId(1)]);
        pool.core.ahead.queue.lock().push_back(PageId(1));
        assert!(pool.core.read_ahead() && !pool.core.read_ahead());
        assert_eq!((frame.uses(), pool.stats().pages_ahead), (before, 0), "it has come in meanwhile");
    }
}
