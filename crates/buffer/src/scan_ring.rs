//! The scan ring: the part of the frames through which scans read, so that they do not push out the pages in use.
//!
//! Each fix states its [`AccessPattern`]. A page that a scan brings in is **in the ring**: the replacement policy does
//! not know it, and while the ring has more than its **quota** of frames, its oldest page is the next victim. A scan
//! that finds a page in memory leaves no trace there. A page of the ring that is dirty or that another caller uses goes
//! over to the policy when its turn comes.
//!
//! The quota begins at one frame in [`LEAST`]. With that alone a table that is scanned again and again would never stay
//! in memory, even where no other caller wants the frames. So the quota adapts, as ARC adapts its two lists (Megiddo
//! and Modha, FAST 2003):
//!
//! - It **grows** by a frame when a scan brings in a page that has left the ring twice of late: a longer ring would
//!   have kept it. The second scan of a table, a check after a backup say, shows nothing yet.
//! - It **shrinks** by a frame when a page comes in for another caller, and when a victim of the policy is spared
//!   because it was used while the last row of scanned pages came, or the one before. So scans grow at the cost of
//!   pages that are not used.
//! - It ends at [`MOST`]. Ids of pages are kept for as many departures as lie between the two bounds. A longer scan is
//!   read from disk each time, and takes nothing from others.
//!
//! **Invariant:** every page in the ring has an entry in the queue, or in the hands of a thread that considers it. That
//! thread evicts the page, gives it to the policy, or puts the entry back. Entries may be stale or double; the thread
//! that meets one drops it.

use crate::frame::{Frame, FrameNo};
use crate::replacement::Ghosts;
use foreshore_base::PageId;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::collections::VecDeque;
use std::io;
use std::ops::{Range, RangeInclusive};

/// One frame in so many is the least quota: twice what scans read ahead, so that they reach those pages before they
/// leave.
const LEAST: usize = 8;
/// The quota is at most 3 of 4 frames.
const MOST: [usize; 2] = [3, 4];

/// How the caller of a fix goes through pages: its buffer access strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPattern {
    /// The page may be wanted again: the fix counts as a use.
    #[default]
    Random,
    /// The caller scans: a page that is not in memory comes into the scan ring, and the fix of one that is does not
    /// count as a use.
    Scan,
}

#[derive(Debug)]
pub(crate) struct ScanRing {
    /// In the order of arrival.
    queue: Mutex<VecDeque<RingEntry>>,
    quota: AtomicUsize,
    bounds: RangeInclusive<usize>,
    /// Pages that have left from the ring, marked if they had left before.
    evicted: Ghosts,
    arrivals: CachePadded<AtomicUsize>,
    frames: usize,
}

/// A page in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingEntry {
    pub(crate) no: FrameNo,
    pub(crate) pid: PageId,
    /// Whether it has left from the ring of late.
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

    /// Page `pid` comes into the ring. Returns the frames, modulo their number, whose pages then were used longer ago.
    /// They are all frames once while as many pages come as departures are kept.
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

    /// A page has been evicted from the ring.
    pub(crate) fn leave(&self, entry: RingEntry) {
        self.evicted.add(entry.pid, entry.is_back);
    }

    /// Takes a frame from the quota. False if it is at its least.
    pub(crate) fn shrink(&self) -> bool {
        let quota = self.quota();
        let is_larger = quota > *self.bounds.start();
        if is_larger {
            // ORDERING: as in `quota`. If another thread changes it meanwhile, one frame is good for both.
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
                ring.leave(ring.pop(0).expect("it has come"));
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
