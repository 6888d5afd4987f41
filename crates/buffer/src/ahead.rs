//! Read-ahead: pages that somebody will want soon are read by background threads, several at a time.
//!
//! A request is a hint. Nobody waits for it, it is dropped when there are many, and what becomes of it shows when the page is
//! fixed: in memory, being read, or missing as if nobody had asked.

use crate::pool::Core;
use foreshore_base::PageId;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{LockRank, Mutex, NextWake, Signal, Step};
use std::collections::VecDeque;
use std::sync::Arc;

/// Threads that read ahead: one thread that scans is slower than the reads of so many.
pub(crate) const READERS: usize = 4;
/// Most pages that are asked for at a time.
const MAX_DEPTH: usize = 64;
/// Of so many frames one may hold a page read ahead.
const SHARE: usize = 64;

/// What is to be read.
#[derive(Debug)]
pub(crate) struct Ahead {
    queue: Mutex<VecDeque<PageId>>,
    depth: usize,
    /// Rung when there is something in the queue, one a thread.
    pub(crate) bells: [Signal; READERS],
}

impl Ahead {
    /// For a pool of so many frames. A small one has none to spare.
    pub(crate) fn new(frames: usize) -> Self {
        let depth = if MODEL { 1 } else { (frames / SHARE).min(MAX_DEPTH) };
        let queue = Mutex::new(LockRank::Leaf, VecDeque::with_capacity(depth));
        Self { queue, depth, bells: std::array::from_fn(|_| Signal::new()) }
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
        // An error is for those who want the page.
        if self.table.get(pid).is_none() && self.shared(pid).is_ok() {
            self.counters.pages_ahead.add(1);
        }
        true
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
