//! The loader: reads pages into frames, on a miss and ahead of need.
//!
//! **Read-around.** While frames are plentiful, a miss reads a **run** with one read: the missing page and the missing
//! pages next to it in its aligned run of [`RUN`]. A device reads a run in little more time than a page, so a new pool
//! fills soon. Once only one frame in [`SPARE`] is free, each miss reads its own page alone. SQL Server does so while
//! its pool ramps up (Microsoft, "How Buffer Management Works").
//! [`PoolOptions::read_around`](crate::PoolOptions::read_around) turns it off.
//!
//! **Read-ahead** is a miss of a background thread, for a page that a scan has requested (`read_ahead.rs`).
//!
//! 1. The missing page gets a vacant frame, by eviction if need be, and is entered in the page table. Of several
//!    threads that miss it, one enters it. The others wait for the latch of the frame, so a miss costs one read.
//! 2. Its neighbours are entered in free frames; no page is evicted for them. They are entered **before the read
//!    begins**. Otherwise another thread could read such a page, change it, write it home and evict it meanwhile, and
//!    the image would be stale.
//! 3. The run is read into a buffer and verified. Sound neighbours fill their frames; the frames of the others become
//!    free, without an error. If the read fails or the missing page is not sound, that page is read again alone. Only
//!    the error of that read counts.
//!
//! A neighbour counts neither as a miss nor as a use. Scans read no neighbours, since they read ahead.
//!
//! **Redo.** Changes of the log may wait for a page after a restart. They are applied before the latch of its frame is
//! released (`page_redo.rs`), also to neighbours.
//!
//! While a thread holds the latches of vacant frames it waits for the read. It also waits for readers with a stale
//! frame number, which release the latch at once.

use crate::format::{Flaw, blank_page, verify_page};
use crate::guard::ExclusiveGuard;
use crate::page_redo::{IfDamaged, PageRedo, Unredone};
use crate::quarantine::quarantine;
use crate::read_ahead::ReadAhead;
use crate::reclaimer::Reclaimer;
use crate::residency::{Residency, Vacant};
use crate::scan_ring::AccessPattern;
use crate::stamps::Stamps;
use crate::table::PageTable;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, PageId, Place, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{NextWake, ShardedCounter, Step};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Pages of a run, 64 KiB.
const RUN: u64 = if MODEL { 2 } else { 8 };
/// One frame in so many must be free for read-around, so that no page is evicted for the sake of neighbours.
const SPARE: usize = 4;
/// Breaks step 2.
const LATE: &str = "pool: neighbours are entered after the read";

/// The content for a vacant frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// The page on disk.
    Read,
    /// The page on disk, or a blank one if the page cannot be read or is damaged.
    ReadOrBlank,
    /// The page on disk, or a quarantined one if the page is damaged.
    ReadOrQuarantined,
    /// A blank page, without a read unless changes wait for the page.
    Blank,
}

pub(crate) struct Loader {
    residency: Arc<Residency>,
    reclaimer: Arc<Reclaimer>,
    data: Arc<dyn File>,
    stamps: Arc<Stamps>,
    reads_around: bool,
    ahead: Arc<ReadAhead>,
    /// The changes that wait for their pages after a restart.
    redo: OnceLock<Arc<dyn PageRedo>>,
    misses: ShardedCounter,
    pages_read: ShardedCounter,
    pages_ahead: ShardedCounter,
}

impl Loader {
    pub(crate) fn new(
        residency: Arc<Residency>,
        reclaimer: Arc<Reclaimer>,
        data: Arc<dyn File>,
        stamps: Arc<Stamps>,
        reads_around: bool,
    ) -> Self {
        Self {
            ahead: Arc::new(ReadAhead::new(residency.memory().frames().len())),
            residency,
            reclaimer,
            data,
            stamps,
            reads_around,
            redo: OnceLock::new(),
            misses: ShardedCounter::new(),
            pages_read: ShardedCounter::new(),
            pages_ahead: ShardedCounter::new(),
        }
    }

    pub(crate) fn ahead(&self) -> &Arc<ReadAhead> {
        &self.ahead
    }

    /// Has the changes applied to pages that come into memory. Called once, before the first page does.
    pub(crate) fn set_redo(&self, redo: Arc<dyn PageRedo>) {
        assert!(self.redo.set(redo).is_ok(), "a pool is restarted once");
    }

    /// Returns the path of the data file.
    pub(crate) fn path(&self) -> &Path {
        self.data.path()
    }

    pub(crate) fn page_redo(&self) -> Option<&dyn PageRedo> {
        self.redo.get().map(|redo| &**redo)
    }

    /// Returns the counts of misses, of pages read, and of pages read ahead of need.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.misses, &self.pages_read, &self.pages_ahead].map(ShardedCounter::sum)
    }

    /// Refuses an id out of range. Ids come from pages, so a bad one is corruption and not a defect of the caller.
    pub(crate) fn check(&self, pid: PageId) -> Result<()> {
        if PageTable::in_range(pid) {
            return Ok(());
        }
        Err(Error::corrupted(self.data.path(), Place::Page(pid), "a page id out of range is referred to"))
    }

    /// Loads a missing page. Returns `None` if another thread did so first; the caller then looks it up again.
    pub(crate) fn load(&self, pid: PageId, fill: Fill, pattern: AccessPattern) -> Result<Option<ExclusiveGuard<'_>>> {
        self.check(pid)?;
        if let Some(cause) = self.residency.memory().log().poisoned() {
            return Err(Error::poisoned(&cause));
        }
        self.residency.prepare(pid).map_err(|error| Error::io("map memory for", self.data.path(), error))?;
        self.misses.add(1);
        let frame = self.reclaimer.take_frame()?;
        if !frame.enter(pid) {
            return Ok(None);
        }
        let (redo, fill) = self.pending(pid, fill);
        let is_alone =
            !self.reads_around || pattern == AccessPattern::Scan || matches!(fill, Fill::Blank | Fill::ReadOrBlank);
        let run = if is_alone { None } else { self.read_around(pid) };
        let image = match run {
            Some(_) => run,
            // If its log is redone without it, the page is lost.
            None => {
                self.read_alone(pid, fill).inspect_err(|error| redo.into_iter().for_each(|redo| redo.failed(error)))?
            }
        };
        let page = match image {
            Some(image) => frame.fill(image.page(pid), pattern),
            None => frame.fill(&blank_page(pid), pattern),
        };
        if redo.is_some() { self.redo(page).map(Some) } else { Ok(Some(page)) }
    }

    /// Returns what has changes waiting for a page that was entered, and the fill that these need.
    fn pending(&self, pid: PageId, fill: Fill) -> (Option<&dyn PageRedo>, Fill) {
        let is_kept = || fill == Fill::Blank && mutant("sabotage: a page made anew keeps its old redo");
        let Some(redo) = self.page_redo().filter(|_| !is_kept()) else { return (None, fill) };
        let fill = match (redo.pending(pid), fill) {
            (None, fill) => return (None, fill),
            (Some(IfDamaged::Blank), _) => Fill::ReadOrBlank,
            (Some(IfDamaged::Quarantine), Fill::Read | Fill::Blank) => Fill::ReadOrQuarantined,
            (Some(IfDamaged::Fail), Fill::Blank) => Fill::Read,
            (Some(IfDamaged::Quarantine | IfDamaged::Fail), fill) => fill,
        };
        (Some(redo), fill)
    }

    /// Applies the changes that wait for a page: one that was filled in just now, or, before the database is open, one
    /// in memory.
    ///
    /// # Errors
    /// Those of [`PageRedo::redo`]; those of writing a quarantined page home. The page then leaves memory.
    pub(crate) fn redo<'a>(&'a self, page: ExclusiveGuard<'a>) -> Result<ExclusiveGuard<'a>> {
        let is_forgotten = || mutant("sabotage: a page is read without its redo");
        let Some(redo) = self.page_redo().filter(|_| !is_forgotten()) else { return Ok(page) };
        let page = if mutant("pool: a page is seen before its redo") { self.seen_before_redo(page)? } else { page };
        let mut page = Unredone::new(self.reclaimer.cleaner(), redo, self.data.path(), page);
        let redone = redo.redo(&mut page, &self.stamps);
        let done = redone.and_then(|is_seen| match is_seen && page.is_quarantined() && page.is_dirty() {
            true => self.reclaimer.cleaner().write_latched(&page),
            false => Ok(()),
        });
        done.inspect_err(|error| redo.failed(error))?;
        Ok(page.done())
    }

    /// Breaks the rule of `page_redo.rs`: latches the page anew. Only for models.
    fn seen_before_redo<'a>(&'a self, page: ExclusiveGuard<'a>) -> Result<ExclusiveGuard<'a>> {
        let pid = page.pid();
        drop(page);
        let again = self.residency.fix(pid, AccessPattern::Random);
        again.ok_or_else(|| Error::OutOfFrames { frames: self.residency.memory().frames().len() })
    }

    /// Reads the run around a page that was entered, and loads its neighbours. Returns `None` if there are no
    /// neighbours to load, or the page itself is not sound or cannot be read.
    fn read_around(&self, pid: PageId) -> Option<Image> {
        let neighbours = self.claim_around(pid);
        let first = neighbours.first()?.0.min(pid);
        let image = self.read(first, neighbours.len() + 1).ok()?;
        for (pid, frame) in neighbours {
            if mutant(LATE) && !frame.enter(pid) {
                continue;
            }
            if self.verify(&image, pid).is_ok() {
                // An error has stopped the log, or the redo of the page by itself reports it.
                drop(self.redo(frame.fill(image.page(pid), AccessPattern::Random)));
                self.pages_ahead.add(1);
            }
        }
        self.verify(&image, pid).is_ok().then_some(image)
    }

    /// Checks a page as read from disk.
    fn verify(&self, image: &Image, pid: PageId) -> std::result::Result<(), Flaw> {
        verify_page(image.page(pid), pid, image.durable)?;
        let is_stale = Stamps::is_stale(image.page(pid), self.stamps.least(pid, image.durable));
        if is_stale && !mutant("sabotage: a stale page is accepted") { Err(Flaw::Stale) } else { Ok(()) }
    }

    /// Enters the pages next to `pid`, in their order, up to the first on either side that is in memory or finds no
    /// spare frame.
    fn claim_around(&self, pid: PageId) -> Vec<(PageId, Vacant<'_>)> {
        let begin = pid.0 - pid.0 % RUN;
        let claim = |number| self.claim(PageId(number));
        let mut run: Vec<_> = (begin..pid.0).rev().map_while(claim).collect();
        run.reverse();
        run.extend((pid.0 + 1..begin + RUN).map_while(claim));
        run
    }

    /// Enters a missing page, if there is a spare frame.
    fn claim(&self, pid: PageId) -> Option<(PageId, Vacant<'_>)> {
        let has_plenty = self.residency.free_frames() > self.residency.memory().frames().len() / SPARE;
        if !has_plenty || !PageTable::in_range(pid) || self.residency.contains(pid) {
            return None;
        }
        self.residency.prepare(pid).ok()?;
        let frame = self.residency.take_free()?;
        (mutant(LATE) || frame.enter(pid)).then_some((pid, frame))
    }

    /// Reads one page. Returns `None` for a blank one.
    fn read_alone(&self, pid: PageId, fill: Fill) -> Result<Option<Image>> {
        if fill == Fill::Blank {
            return Ok(None);
        }
        let mut image = match self.read(pid, 1) {
            Err(_) if fill == Fill::ReadOrBlank => return Ok(None),
            read => read?,
        };
        let Err(flaw) = self.verify(&image, pid) else { return Ok(Some(image)) };
        match fill {
            // The log has lost changes that the page holds, so more than this page is lost.
            _ if flaw == Flaw::AheadOfLog => {}
            Fill::ReadOrBlank => return Ok(None),
            Fill::ReadOrQuarantined => {
                quarantine(&mut image.bytes, pid, flaw);
                image.len = PAGE_SIZE;
                return Ok(Some(image));
            }
            Fill::Read | Fill::Blank => {}
        }
        Err(Error::corrupted(self.data.path(), Place::Page(pid), flaw.why()))
    }

    /// Reads adjacent pages into a buffer. Not into frames: stale optimistic readers may load from there, and their
    /// loads must not race with the plain stores of a read. So a damaged page never gets into a frame.
    fn read(&self, first: PageId, pages: usize) -> Result<Image> {
        let mut bytes = AlignedBuf::new(pages * PAGE_SIZE);
        self.pages_read.add(pages as u64);
        let len = spent::during(Spent::Io, || self.data.read_at(&mut bytes, first.offset()))?;
        // The durable LSN is loaded after the read: a page is written only once its changes are durable.
        Ok(Image { first, bytes, len, durable: self.residency.memory().log().durable() })
    }

    /// Requests read-ahead of the pages that are not in memory.
    pub(crate) fn prefetch(&self, pids: &[PageId]) {
        let is_missing = |pid: &PageId| PageTable::in_range(*pid) && !self.residency.contains(*pid);
        self.ahead.request(pids.iter().copied().filter(is_missing));
    }

    /// Reads one requested page, if it is still missing. Returns false if there is nothing to do.
    pub(crate) fn read_ahead(&self) -> bool {
        let Some(pid) = self.ahead.next() else { return false };
        if !self.residency.contains(pid) {
            // A later fix of the page reports the error.
            let has_read = self.load(pid, Fill::Read, AccessPattern::Scan).is_ok_and(|page| page.is_some());
            self.pages_ahead.add(has_read.into());
        }
        true
    }
}

/// The background step of one of the threads that read ahead.
pub(crate) struct Reader(pub(crate) Arc<Loader>);

impl Step for Reader {
    fn step(&self) -> NextWake {
        if self.0.read_ahead() { NextWake::Now } else { NextWake::OnSignal }
    }
}

/// Pages as read from disk.
struct Image {
    first: PageId,
    bytes: AlignedBuf,
    /// Bytes that the file had.
    len: usize,
    /// The durable LSN after the read.
    durable: Lsn,
}

impl Image {
    /// Returns the bytes of a page, as far as the file had them.
    fn page(&self, pid: PageId) -> &[u8] {
        let at = (pid.0 - self.first.0) as usize * PAGE_SIZE;
        &self.bytes[at.min(self.len)..(at + PAGE_SIZE).min(self.len)]
    }
}
