//! Read-around: while frames are plentiful, a miss brings in the pages beside the one that is wanted, with the same read.
//!
//! A pool that has just been opened is empty, and most pages that it is asked for have neighbours that will be asked for soon. A
//! device reads a run of them in little more time than one. So of the aligned run of [`RUN`] pages around a page that is missing
//! all come in that are missing too, as far as they lie next to each other and it. Once one frame in [`SPARE`] is left, each miss
//! reads its own page and no other: what SQL Server does while its pool ramps up (Microsoft, "How Buffer Management Works").
//! [`PoolOptions::read_around`](crate::PoolOptions::read_around) turns all this off.
//!
//! 1. A neighbour is in the page table, in a frame whose exclusive latch the reader holds, **before the read begins**: whoever
//!    wants it meanwhile parks on the latch, as for any page that is being read. Were it entered later, somebody else could
//!    have read it, changed it, written it and given up its frame meanwhile, and the image would be stale.
//! 2. Its frame comes from the free ones. No page leaves for it, and nobody waits for a frame. With the latches of these frames
//!    held a thread waits for the read and, as it takes the next, for readers that have come to a free frame with a stale number
//!    and leave at once.
//! 3. A neighbour that cannot be read or is not sound is given back, which is no error until somebody wants it. If the read
//!    fails or the wanted page is not sound, that one is read alone, and the error is of that read.
//!
//! A neighbour is no miss, and coming in is no use of it. Pages that are [`Wanted::Once`](crate::Wanted::Once) come alone, as scans
//! have theirs read ahead ([`crate::ahead`]).

use crate::format::verify_page;
use crate::frame::FrameNo;
use crate::guard::ExclusiveGuard;
use crate::passing::Wanted;
use crate::pool::Core;
use crate::table::PageTable;
use foreshore_base::PageId;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::AlignedBuf;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::spent::{self, Spent};
use std::collections::VecDeque;

/// Pages of a run, 64 KiB.
const RUN: u64 = if MODEL { 2 } else { 8 };
/// Of so many frames one stays free: long before pages have to leave for others, none comes in that nobody has asked for.
const SPARE: usize = 4;
/// Rule 1 broken.
const LATE: &str = "pool: neighbours are entered after the read";

/// Frames of pages that lie next to each other, whose exclusive latches are held.
struct Run {
    first: PageId,
    frames: VecDeque<FrameNo>,
}

impl Core {
    /// Fills frame `no`, which the page table has for `pid`, and those of pages beside it, with one read. `None` if there are no
    /// such pages, or the page has not come: then it is read alone.
    pub(crate) fn load_around(&self, no: FrameNo, pid: PageId) -> Option<ExclusiveGuard<'_>> {
        if !self.has_plenty() {
            return None;
        }
        let mut run = self.claim_around(no, pid);
        let count = run.frames.len();
        if count == 1 {
            return None;
        }
        let mut pages = AlignedBuf::new(count * PAGE_SIZE);
        self.counters.pages_read.add(count as u64);
        let read = || self.data.read_at(&mut pages, run.first.offset());
        let len = spent::during(Spent::Io, read).unwrap_or(0);
        // The log is asked after the read, as for a page alone.
        let durable = self.log.durable();
        let mut wanted = None;
        for (index, own) in run.frames.drain(..).enumerate() {
            let beside = PageId(run.first.0 + index as u64);
            if own != no && mutant(LATE) && !self.enter(own, beside) {
                continue;
            }
            let page = index * PAGE_SIZE..(index + 1) * PAGE_SIZE;
            let page = &pages[page.start.min(len)..page.end.min(len)];
            let is_sound = verify_page(page, beside, durable).is_ok();
            if own == no {
                wanted = is_sound.then(|| self.arrive(own, beside, Some(page), Wanted::Again));
            } else if !is_sound {
                self.retract(own, beside);
            } else {
                drop(self.arrive(own, beside, Some(page), Wanted::Again));
                self.counters.pages_ahead.add(1);
            }
        }
        wanted
    }

    fn has_plenty(&self) -> bool {
        self.free.len(self.memory.frames()) > self.memory.frames().len() / SPARE
    }

    /// Enters pages beside `pid` in the page table, up to the first on either side that is there or has no frame to spare.
    fn claim_around(&self, no: FrameNo, pid: PageId) -> Run {
        let mut run = Run { first: pid, frames: VecDeque::from([no]) };
        let begin = pid.0 - pid.0 % RUN;
        for beside in (begin..pid.0).rev().map(PageId) {
            let Some(own) = self.claim_beside(beside) else { break };
            run.frames.push_front(own);
            run.first = beside;
        }
        for beside in (pid.0 + 1..begin + RUN).map(PageId) {
            let Some(own) = self.claim_beside(beside) else { break };
            run.frames.push_back(own);
        }
        run
    }

    /// A frame that the page table has for `pid` from now on, if there was none.
    fn claim_beside(&self, pid: PageId) -> Option<FrameNo> {
        if !self.has_plenty() || !PageTable::in_range(pid) || self.table.get(pid).is_some() {
            return None;
        }
        self.table.make_room(pid).ok()?;
        let no = self.pop_free()?;
        (mutant(LATE) || self.enter(no, pid)).then_some(no)
    }
}
