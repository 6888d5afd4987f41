//! The ways to fix a page.

use crate::guard::{ExclusiveGuard, LatchGuard, SharedGuard};
use crate::load::Fill;
use crate::memory::Slot;
use crate::optimistic::OptimisticGuard;
use crate::passing::Wanted;
use crate::pinned::Pinned;
use crate::pool::Core;
use foreshore_base::{PageId, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::spent::{self, Spent};

impl Core {
    /// The frame in which the table has a page.
    #[inline(always)]
    fn find(&self, pid: PageId) -> Option<Slot<'_>> {
        let slot = self.memory.find(self.table.hint(pid))?;
        slot.prefetch();
        Some(slot)
    }

    /// The frame of a page that is in memory and not being read. A hint until the page id is compared under the latch.
    fn loaded(&self, pid: PageId) -> Option<Slot<'_>> {
        self.find(pid).filter(|slot| !slot.frame().is_loading())
    }

    /// Tells the policy of a use, if there is one and that makes a difference.
    #[inline]
    fn note_use(&self, slot: Slot<'_>, wanted: Wanted) {
        if wanted == Wanted::Again && slot.frame().use_bits() < self.enough {
            self.tell_use(slot);
        }
    }

    // Cold where it matters: pages in use have enough.
    #[cold]
    fn tell_use(&self, slot: Slot<'_>) {
        match self.use_cap {
            Some(cap) => slot.frame().count_use(cap),
            // The policy does not know the page yet.
            None if slot.frame().is_passing() => slot.frame().count_use(1),
            None => {
                slot.frame().count_use(0);
                self.replacement.on_use(self.view(), slot.no());
            }
        }
    }

    /// Latches a frame in which `pid` was found. A wait is noted with the page, if the thread is measured.
    fn latch<'a, G: LatchGuard<'a>>(&'a self, slot: Slot<'a>, pid: PageId) -> G {
        if spent::is_measured()
            && let Some(guard) = G::try_latch(slot)
        {
            return guard;
        }
        // WAIT: park - see the callers.
        spent::during_noted(Spent::LatchWait, || G::latch(slot), |took| self.hot.add(pid, took))
    }

    /// The guard, if the page is the one that was meant.
    fn accept<'a, G: LatchGuard<'a>>(&self, guard: G, pid: PageId, wanted: Wanted) -> Option<G> {
        let slot = guard.slot();
        (slot.frame().pid() == pid).then(|| {
            self.note_use(slot, wanted);
            guard
        })
    }

    /// Fixes a page that is in memory or on its way there. `None` if it is neither.
    pub(crate) fn fix<'a, G: LatchGuard<'a>>(&'a self, pid: PageId, wanted: Wanted) -> Option<G> {
        loop {
            let slot = self.find(pid)?;
            // A frame that holds another page gave this one up after the look-up, and the table says so now.
            if slot.frame().pid() != pid {
                continue;
            }
            // Waiting for a read in progress does not count as a use of the page.
            let wanted = if slot.frame().is_loading() { Wanted::Once } else { wanted };
            // WAIT: park - for the holders of the latch, one of whom may be reading the page.
            let guard = self.latch(slot, pid);
            if let Some(guard) = self.accept(guard, pid, wanted) {
                return Some(guard);
            }
        }
    }

    /// Fixes a page that is in memory, for callers that have others latched.
    pub(crate) fn fix_beside<'a, G: LatchGuard<'a>>(&'a self, pid: PageId, wanted: Wanted) -> Option<G> {
        let slot = self.loaded(pid)?;
        let guard = match G::try_latch(slot) {
            Some(guard) => guard,
            None => self.latch_pinned(slot, pid)?,
        };
        self.accept(guard, pid, wanted)
    }

    /// Latches the frame of a page that is pinned already, under one more pin: the wait is for this page and no other. Without it the
    /// frame may change hands under the wait, and be latched by a thread that waits for a page that the caller has.
    #[cold]
    fn latch_pinned<'a, G: LatchGuard<'a>>(&'a self, slot: Slot<'a>, pid: PageId) -> Option<G> {
        let pin = Pinned::again(slot, pid);
        let may_wait = pin.is_some() || mutant("pool: wait beside a latch for whatever is in the frame");
        // WAIT: park - for the holders of the latch of this very page.
        may_wait.then(|| self.latch(slot, pid))
    }

    /// Fixes a page that is in memory, for callers that have nothing latched: they may wait for whatever is in its frame meanwhile.
    pub(crate) fn fix_loaded<'a, G: LatchGuard<'a>>(&'a self, pid: PageId, wanted: Wanted) -> Option<G> {
        let slot = self.loaded(pid)?;
        // WAIT: park - for the holders of the latch, with nothing latched.
        let guard = self.latch(slot, pid);
        self.accept(guard, pid, wanted)
    }

    /// An optimistic guard of a page that no thread has latched exclusively.
    #[inline(always)]
    fn watch(&self, pid: PageId, wanted: Wanted) -> Option<OptimisticGuard<'_>> {
        let slot = self.find(pid)?;
        // The version comes first: if the frame changes hands after this, the version no longer validates.
        let version = slot.frame().latch().optimistic_version()?;
        if slot.frame().pid() != pid {
            return None;
        }
        self.note_use(slot, wanted);
        Some(OptimisticGuard::new(slot, pid, version))
    }

    pub(crate) fn shared(&self, pid: PageId, wanted: Wanted) -> Result<SharedGuard<'_>> {
        loop {
            if let Some(guard) = self.fix(pid, wanted) {
                return Ok(guard);
            }
            if let Some(guard) = self.load(pid, Fill::Read, wanted)? {
                return Ok(guard.downgrade());
            }
        }
    }

    pub(crate) fn exclusive(&self, pid: PageId, fill: Fill) -> Result<ExclusiveGuard<'_>> {
        loop {
            if let Some(guard) = self.fix(pid, Wanted::Again) {
                return Ok(guard);
            }
            if let Some(guard) = self.load(pid, fill, Wanted::Again)? {
                return Ok(guard);
            }
        }
    }

    /// `None` for a page that is not in memory, if there can be such a page.
    pub(crate) fn known<T>(&self, pid: PageId, found: Option<T>) -> Result<Option<T>> {
        if found.is_none() {
            self.check(pid)?;
        }
        Ok(found)
    }

    /// A page in memory costs the fewest instructions that can be, and what it costs stays in registers: the guard is built
    /// where it is used, and no result of a call that may read the page is on that way.
    #[inline(always)]
    pub(crate) fn optimistic(&self, pid: PageId, wanted: Wanted) -> Result<OptimisticGuard<'_>> {
        if let Some(guard) = self.watch(pid, wanted) {
            return Ok(guard);
        }
        let guard = self.watch_slow(pid, wanted)?;
        Ok(guard)
    }

    #[inline(always)]
    pub(crate) fn try_optimistic(&self, pid: PageId, wanted: Wanted) -> Result<Option<OptimisticGuard<'_>>> {
        if let Some(guard) = self.watch(pid, wanted) {
            return Ok(Some(guard));
        }
        let guard = self.watch_resident(pid, wanted)?;
        Ok(guard)
    }

    /// As [`Core::watch`], but reads the page if it is not in memory, and waits for who has it latched.
    #[cold]
    fn watch_slow(&self, pid: PageId, wanted: Wanted) -> Result<OptimisticGuard<'_>> {
        Ok(self.shared(pid, wanted)?.as_optimistic())
    }

    /// As [`Core::watch`], but waits for who has the page latched, unless it is being read.
    #[cold]
    fn watch_resident(&self, pid: PageId, wanted: Wanted) -> Result<Option<OptimisticGuard<'_>>> {
        let found = self.fix_loaded::<SharedGuard<'_>>(pid, wanted);
        self.known(pid, found.map(|guard| guard.as_optimistic()))
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use crate::format::blank_page;
    use crate::guard::ExclusiveGuard;
    use crate::pool::tests::empty_pool;
    use foreshore_base::PageId;
    use foreshore_sync::primitive::thread;

    #[test]
    fn who_waits_for_a_page_to_be_read_has_not_used_it_yet() {
        let pool = empty_pool(128);
        let (core, pid) = (&pool.core, PageId(1));
        // A read that is under way.
        let no = core.take_frame().expect("a free frame");
        let frame = &core.memory.frames()[no as usize];
        frame.set_pid(pid);
        frame.set_loading(true);
        core.table.make_room(pid).expect("memory");
        assert!(core.table.insert(pid, no));
        let before = frame.uses();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(pool.pin(pid).expect("a page")));
            while !core.memory.parks().has_waiters(std::ptr::from_ref(frame.latch()) as u64) {
                thread::yield_now();
            }
            let mut guard = ExclusiveGuard::adopt(core.memory.slot(no));
            guard.put(&blank_page(pid));
            frame.set_loading(false);
            drop(guard);
            waiter.join().expect("no panic");
        });
        assert_eq!(frame.uses(), before, "for who comes back for it that will be the first");
        assert!(pool.optimistic(pid).expect("in memory").validate(), "one thread");
        assert_eq!(frame.uses(), before + 1);
    }
}
