//! Free frames: taking one, evicting for one, and keeping some ready ahead of need.

use crate::format::AREA_PAGES;
use crate::frame::{FrameNo, Kept};
use crate::pool::Core;
use foreshore_base::{Error, PageId};
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{NextWake, Step};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Frames that a thread evicts at once when it has to do so itself although the background thread should have.
pub(crate) const INLINE_BATCH: usize = 16;
/// How long a thread waits for one of the latches and pins that keep every page in its frame; they do not announce
/// their end.
const BUSY_WAIT: Duration = Duration::from_millis(5);
/// After so many such waits in a row that nothing ended, a second in all, in which no page was written and none gave up its
/// frame, every frame is taken to be in use for good.
const BUSY_TRIES: usize = 200;

impl Core {
    /// A frame without a page, its exclusive latch held.
    pub(crate) fn take_frame(&self) -> foreshore_base::Result<FrameNo> {
        let (mut tries, mut evicted) = (0, self.counters.evictions.sum());
        while tries < BUSY_TRIES {
            if let Some(no) = self.pop_free() {
                return Ok(no);
            }
            self.counters.evictions_inline.add(1);
            // WAIT: help - evicts, and writes pages if all are dirty, instead of waiting for the background thread.
            if spent::during(Spent::Io, || self.evict(1, self.inline_batch))? > 0 {
                continue;
            }
            let key = self.freed.prepare();
            if self.free.len(self.memory.frames()) > 0 {
                self.freed.cancel(key);
                continue;
            }
            // WAIT: park - until a frame is freed, or briefly for a latch, a pin or the cleaner at work.
            let freed = spent::during(Spent::Io, || self.freed.wait(key, Some(BUSY_WAIT)));
            // As long as frames come free, though others take them, or a batch is under way, however slow the disk, this
            // thread's turn comes. Who evicts for itself may not have told anybody.
            let now = self.counters.evictions.sum();
            tries = if freed || now != evicted || self.cleaner.is_busy() { 0 } else { tries + 1 };
            evicted = now;
        }
        Err(Error::OutOfFrames { frames: self.memory.frames().len() })
    }

    /// [`Core::take_frame`] of the free ones only.
    pub(crate) fn pop_free(&self) -> Option<FrameNo> {
        let (no, left) = self.free.pop(self.memory.frames())?;
        if left < self.low_mark() {
            self.low.notify();
        }
        let frame = &self.memory.frames()[no as usize];
        // WAIT: park - for a reader that came with a stale frame number; it leaves as soon as it has compared the page id.
        frame.latch().lock_exclusive(self.memory.parks());
        assert_eq!(frame.pid(), PageId::ZERO, "frame {no} was free");
        Some(no)
    }

    /// Fewer free frames than this and the background thread makes more, up to twice as many.
    fn low_mark(&self) -> usize {
        (self.memory.frames().len() / 64).clamp(1, 1024)
    }

    /// Evicts up to `want` pages in the order of the policy; if fewer than `need` can go as they are, writes dirty ones
    /// first. Returns how many frames became free.
    ///
    /// The sweep ends when a whole batch of dirty pages has been met: clean pages go first, but the hand does not race
    /// round for the last few of them, which would take every page's second chance away.
    fn evict(&self, need: usize, want: usize) -> foreshore_base::Result<usize> {
        // ORDERING: hint, see `Core::dry`.
        if need == 1 && self.dry.load(Ordering::Relaxed) && self.cleaner.is_full() {
            return Ok(0);
        }
        let mut freed = 0;
        let (mut dirty, under_way) = (Vec::new(), self.cleaner.under_way());
        // Whether the sweep broke off makes no difference.
        let _ = self.sweep(&mut |no| {
            match self.try_evict(no) {
                Ok(()) => freed += 1,
                // The hand of a small pool comes by twice.
                Err(Kept::Dirty) if !dirty.contains(&no) && !under_way.contains(&no) => dirty.push(no),
                Err(Kept::Dirty | Kept::Busy) => {}
            }
            if freed >= want || dirty.len() == AREA_PAGES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if freed < need && !dirty.is_empty() {
            // Not a wait: this thread may hold latches that the cleaner at work wants. Its frames come to this thread too.
            match self.cleaner.try_round() {
                // Who needs more than one frame is the thread that keeps them free.
                Some(mut round) => drop(self.clean(&mut round, &mut dirty, need > 1)?),
                // ORDERING: hint, see `Core::dry`.
                None => self.dry.store(freed == 0, Ordering::Relaxed),
            }
            freed += dirty.iter().filter(|&&no| self.try_evict(no).is_ok()).count();
        }
        Ok(freed)
    }

    fn try_evict(&self, no: FrameNo) -> Result<(), Kept> {
        let frame = &self.memory.frames()[no as usize];
        let pid = frame.try_vacate(self.memory.parks())?;
        if frame.is_passing() {
            frame.end_passing();
        } else {
            self.replacement.on_evict(self.view(), no, pid);
        }
        self.table.remove(pid, no);
        self.counters.evictions.add(1);
        self.give_back(no);
        Ok(())
    }

    /// One refill of the store of free frames.
    pub(crate) fn provide(&self) -> foreshore_base::Result<NextWake> {
        let (free, low) = (self.free.len(self.memory.frames()), self.low_mark());
        if free >= low {
            return Ok(NextWake::OnSignal);
        }
        let want = 2 * low - free;
        let freed = self.evict(want, want)?;
        // With nothing to evict there is nothing to repeat; the next thread that takes a frame rings again.
        Ok(if freed == 0 || freed >= want { NextWake::OnSignal } else { NextWake::Now })
    }
}

/// The background step that keeps free frames ready.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) core: Arc<Core>,
}

impl Step for Provider {
    fn step(&self) -> NextWake {
        // An error has stopped the log, which is how everybody hears of it.
        self.core.provide().unwrap_or(NextWake::OnSignal)
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use crate::frame::FrameNo;
    use crate::pool::tests::empty_pool;
    use foreshore_base::PageId;
    use foreshore_sync::primitive::thread;
    use std::time::Duration;

    #[test]
    fn who_is_told_of_free_frames_again_and_again_does_not_give_up() {
        let pool = empty_pool(16);
        let pins: Vec<_> = (1..=16).map(|pid| pool.pin_unread(PageId(pid)).expect("a frame")).collect();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.pin_unread(PageId(17)).map(drop));
            // Frames that others take each time, more often than a thread waits for frames that nobody gives up.
            while pool.stats().evictions_inline < 2 * super::BUSY_TRIES as u64 && !waiter.is_finished() {
                pool.core.freed.notify_one();
                thread::yield_now();
            }
            drop(pins);
            waiter.join().expect("no panic").expect("a frame came free");
        });
    }

    #[test]
    fn the_provider_does_not_ring_for_itself_when_it_has_found_nothing_to_write() {
        let pool = empty_pool(16);
        let guards: Vec<_> = (1..=16)
            .map(|pid| {
                let mut guard = pool.create(PageId(pid)).expect("a frame");
                guard.mark_dirty();
                guard
            })
            .collect();
        let rung = || pool.core.low.wait(Some(Duration::ZERO));
        rung();
        // Every page is dirty, latched, and in nobody's round.
        assert_eq!(pool.provide_step().expect("no page to write"), super::NextWake::OnSignal);
        assert!(!rung(), "it would come back at once, for ever");
        // Another's round may have kept the provider from its work, so its end rings.
        let mut frames: Vec<FrameNo> = (0..16).collect();
        let mut round = pool.core.cleaner.try_round().expect("nobody cleans");
        pool.core.clean(&mut round, &mut frames, false).expect("no page to write");
        assert!(rung());
        drop(guards);
    }
}
