//! Residency: which page is in which frame. Finds and fixes pages in memory, and moves pages into frames and out.
//!
//! A frame is in one of these states:
//!
//! | state | page table | latch | leads to |
//! |---|---|---|---|
//! | free | - | free, except for readers with a stale frame number | vacant, by [`Residency::take_free`] |
//! | vacant | - | held by [`Vacant`] | loading, by [`Vacant::enter`]; free |
//! | loading | names the frame | held by [`Vacant`] | resident, by [`Vacant::fill`]; free |
//! | resident | names the frame | free or held by guards | free, by [`Residency::evict`] or [`Residency::discard`] |
//!
//! A fix has three steps:
//!
//! 1. Look up the frame of the page.
//! 2. Latch the frame, or read its version.
//! 3. Compare the page id in the frame. Until then the frame is a hint, for it may hold another page by now.
//!
//! **Invariant:** a page is in one frame at most. Only the thread that holds the exclusive latch of a frame sets or
//! clears the table entry that names it.
//!
//! **Invariant:** a thread that holds the latch of a page waits for the latch of another page only if that page is
//! pinned. A pinned page cannot leave its frame meanwhile.

use crate::format::page_id;
use crate::frame::{FrameNo, Kept};
use crate::free::FreeList;
use crate::guard::{ExclusiveGuard, LatchGuard};
use crate::memory::{Memory, Slot};
use crate::optimistic::OptimisticGuard;
use crate::pinned::Pinned;
use crate::replacement::ReplacementPolicy;
use crate::replacer::{Consider, Replacer};
use crate::scan_ring::AccessPattern;
use crate::table::PageTable;
use foreshore_base::PageId;
use foreshore_sync::model::mutant;
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{EventCount, Hot, Hottest, Signal};
use foreshore_wal::Log;
use std::io;
use std::ops::ControlFlow;

#[derive(Debug)]
pub(crate) struct Residency {
    memory: Memory,
    table: PageTable,
    replacer: Replacer,
    free: FreeList,
    /// Notified when a frame becomes free, or a page clean.
    freed: EventCount,
    /// Notified when free frames, or those with committed memory, run low.
    low: Signal,
    /// The pages for whose latches measured threads have waited.
    hot: Hottest<PageId>,
}

impl Residency {
    /// Returns `frames` frames, all of them free.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub(crate) fn new(frames: usize, policy: Box<dyn ReplacementPolicy>, log: Log) -> io::Result<Self> {
        let memory = Memory::new(frames, log)?;
        Ok(Self {
            table: PageTable::new(),
            replacer: Replacer::new(policy, frames)?,
            free: FreeList::all(memory.frames()),
            memory,
            freed: EventCount::new(),
            low: Signal::new(),
            hot: Hottest::new(),
        })
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn freed(&self) -> &EventCount {
        &self.freed
    }

    pub(crate) fn low(&self) -> &Signal {
        &self.low
    }

    pub(crate) fn hot_pages(&self) -> Vec<Hot<PageId>> {
        self.hot.list()
    }

    pub(crate) fn page_table_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Returns the frame in which the page table has a page.
    #[inline(always)]
    fn find(&self, pid: PageId) -> Option<Slot<'_>> {
        self.memory.find(self.table.hint(pid))
    }

    /// Returns the frame in which the page table has a page that is about to be latched.
    #[inline]
    fn find_to_latch(&self, pid: PageId) -> Option<Slot<'_>> {
        let slot = self.find(pid)?;
        // Before the latch: what follows a locked instruction waits for it.
        slot.prefetch();
        Some(slot)
    }

    /// Returns the frame of a page that is in memory and not being read.
    fn find_loaded(&self, pid: PageId) -> Option<Slot<'_>> {
        self.find_to_latch(pid).filter(|slot| !slot.frame().is_loading())
    }

    /// Latches the frame in which `pid` was found. The wait is counted for the page, if the thread is measured.
    fn latch<'a, G: LatchGuard<'a>>(&'a self, slot: Slot<'a>, pid: PageId) -> G {
        if spent::is_measured()
            && let Some(guard) = G::try_latch(slot)
        {
            return guard;
        }
        spent::during_noted(Spent::LatchWait, || G::latch(slot), |took| self.hot.add(pid, took))
    }

    /// Returns the guard if its page is `pid`, and notes the use.
    fn accept<'a, G: LatchGuard<'a>>(&self, guard: G, pid: PageId, pattern: AccessPattern) -> Option<G> {
        let slot = guard.slot();
        (slot.frame().pid() == pid).then(|| {
            self.replacer.note_use(slot, pattern);
            guard
        })
    }

    /// Fixes a page that is in memory or being read. `None` if it is neither. The caller holds no latch.
    pub(crate) fn fix<'a, G: LatchGuard<'a>>(&'a self, pid: PageId, pattern: AccessPattern) -> Option<G> {
        loop {
            let slot = self.find_to_latch(pid)?;
            // If the frame holds another page, `pid` was evicted after the look-up, and the table shows that now.
            if slot.frame().pid() != pid {
                continue;
            }
            // Waiting for a read in progress does not count as a use of the page.
            let pattern = if slot.frame().is_loading() { AccessPattern::Scan } else { pattern };
            // WAIT: park - for the holders of the latch. One may be reading the page.
            let guard = self.latch(slot, pid);
            if let Some(guard) = self.accept(guard, pid, pattern) {
                return Some(guard);
            }
        }
    }

    /// Fixes a page that is in memory. `None` if it is not, or is being read. The caller holds no latch, because it may
    /// wait for another page that is in the frame by now.
    pub(crate) fn fix_loaded<'a, G: LatchGuard<'a>>(&'a self, pid: PageId, pattern: AccessPattern) -> Option<G> {
        let slot = self.find_loaded(pid)?;
        // WAIT: park - for the holders of the latch. This thread holds no latch.
        let guard = self.latch(slot, pid);
        self.accept(guard, pid, pattern)
    }

    /// Fixes a page that is in memory. `None` if it is not, is being read, or is latched and not pinned. The caller may
    /// have other pages latched.
    pub(crate) fn try_fix<'a, G: LatchGuard<'a>>(&'a self, pid: PageId, pattern: AccessPattern) -> Option<G> {
        let slot = self.find_loaded(pid)?;
        let guard = match G::try_latch(slot) {
            Some(guard) => guard,
            None => self.latch_pinned(slot, pid)?,
        };
        self.accept(guard, pid, pattern)
    }

    /// Latches the frame of a pinned page under one more pin, so that the wait is for this page and no other. Without
    /// the pin the frame could get another page during the wait. Its holder might wait for a page that the caller has
    /// latched.
    #[cold]
    fn latch_pinned<'a, G: LatchGuard<'a>>(&'a self, slot: Slot<'a>, pid: PageId) -> Option<G> {
        let pin = Pinned::again(slot, pid);
        let may_wait = pin.is_some() || mutant("pool: wait beside a latch for whatever is in the frame");
        // WAIT: park - for the holders of the latch of this very page.
        may_wait.then(|| self.latch(slot, pid))
    }

    /// Fixes a page that is in memory and not latched exclusively, without its latch. The path has as few instructions
    /// as possible, and its values stay in registers.
    #[inline(always)]
    pub(crate) fn optimistic(&self, pid: PageId, pattern: AccessPattern) -> Option<OptimisticGuard<'_>> {
        let slot = self.find(pid)?;
        // The version is read first: if the frame gets another page after this, the version no longer validates.
        let version = slot.frame().latch().optimistic_version()?;
        if slot.frame().pid() != pid {
            return None;
        }
        self.replacer.note_use(slot, pattern);
        Some(OptimisticGuard::new(slot, pid, version))
    }

    /// Returns whether a page is in memory or being read. A hint.
    pub(crate) fn contains(&self, pid: PageId) -> bool {
        self.table.get(pid).is_some()
    }

    /// Prepares the page table for `pid`, which is in its range, before it is entered.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn prepare(&self, pid: PageId) -> io::Result<()> {
        self.table.prepare(pid)
    }

    /// Returns how many frames are free. A hint.
    pub(crate) fn free_frames(&self) -> usize {
        self.free.len(self.memory.frames())
    }

    /// Returns the number of free frames below which the background thread frees more, up to twice as many.
    pub(crate) fn low_mark(&self) -> usize {
        (self.memory.frames().len() / 64).clamp(1, 1024)
    }

    /// Takes a free frame.
    pub(crate) fn take_free(&self) -> Option<Vacant<'_>> {
        let (no, left) = self.free.pop(self.memory.frames())?;
        if self.memory.note_use(no) || left < self.low_mark() {
            self.low.notify();
        }
        let slot = self.memory.slot(no);
        // WAIT: park - for a reader with a stale frame number, which releases the latch once it has compared the page
        // id.
        slot.frame().latch().lock_exclusive(slot.parks());
        assert_eq!(slot.frame().pid(), PageId::ZERO, "frame {no} was free");
        Some(Vacant { residency: self, slot })
    }

    /// Passes frames to `consider`, the best victim first, until it breaks or there are no more.
    pub(crate) fn sweep(&self, consider: Consider<'_>) -> ControlFlow<()> {
        self.replacer.sweep(&self.memory, consider)
    }

    /// Evicts the page in a frame, if it is clean and not in use. The frame is free then.
    pub(crate) fn evict(&self, no: FrameNo) -> Result<(), Kept> {
        let slot = self.memory.slot(no);
        let pid = slot.frame().try_vacate(slot.parks())?;
        self.replacer.note_eviction(slot, pid);
        drop(Vacant { residency: self, slot });
        Ok(())
    }

    /// Frees the frame of a latched page without writing it, though it may be dirty. No thread has the page pinned.
    pub(crate) fn discard(&self, page: ExclusiveGuard<'_>) {
        let (slot, pid) = (page.slot(), page.pid());
        assert!(!slot.frame().is_pinned(), "page {pid} is pinned and leaves memory");
        // The vacant frame takes the latch over.
        std::mem::forget(page);
        if slot.frame().is_dirty() {
            slot.set_clean();
        }
        self.replacer.note_eviction(slot, pid);
        drop(Vacant { residency: self, slot });
    }
}

/// A latched frame without a page: the page is not loaded yet, or was evicted. On drop the frame becomes free.
pub(crate) struct Vacant<'a> {
    residency: &'a Residency,
    slot: Slot<'a>,
}

impl<'a> Vacant<'a> {
    /// Enters `pid` in the page table. Other threads that need the page then wait for the latch. Returns false if the
    /// page is in memory already.
    pub(crate) fn enter(&self, pid: PageId) -> bool {
        let frame = self.slot.frame();
        frame.set_pid(pid);
        frame.set_loading(true);
        let entered = self.residency.table.insert(pid, self.slot.no());
        if !entered {
            frame.set_pid(PageId::ZERO);
        }
        entered
    }

    /// Fills the frame with the page that was entered.
    pub(crate) fn fill(self, page: &[u8], pattern: AccessPattern) -> ExclusiveGuard<'a> {
        let Self { residency, slot } = self;
        // The guard takes the latch over.
        std::mem::forget(self);
        let mut guard = ExclusiveGuard::adopt(slot);
        guard.put(page);
        assert_eq!(page_id(&guard), guard.pid(), "the id in a page, and that of the page that was read");
        slot.frame().set_loading(false);
        residency.replacer.note_load(slot, guard.pid(), pattern);
        guard
    }
}

impl Drop for Vacant<'_> {
    /// Frees the frame. Threads that wait for its page wake, find the page missing and load it themselves.
    fn drop(&mut self) {
        let (frame, no) = (self.slot.frame(), self.slot.no());
        debug_assert!(!frame.is_dirty() && !frame.is_pinned(), "frame {no} is in use");
        let pid = frame.pid();
        if pid != PageId::ZERO {
            self.residency.table.remove(pid, no);
        }
        frame.set_pid(PageId::ZERO);
        frame.set_loading(false);
        // The release raises the version, so that no optimistic reader takes the bytes for those of the earlier page.
        frame.latch().unlock_exclusive(self.slot.parks());
        self.residency.free.push(self.residency.memory.frames(), no);
        self.residency.freed.notify_one();
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
