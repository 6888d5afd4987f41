//! Read-ahead: the queue of pages that scans have requested, and its limits.
//!
//! A request is a hint. No caller waits for it, and it is dropped when there are many. A later fix finds the page in
//! memory, being read, or missing. The page is loaded into the scan ring, and the request does not count as a use.

use foreshore_base::PageId;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex, Signal};
use std::collections::VecDeque;
use std::sync::Arc;

/// Threads that read ahead. Together they read faster than one scan consumes pages.
const READERS: usize = 4;
/// The most pages that a scan requests ahead.
const MAX_DEPTH: usize = 64;
/// One frame in so many may hold a page that was read ahead for a single scan.
const SHARE: usize = 64;
/// One frame in so many may hold a page that was read ahead for any scan. That is half of the scan ring, so the scans
/// reach the pages before those are evicted.
const SHARE_OF_ALL: usize = 16;

#[derive(Debug)]
pub(crate) struct ReadAhead {
    queue: Mutex<VecDeque<PageId>>,
    /// The most pages for one scan.
    depth: usize,
    /// The most pages for all scans together.
    capacity: usize,
    /// Scans that read ahead.
    scans: AtomicUsize,
    /// A signal for each thread that reads ahead.
    signals: [Signal; READERS],
}

impl ReadAhead {
    /// Returns the queue for a pool of so many frames. A small pool does not read ahead.
    pub(crate) fn new(frames: usize) -> Self {
        let depth = if MODEL { 1 } else { (frames / SHARE).min(MAX_DEPTH) };
        Self {
            queue: Mutex::new(LockRank::Leaf, VecDeque::with_capacity(depth)),
            depth,
            capacity: if MODEL { 1 } else { frames / SHARE_OF_ALL },
            scans: AtomicUsize::new(0),
            signals: std::array::from_fn(|_| Signal::new()),
        }
    }

    /// Returns the signals of the threads that read ahead; none in a small pool.
    pub(crate) fn signals(&self) -> &[Signal] {
        if self.depth > 0 { &self.signals } else { &[] }
    }

    /// Requests pages, as far as the queue has capacity.
    pub(crate) fn request(&self, pids: impl Iterator<Item = PageId>) {
        let mut requested = 0;
        {
            let mut queue = self.queue.lock();
            for pid in pids {
                if queue.len() == self.depth {
                    break;
                }
                if !queue.contains(&pid) {
                    queue.push_back(pid);
                    requested += 1;
                }
            }
        }
        self.signals.iter().take(requested).for_each(Signal::notify);
    }

    /// Removes and returns the oldest request.
    pub(crate) fn next(&self) -> Option<PageId> {
        self.queue.lock().pop_front()
    }
}

/// A registered scan that reads ahead. Scans share the capacity of the queue.
#[derive(Debug)]
pub struct Scan {
    ahead: Arc<ReadAhead>,
}

impl Scan {
    pub(crate) fn new(ahead: &Arc<ReadAhead>) -> Self {
        // ORDERING: Relaxed, a number that publishes nothing; here and below.
        ahead.scans.fetch_add(1, Ordering::Relaxed);
        Self { ahead: ahead.clone() }
    }

    /// Returns the most pages that the scan should request ahead of its position; zero in a small pool.
    #[must_use]
    pub fn depth(&self) -> usize {
        // ORDERING: as in `new`. This one is among them.
        self.ahead.depth.min(self.ahead.capacity / self.ahead.scans.load(Ordering::Relaxed))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // ORDERING: as in `new`.
        self.ahead.scans.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn scans_share_the_capacity_for_reading_ahead() {
        let ahead = Arc::new(ReadAhead::new(1024));
        let mut scans = vec![Scan::new(&ahead)];
        assert_eq!(scans[0].depth(), 1024 / SHARE);
        scans.extend((1..8).map(|_| Scan::new(&ahead)));
        assert_eq!(scans.iter().map(Scan::depth).sum::<usize>(), 1024 / SHARE_OF_ALL);
        scans.extend((8..65).map(|_| Scan::new(&ahead)));
        assert_eq!(scans[0].depth(), 0, "more scans than capacity");
        scans.truncate(4);
        assert_eq!(scans[0].depth(), 1024 / SHARE);
        assert_eq!(Scan::new(&Arc::new(ReadAhead::new(63))).depth(), 0, "a small pool has no frames to spare");
    }
}
