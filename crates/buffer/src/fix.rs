//! The ways to fix a page.

use crate::guard::{ExclusiveGuard, OptimisticGuard, SharedGuard, Slot};
use crate::load::Fill;
use crate::nb::Hold;
use crate::pool::Core;
use crate::replace::Uses;
use foreshore_base::{PageId, Result};

impl Core {
    /// The frame of a page that is in memory and not being read. A hint until the page id is compared under the latch.
    pub(crate) fn resident(&self, pid: PageId) -> Result<Option<(Slot<'_>, Hold<'_>)>> {
        self.check(pid)?;
        let slot = self.table.get(pid).map(|no| self.slot(no));
        Ok(slot.and_then(|slot| Some((slot, self.hold_resident(slot, pid)?))))
    }

    /// Tells the policy of a use.
    #[inline]
    fn note_use(&self, slot: Slot<'_>) {
        match self.uses {
            Uses::Counted { cap } => slot.frame().count_use(cap),
            Uses::WithPin { .. } => {}
            Uses::Told => self.replacer.on_use(&self.frames, slot.no),
        }
    }

    pub(crate) fn hit<G>(&self, slot: Slot<'_>, guard: G) -> G {
        self.note_use(slot);
        guard
    }

    pub(crate) fn shared(&self, pid: PageId) -> Result<SharedGuard<'_>> {
        self.check(pid)?;
        loop {
            let Some(no) = self.table.get(pid) else {
                if let Some(guard) = self.load(pid, Fill::Read)? {
                    return Ok(guard.downgrade());
                }
                continue;
            };
            let slot = self.slot(no);
            let frame = slot.frame();
            // A frame that holds another page gave this one up after the look-up, and the table says so now.
            let Some(hold) = self.hold(slot, pid, Fill::Read)? else { continue };
            // WAIT: park - for the holder of the exclusive latch, who may be reading the page.
            frame.latch.lock_shared(&self.parks);
            let guard = SharedGuard::adopt(slot).holding(hold);
            if frame.pid() == pid {
                self.note_use(slot);
                return Ok(guard);
            }
        }
    }

    pub(crate) fn exclusive(&self, pid: PageId, fill: Fill) -> Result<ExclusiveGuard<'_>> {
        self.check(pid)?;
        loop {
            let Some(no) = self.table.get(pid) else {
                if let Some(guard) = self.load(pid, fill)? {
                    return Ok(guard);
                }
                continue;
            };
            let slot = self.slot(no);
            let frame = slot.frame();
            let Some(hold) = self.hold(slot, pid, fill)? else { continue };
            // WAIT: park - for the holders of the latch, one of whom may be reading the page.
            frame.latch.lock_exclusive(&self.parks);
            let guard = ExclusiveGuard::adopt(slot, false).holding(hold);
            if frame.pid() == pid {
                self.note_use(slot);
                return Ok(guard);
            }
        }
    }

    pub(crate) fn optimistic(&self, pid: PageId) -> Result<OptimisticGuard<'_>> {
        self.check(pid)?;
        loop {
            let Some(no) = self.table.get(pid) else {
                drop(self.load(pid, Fill::Read)?);
                continue;
            };
            let slot = self.slot(no);
            let Some(hold) = self.hold(slot, pid, Fill::Read)? else { continue };
            if let Some(guard) = self.watch(slot, pid, hold) {
                return Ok(guard);
            }
        }
    }

    /// An optimistic guard of the page in a frame; `None` if it is not `pid` any more.
    #[inline]
    pub(crate) fn watch<'a>(&'a self, slot: Slot<'a>, pid: PageId, hold: Hold<'a>) -> Option<OptimisticGuard<'a>> {
        let frame = slot.frame();
        // The version comes first: if the frame changes hands after this, the version no longer validates.
        let version = frame.latch.optimistic_version().unwrap_or_else(|| {
            // WAIT: park - for the holder of the exclusive latch, as a shared holder would.
            frame.latch.lock_shared(&self.parks);
            SharedGuard::adopt(slot).version()
        });
        (frame.pid() == pid).then(|| self.hit(slot, OptimisticGuard::new(slot, pid, version).holding(hold)))
    }
}
