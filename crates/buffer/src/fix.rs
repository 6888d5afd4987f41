//! The ways to fix a page.

use crate::guard::{ExclusiveGuard, OptimisticGuard, SharedGuard, Slot};
use crate::load::Fill;
use crate::passing::Wanted;
use crate::pinned::Pinned;
use crate::pool::Core;
use foreshore_base::{PageId, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::spent::{self, Spent};

impl Core {
    /// The frame of a page that is in memory and not being read. A hint until the page id is compared under the latch.
    pub(crate) fn resident(&self, pid: PageId) -> Result<Option<Slot<'_>>> {
        self.check(pid)?;
        Ok(self.find(pid).filter(|slot| !slot.frame().is_loading()))
    }

    /// The frame in which the table has a page.
    #[inline(always)]
    fn find(&self, pid: PageId) -> Option<Slot<'_>> {
        let slot = Slot::new(self, self.table.hint(pid))?;
        slot.prefetch();
        Some(slot)
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
    fn latch_shared(&self, slot: Slot<'_>, pid: PageId) {
        let latch = &slot.frame().latch;
        if !(spent::is_measured() && latch.try_lock_shared()) {
            // WAIT: park - see the callers.
            let wait = || latch.lock_shared(&self.parks);
            spent::during_noted(Spent::LatchWait, wait, |took| self.hot.add(pid, took));
        }
    }

    /// The same, exclusively.
    fn latch_exclusive(&self, slot: Slot<'_>, pid: PageId) {
        let latch = &slot.frame().latch;
        if !(spent::is_measured() && latch.try_lock_exclusive()) {
            // WAIT: park - see the callers.
            let wait = || latch.lock_exclusive(&self.parks);
            spent::during_noted(Spent::LatchWait, wait, |took| self.hot.add(pid, took));
        }
    }

    /// A page in memory, for callers that have others latched.
    pub(crate) fn shared_beside(&self, pid: PageId, wanted: Wanted) -> Result<Option<SharedGuard<'_>>> {
        let Some(slot) = self.resident(pid)? else { return Ok(None) };
        let latch = &slot.frame().latch;
        if !latch.try_lock_shared() {
            let stays = self.stay(slot, pid);
            if stays.is_none() && !mutant("pool: wait beside a latch for whatever is in the frame") {
                return Ok(None);
            }
            // WAIT: park - for the holder of the exclusive latch of this very page.
            self.latch_shared(slot, pid);
        }
        Ok(self.shared_if(slot, pid, wanted))
    }

    /// As [`Core::shared_beside`], exclusively.
    pub(crate) fn exclusive_beside(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        let Some(slot) = self.resident(pid)? else { return Ok(None) };
        let latch = &slot.frame().latch;
        if !latch.try_lock_exclusive() {
            let stays = self.stay(slot, pid);
            if stays.is_none() && !mutant("pool: wait beside a latch for whatever is in the frame") {
                return Ok(None);
            }
            // WAIT: park - for the holders of the latch of this very page.
            self.latch_exclusive(slot, pid);
        }
        Ok(self.exclusive_if(slot, pid, Wanted::Again))
    }

    /// A page in memory, for callers that have nothing latched: they may wait for whatever is in its frame meanwhile.
    pub(crate) fn exclusive_resident(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        let Some(slot) = self.resident(pid)? else { return Ok(None) };
        // WAIT: park - for the holders of the latch, with nothing latched.
        self.latch_exclusive(slot, pid);
        Ok(self.exclusive_if(slot, pid, Wanted::Again))
    }

    /// A pin of a page that is pinned already, so that a wait for its latch is for this page and no other. Without it the frame
    /// may change hands under the wait, and be latched by somebody who waits for a page that the caller has.
    fn stay<'a>(&self, slot: Slot<'a>, pid: PageId) -> Option<Pinned<'a>> {
        let pin = slot.frame().pin_again().then(|| Pinned::adopt(slot, pid))?;
        (slot.frame().pid() == pid).then_some(pin)
    }

    /// Takes over a shared hold of the latch, if the page is the one that was meant.
    fn shared_if<'a>(&self, slot: Slot<'a>, pid: PageId, wanted: Wanted) -> Option<SharedGuard<'a>> {
        let guard = SharedGuard::adopt(slot);
        (guard.pid() == pid).then(|| {
            self.note_use(slot, wanted);
            guard
        })
    }

    /// Takes over the exclusive hold of the latch, as above.
    fn exclusive_if<'a>(&self, slot: Slot<'a>, pid: PageId, wanted: Wanted) -> Option<ExclusiveGuard<'a>> {
        let guard = ExclusiveGuard::adopt(slot, false);
        (guard.pid() == pid).then(|| {
            self.note_use(slot, wanted);
            guard
        })
    }

    /// How a page that was found is wanted. Who waits for a read is no other than who reads, and that is no use of the page.
    fn unless_missed(slot: Slot<'_>, wanted: Wanted) -> Wanted {
        if slot.frame().is_loading() { Wanted::Once } else { wanted }
    }

    pub(crate) fn shared(&self, pid: PageId, wanted: Wanted) -> Result<SharedGuard<'_>> {
        self.check(pid)?;
        loop {
            let Some(no) = self.table.get(pid) else {
                if let Some(guard) = self.load(pid, Fill::Read, wanted)? {
                    return Ok(guard.downgrade());
                }
                continue;
            };
            let slot = self.slot(no);
            slot.prefetch();
            // A frame that holds another page gave this one up after the look-up, and the table says so now.
            if slot.frame().pid() != pid {
                continue;
            }
            let found = Self::unless_missed(slot, wanted);
            // WAIT: park - for the holder of the exclusive latch, who may be reading the page.
            self.latch_shared(slot, pid);
            if let Some(guard) = self.shared_if(slot, pid, found) {
                return Ok(guard);
            }
        }
    }

    pub(crate) fn exclusive(&self, pid: PageId, fill: Fill) -> Result<ExclusiveGuard<'_>> {
        self.check(pid)?;
        loop {
            let Some(no) = self.table.get(pid) else {
                if let Some(guard) = self.load(pid, fill, Wanted::Again)? {
                    return Ok(guard);
                }
                continue;
            };
            let slot = self.slot(no);
            slot.prefetch();
            if slot.frame().pid() != pid {
                continue;
            }
            let found = Self::unless_missed(slot, Wanted::Again);
            // WAIT: park - for the holders of the latch, one of whom may be reading the page.
            self.latch_exclusive(slot, pid);
            if let Some(guard) = self.exclusive_if(slot, pid, found) {
                return Ok(guard);
            }
        }
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

    /// An optimistic guard of a page that nobody has latched exclusively.
    #[inline(always)]
    fn watch(&self, pid: PageId, wanted: Wanted) -> Option<OptimisticGuard<'_>> {
        let slot = self.find(pid)?;
        // The version comes first: if the frame changes hands after this, the version no longer validates.
        let version = slot.frame().latch.optimistic_version()?;
        if slot.frame().pid() != pid {
            return None;
        }
        self.note_use(slot, wanted);
        Some(OptimisticGuard::new(slot, pid, version))
    }

    /// As [`Core::watch`], but reads the page if it is not in memory, and waits for who has it latched.
    #[cold]
    fn watch_slow(&self, pid: PageId, wanted: Wanted) -> Result<OptimisticGuard<'_>> {
        Ok(self.shared(pid, wanted)?.into_optimistic())
    }

    /// As [`Core::watch`], but waits for who has the page latched, unless it is being read.
    #[cold]
    fn watch_resident(&self, pid: PageId, wanted: Wanted) -> Result<Option<OptimisticGuard<'_>>> {
        let Some(slot) = self.resident(pid)? else { return Ok(None) };
        // WAIT: park - for the holder of the exclusive latch, with nothing latched.
        self.latch_shared(slot, pid);
        Ok(self.shared_if(slot, pid, wanted).map(SharedGuard::into_optimistic))
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
        let frame = &core.frames[no as usize];
        frame.set_pid(pid);
        frame.set_loading(true);
        core.table.make_room(pid).expect("memory");
        assert!(core.table.insert(pid, no));
        let before = frame.uses();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(pool.pin(pid).expect("a page")));
            while !core.parks.has_waiters(std::ptr::from_ref(&frame.latch) as u64) {
                thread::yield_now();
            }
            let mut guard = ExclusiveGuard::adopt(core.slot(no), true);
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
