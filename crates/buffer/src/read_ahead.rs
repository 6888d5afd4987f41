//! Read-ahead: the pages that scans have asked for, and how many they may ask for.
//!
//! A request is a hint. No caller waits for it, it is dropped when there are many, and what becomes of it shows when
//! the page is fixed: in memory, being read, or missing as if it had not been asked for. It does not count as a use of
//! the page, which comes into the scan ring.

use foreshore_base::PageId;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex, Signal};
use std::collections::VecDeque;
use std::sync::Arc;

/// Threads that read ahead: one thread that scans is slower than the reads of so many.
const READERS: usize = 4;
/// The most pages that are asked for at a time.
const MAX_DEPTH: usize = 64;
/// One frame in so many may hold a page that was read ahead for one scan.
const SHARE: usize = 64;
/// One frame in so many may hold a page that was read ahead for any scan: half of the scan ring, so that the scans
/// reach the pages before they leave.
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
    /// One for each thread that reads ahead.
    signals: [Signal; READERS],
}

impl ReadAhead {
    /// Returns the queue of a pool of so many frames. A small one has none to spare.
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

    /// Asks for pages, as far as the queue has capacity.
    pub(crate) fn ask(&self, pids: impl Iterator<Item = PageId>) {
        let mut asked = 0;
        {
            let mut queue = self.queue.lock();
            for pid in pids {
                if queue.len() == self.depth {
                    break;
                }
                if !queue.contains(&pid) {
                    queue.push_back(pid);
                    asked += 1;
                }
            }
        }
        self.signals.iter().take(asked).for_each(Signal::notify);
    }

    /// Takes the page that was asked for first.
    pub(crate) fn next(&self) -> Option<PageId> {
        self.queue.lock().pop_front()
    }
}

/// A scan that reads ahead, counted until it is dropped. The scans share the capacity for it.
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

    /// Returns the most pages that the scan should have asked for and not reached; none in a small pool.
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
