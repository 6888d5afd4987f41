//! The reclaimer: frees frames, ahead of need and on demand.
//!
//! A background thread evicts as soon as free frames run low. A thread that finds no free frame evicts itself. Both
//! evict clean pages in the order of the replacement policy, and first write dirty ones home if too few are clean.

use crate::cleaner::Cleaner;
use crate::format::AREA_PAGES;
use crate::frame::{FrameNo, Kept};
use crate::residency::{Residency, Vacant};
use foreshore_base::{Error, Result};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{NextWake, ShardedCounter, Step};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Frames that a thread frees at once when the background thread has left none free.
const INLINE_BATCH: usize = 16;
/// How long a thread waits while latches and pins keep every page in its frame; their release is not notified.
const BUSY_WAIT: Duration = Duration::from_millis(5);
/// The number of such waits in a row, a second in all, after which a thread fails with `OutOfFrames`. Waits in which a
/// page was written or a frame was freed do not count.
const BUSY_TRIES: usize = 200;

#[derive(Debug)]
pub(crate) struct Reclaimer {
    residency: Arc<Residency>,
    cleaner: Arc<Cleaner>,
    /// Frames that a thread frees at once when none is free.
    inline_batch: usize,
    /// The count of the cleaner's ended rounds at the last sweep that met only dirty pages while both rounds were busy.
    /// Until another round ends, a sweep would only age the pages. A hint.
    dry: AtomicU64,
    evictions: ShardedCounter,
    evictions_inline: ShardedCounter,
}

impl Reclaimer {
    /// Creates a reclaimer; `background` if a thread drives it. Without one, frames are freed one at a time on a miss,
    /// so the policy alone decides which pages stay in memory.
    pub(crate) fn new(residency: Arc<Residency>, cleaner: Arc<Cleaner>, background: bool) -> Self {
        Self {
            inline_batch: if background { INLINE_BATCH.min(residency.memory().frames().len() / 8) } else { 1 },
            residency,
            cleaner,
            dry: AtomicU64::new(u64::MAX),
            evictions: ShardedCounter::new(),
            evictions_inline: ShardedCounter::new(),
        }
    }

    pub(crate) fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    /// Returns the counts of evictions, and of threads that had to evict on a miss.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.evictions, &self.evictions_inline].map(ShardedCounter::sum)
    }

    /// Takes a free frame, and frees one if there is none.
    ///
    /// # Errors
    /// `OutOfFrames` if every page stays pinned or latched; errors of the cleaner.
    pub(crate) fn take_frame(&self) -> Result<Vacant<'_>> {
        let freed = self.residency.freed();
        let (mut tries, mut evictions) = (0, self.evictions.sum());
        while tries < BUSY_TRIES {
            if let Some(frame) = self.residency.take_free() {
                return Ok(frame);
            }
            self.evictions_inline.add(1);
            // WAIT: help - evicts, and writes pages if all are dirty, instead of waiting for the background thread.
            if spent::during(Spent::Io, || self.evict(1, self.inline_batch))? > 0 {
                continue;
            }
            let key = freed.prepare();
            if self.residency.free_frames() > 0 {
                freed.cancel(key);
                continue;
            }
            // WAIT: park - until a frame is freed, or briefly for a latch, a pin or the cleaner at work.
            let is_notified = spent::during(Spent::Io, || freed.wait(key, Some(BUSY_WAIT)));
            // The wait makes progress while frames become free, even if other threads take them, or while a batch is
            // under way. Both are checked here, because a thread that evicts itself may not have notified.
            let now = self.evictions.sum();
            tries = if is_notified || now != evictions || self.cleaner.rounds().is_busy() { 0 } else { tries + 1 };
            evictions = now;
        }
        Err(Error::OutOfFrames { frames: self.residency.memory().frames().len() })
    }

    /// Frees frames once, if they run low.
    pub(crate) fn refill(&self) -> Result<NextWake> {
        let (free, low) = (self.residency.free_frames(), self.residency.low_mark());
        if free >= low {
            return Ok(NextWake::OnSignal);
        }
        let want = 2 * low - free;
        let freed = self.evict(want, want)?;
        // Without a page to evict, the next thread that takes a frame notifies again.
        Ok(if freed == 0 || freed >= want { NextWake::OnSignal } else { NextWake::Now })
    }

    /// Evicts up to `want` pages in the order of the policy. If fewer than `need` are clean, it writes dirty pages
    /// first. Returns how many frames became free.
    ///
    /// Clean pages go first, but the sweep ends after a whole batch of dirty pages. If it went on for the last few
    /// clean pages, it would take every page's second chance.
    fn evict(&self, need: usize, want: usize) -> Result<usize> {
        // ORDERING: hint, see the field.
        if need == 1 && self.cleaner.rounds().is_full_since(self.dry.load(Ordering::Relaxed)) {
            return Ok(0);
        }
        let (under_way, ended) = self.cleaner.rounds().under_way();
        let (mut freed, mut dirty) = (0, Vec::new());
        // The result only says whether the sweep was broken off.
        let _ = self.residency.sweep(&mut |no| {
            match self.try_evict(no) {
                Ok(()) => freed += 1,
                // In a small pool the sweep may name a frame twice.
                Err(Kept::Dirty) if !dirty.contains(&no) && !under_way.contains(&no) => dirty.push(no),
                Err(Kept::Dirty | Kept::Busy) => {}
            }
            if freed >= want || dirty.len() == AREA_PAGES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if freed < need && !dirty.is_empty() {
            // Only the background thread needs more than one frame.
            if !self.cleaner.try_clean(&mut dirty, need > 1)? {
                // ORDERING: hint, see the field.
                self.dry.store(if freed == 0 { ended } else { u64::MAX }, Ordering::Relaxed);
            }
            freed += dirty.iter().filter(|&&no| self.try_evict(no).is_ok()).count();
        }
        Ok(freed)
    }

    fn try_evict(&self, no: FrameNo) -> std::result::Result<(), Kept> {
        self.residency.evict(no)?;
        self.evictions.add(1);
        Ok(())
    }
}

/// The background step that keeps frames free.
impl Step for Reclaimer {
    fn step(&self) -> NextWake {
        self.residency.memory().commit_ahead();
        // The error has stopped the log, so all sessions get it.
        self.refill().unwrap_or(NextWake::OnSignal)
    }
}
