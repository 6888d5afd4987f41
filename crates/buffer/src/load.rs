//! A miss: a frame for a page that has none.

use crate::format::{Flaw, blank_page, page_id, verify_page};
use crate::frame::FrameNo;
use crate::guard::ExclusiveGuard;
use crate::passing::Wanted;
use crate::pool::Core;
use crate::quarantine::quarantine;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Place, Result};
use foreshore_io::AlignedBuf;
use foreshore_sync::spent::{self, Spent};

/// What comes into the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// The page on disk.
    Read,
    /// The page on disk, or a blank one if that cannot be read or is damaged.
    ReadOrBlank,
    /// The page on disk, or a quarantined one if that is damaged.
    ReadOrQuarantined,
    /// A blank page; the disk is not asked.
    Blank,
}

impl Core {
    /// Gives `pid` a frame and fills it. Of several threads that miss the same page one does so; the others get `None`,
    /// look again, find the frame and park on its latch.
    pub(crate) fn load(&self, pid: PageId, fill: Fill, wanted: Wanted) -> Result<Option<ExclusiveGuard<'_>>> {
        self.check(pid)?;
        if let Some(cause) = self.log.poisoned() {
            return Err(Error::poisoned(&cause));
        }
        self.table.make_room(pid).map_err(|error| Error::io("map memory for", self.data.path(), error))?;
        self.counters.misses.add(1);
        let no = self.take_frame()?;
        if !self.enter(no, pid) {
            return Ok(None);
        }
        if self.reads_around
            && matches!((fill, wanted), (Fill::Read | Fill::ReadOrQuarantined, Wanted::Again))
            && let Some(guard) = self.load_around(no, pid)
        {
            return Ok(Some(guard));
        }
        match self.fetch(pid, fill) {
            Ok(page) => Ok(Some(self.arrive(no, pid, page.as_deref(), wanted))),
            Err(e) => {
                self.retract(no, pid);
                Err(e)
            }
        }
    }

    /// Enters `pid` in the page table, in a free frame whose exclusive latch is held: from here on everybody waits for the read.
    /// False if the page is there already; the frame is free again then.
    pub(crate) fn enter(&self, no: FrameNo, pid: PageId) -> bool {
        let frame = &self.memory.frames()[no as usize];
        frame.set_pid(pid);
        frame.set_loading(true);
        let entered = self.table.insert(pid, no);
        if !entered {
            self.give_back(no);
        }
        entered
    }

    /// A page that was entered comes in; `None` for a blank one.
    pub(crate) fn arrive(&self, no: FrameNo, pid: PageId, page: Option<&[u8]>, wanted: Wanted) -> ExclusiveGuard<'_> {
        let mut guard = ExclusiveGuard::adopt(self.memory.slot(no));
        match page {
            Some(page) => guard.put(page),
            None => guard.put(&blank_page(pid)),
        }
        assert_eq!(page_id(&guard), pid, "the id in a page, and that of the page that was read");
        self.memory.frames()[no as usize].set_loading(false);
        if !self.on_arrival(no, pid, wanted) {
            self.replacement.on_load(self.view(), no, pid);
        }
        guard
    }

    /// A page that was entered does not come in. Waiters wake, find it gone and try for themselves.
    pub(crate) fn retract(&self, no: FrameNo, pid: PageId) {
        self.table.remove(pid, no);
        self.give_back(no);
    }

    /// Returns a frame whose exclusive latch is held, and that is not in the page table, to the free ones.
    pub(crate) fn give_back(&self, no: FrameNo) {
        let frame = &self.memory.frames()[no as usize];
        debug_assert!(!frame.is_dirty() && !frame.is_pinned(), "frame {no} is in use");
        frame.set_pid(PageId::ZERO);
        frame.set_loading(false);
        // The version moves, so that no optimistic reader takes the bytes for those of the page that was here.
        frame.latch().unlock_exclusive(self.memory.parks());
        self.push_free(no);
    }

    pub(crate) fn push_free(&self, no: FrameNo) {
        self.free.push(self.memory.frames(), no);
        self.freed.notify_one();
    }

    /// The page that goes into the frame; `None` for a blank one.
    pub(crate) fn fetch(&self, pid: PageId, fill: Fill) -> Result<Option<AlignedBuf>> {
        if fill == Fill::Blank {
            return Ok(None);
        }
        // Into a buffer and not into the frame: stale optimistic readers may look there, and their loads must not race with
        // the plain stores of a read. A flawed page never gets into a frame at all.
        let mut page = AlignedBuf::new(PAGE_SIZE);
        self.counters.pages_read.add(1);
        let verdict = match spent::during(Spent::Io, || self.data.read_at(&mut page, pid.offset())) {
            // The log is asked after the read: a page is written only once its changes are durable.
            Ok(len) => verify_page(&page[..len], pid, self.log.durable()),
            Err(_) if fill == Fill::ReadOrBlank => return Ok(None),
            Err(e) => return Err(e),
        };
        let Err(flaw) = verdict else { return Ok(Some(page)) };
        match fill {
            // The log has lost what the page holds, and so much more than a page is lost.
            _ if flaw == Flaw::AheadOfLog => {}
            Fill::ReadOrBlank => return Ok(None),
            Fill::ReadOrQuarantined => {
                quarantine(&mut page, pid, flaw);
                return Ok(Some(page));
            }
            Fill::Read | Fill::Blank => {}
        }
        Err(Error::corrupted(self.data.path(), Place::Page(pid), flaw.why()))
    }
}
