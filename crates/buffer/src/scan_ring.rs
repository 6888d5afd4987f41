//! The scan ring: the frames through which scans read, so that scans do not evict the pages in use.
//!
//! Each fix states its [`AccessPattern`]. A page that a scan loads is **in the ring**, and the replacement policy does
//! not know it. While the ring has more than its **quota** of frames, its oldest page is the next victim. A ring page
//! that is dirty, or that another caller uses, moves to the policy when it would be the victim. A scan that finds a
//! page in memory does not count as a use.
//!
//! The quota starts at one frame in [`LEAST`]. With a fixed quota a table that is scanned again and again would never
//! stay in memory, even if no other caller needs the frames. So the quota adapts, like the two lists of ARC (Megiddo
//! and Modha, FAST 2003):
//!
//! - It **grows** by a frame when a scan loads a page that was recently evicted from the ring twice: a longer ring
//!   would have kept the page. One repetition, such as a check after a backup, does not count.
//! - It **shrinks** by a frame when another caller loads a page. It also shrinks when a victim of the policy is spared
//!   because of a recent use ([`ScanRing::arrive`]). So scans grow only at the cost of unused pages.
//! - Its largest value is [`MOST`]. The ring remembers as many evicted pages as lie between the two bounds. A longer
//!   scan is read from disk each time, and takes no frames from others.
//!
//! **Invariant:** every page in the ring has an entry in the queue, or in a thread that considers it. That thread
//! evicts the page, moves it to the policy, or puts the entry back. It drops entries that are stale or double.

use crate::frame::{Frame, FrameNo};
use crate::replacement::Ghosts;
use foreshore_base::PageId;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::collections::VecDeque;
use std::io;
use std::ops::{Range, RangeInclusive};

/// One frame in so many is the least quota. It is twice what scans read ahead, so they reach those pages before their
/// eviction.
const LEAST: usize = 8;
/// The quota is at most 3 of 4 frames.
const MOST: [usize; 2] = [3, 4];

/// The access pattern of the caller of a fix: its buffer access strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPattern {
    /// Random access: the page may be needed again, so the fix counts as a use.
    #[default]
    Random,
    /// A scan: a missing page is loaded into the scan ring, and the fix of a page in memory does not count as a use.
    Scan,
}

#[derive(Debug)]
pub(crate) struct ScanRing {
    /// The entries, in the order of arrival.
    queue: Mutex<VecDeque<RingEntry>>,
    quota: AtomicUsize,
    bounds: RangeInclusive<usize>,
    /// Pages evicted from the ring, with a mark if that was the second time.
    evicted: Ghosts,
    arrivals: CachePadded<AtomicUsize>,
    frames: usize,
}

/// A page in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingEntry {
    pub(crate) no: FrameNo,
    pub(crate) pid: PageId,
    /// Whether it was evicted from the ring recently.
    is_back: bool,
}

impl RingEntry {
    /// Returns whether the page is in the ring, in that frame. Stable under a latch.
    pub(crate) fn holds(&self, frame: &Frame) -> bool {
        frame.is_in_ring() && frame.pid() == self.pid
    }
}

impl ScanRing {
    /// Returns the ring of a pool of `frames` frames.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn new(frames: usize) -> io::Result<Self> {
        let (least, most) = (frames / LEAST, frames * MOST[0] / MOST[1]);
        Ok(Self {
            queue: Mutex::new(LockRank::Leaf, VecDeque::new()),
            quota: AtomicUsize::new(least),
            bounds: least..=most,
            evicted: Ghosts::new(most - least)?,
            arrivals: CachePadded::new(AtomicUsize::new(0)),
            frames,
        })
    }

    /// Returns the number of entries up to which the policy's victims go first.
    pub(crate) fn quota(&self) -> usize {
        // ORDERING: hint, a share that is a little off costs a read at most; here and below.
        self.quota.load(Ordering::Relaxed)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Adds page `pid` to the ring. Returns the frames, modulo their number, whose recency the caller lowers. Each
    /// frame is returned once while as many pages arrive as the ring remembers evictions.
    pub(crate) fn arrive(&self, no: FrameNo, pid: PageId) -> Range<usize> {
        let mark = self.evicted.take(pid);
        if mark == Some(true) && self.quota() < *self.bounds.end() {
            // ORDERING: as in `quota`. Threads that do this at once may exceed the bound by their number, which does no
            // harm.
            self.quota.fetch_add(1, Ordering::Relaxed);
        }
        self.push(RingEntry { no, pid, is_back: mark.is_some() });
        let span = (self.bounds.end() - self.bounds.start()).max(1);
        // ORDERING: ticket; a hand that guards nothing.
        let at = self.arrivals.fetch_add(1, Ordering::Relaxed);
        at * self.frames / span..(at + 1) * self.frames / span
    }

    /// Notes that a page was evicted from the ring.
    pub(crate) fn note_eviction(&self, entry: RingEntry) {
        self.evicted.add(entry.pid, entry.is_back);
    }

    /// Lowers the quota by a frame. Returns false if it is at its least.
    pub(crate) fn shrink(&self) -> bool {
        let quota = self.quota();
        let is_larger = quota > *self.bounds.start();
        if is_larger {
            // ORDERING: as in `quota`. If another thread changes it meanwhile, one frame counts for both.
            let _ = self.quota.compare_exchange(quota, quota - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_larger
    }

    /// Takes the oldest entry if there are more than `keep`.
    pub(crate) fn pop(&self, keep: usize) -> Option<RingEntry> {
        let mut queue = self.queue.lock();
        if queue.len() > keep { queue.pop_front() } else { None }
    }

    /// Adds an entry as the youngest.
    pub(crate) fn push(&self, entry: RingEntry) {
        self.queue.lock().push_back(entry);
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_was_scanned_long_ago_is_forgotten() {
        let ring = ScanRing::new(128).expect("memory");
        let (least, span) = (ring.quota(), 128 * MOST[0] as u64 / MOST[1] as u64 - 128 / LEAST as u64);
        let scan = |pids: Range<u64>| {
            for pid in pids.map(PageId) {
                ring.arrive(0, pid);
                ring.note_eviction(ring.pop(0).expect("it has come"));
            }
        };
        scan(1..11);
        scan(1..11);
        // Others, for the first time.
        scan(100..100 + 2 * span);
        scan(1..11);
        assert_eq!(ring.quota(), least);
        scan(1..11);
        scan(1..11);
        assert_eq!(ring.quota(), least + 10, "now it is the third time");
    }
}
