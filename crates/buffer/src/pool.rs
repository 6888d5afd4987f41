//! The pool: construction, and what it offers.

use crate::ahead::{Ahead, Reader, Scan};
use crate::cleaner::Cleaner;
use crate::doublewrite::Doublewrite;
use crate::evict::{INLINE_BATCH, Provider};
use crate::frame;
use crate::free::FreeList;
use crate::guard::{ExclusiveGuard, PagePosition, SharedGuard};
use crate::load::Fill;
use crate::memory::Memory;
use crate::optimistic::OptimisticGuard;
use crate::options::PoolOptions;
use crate::passing::{Passing, Wanted};
use crate::pinned::Pinned;
use crate::replacement::{Frames, MAX_USES, ReplacementPolicy, S3c};
use crate::stats::{Counters, PoolStats};
use crate::table::PageTable;
use crate::write_back::{Helped, Helper};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, PageId, Place, Result, Uuid};
use foreshore_io::File;
use foreshore_sync::primitive::atomic::AtomicBool;
use foreshore_sync::{Daemon, EventCount, Hot, Hottest, LockRank, Mutex, NextWake, Signal, Step, ThreadSpawn};
use foreshore_wal::Log;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What guards and background steps share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) table: PageTable,
    pub(crate) free: FreeList,
    /// Notified when a frame becomes free.
    pub(crate) freed: EventCount,
    pub(crate) replacement: Box<dyn ReplacementPolicy>,
    /// [`ReplacementPolicy::use_cap`] of the policy.
    pub(crate) use_cap: Option<u8>,
    /// [`Frame::use_bits`] from which on one more use makes no difference to the policy.
    pub(crate) enough: u32,
    /// Frames that a thread evicts at once when none is free.
    pub(crate) inline_batch: usize,
    /// Pages that scans have read.
    pub(crate) passing: Passing,
    pub(crate) cleaner: Cleaner,
    /// The pages that go home just now, for the thread that helps.
    pub(crate) helped: Helped,
    /// A sweep has met dirty pages only while the cleaner was at work: until a batch is home the next sweep would do no
    /// better, and only age the pages. A hint; every batch ends it.
    pub(crate) dry: AtomicBool,
    pub(crate) data: Arc<dyn File>,
    pub(crate) log: Log,
    pub(crate) counters: Counters,
    /// Pages whose latches measured threads have waited for.
    pub(crate) hot: Hottest<PageId>,
    /// Rung when free frames run low.
    pub(crate) low: Signal,
    pub(crate) ahead: Ahead,
    /// Whether pages come in with their neighbours.
    pub(crate) reads_around: bool,
}

/// The buffer pool of one database. Clones share it; the last one to go stops its threads and writes nothing.
#[derive(Clone)]
pub struct Pool {
    // Declared first: the threads end before what they work on.
    daemons: Arc<Mutex<Vec<Daemon>>>,
    pub(crate) core: Arc<Core>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Formats an empty doublewrite file and syncs it, its space taken ahead. The data file needs no format of the
    /// pool's; the caller syncs the directory.
    pub fn create_files(doublewrite: &dyn File, uuid: Uuid) -> Result<()> {
        Doublewrite::format(doublewrite, uuid)
    }

    /// Checks the header of a doublewrite file as [`Pool::open`] does, for callers that look at all files of a database
    /// before they write to any.
    ///
    /// # Errors
    /// `Foreign`, `Newer`, `Corrupted`, `Truncated`.
    pub fn check_files(doublewrite: &Arc<dyn File>, uuid: Uuid) -> Result<()> {
        Doublewrite::open(doublewrite.clone(), uuid).map(drop)
    }

    /// A pool over `data`, with nothing in it.
    ///
    /// After a crash [`Pool::restore_doublewrite`] comes next, before any page is fixed.
    ///
    /// # Errors
    /// `InvalidOption`; `Foreign`, `Newer`, `Corrupted` or `Truncated` for the doublewrite file.
    pub fn open(
        data: Arc<dyn File>,
        doublewrite: Arc<dyn File>,
        uuid: Uuid,
        log: Log,
        options: &PoolOptions,
    ) -> Result<Self> {
        options.check()?;
        let out_of_memory = |e| Error::io("map memory for", data.path(), e);
        let doublewrite = Doublewrite::open(doublewrite, uuid)?;
        let replacement = match &options.replacement {
            None => S3c::new(options.frames).map(|own| Box::new(own) as Box<dyn ReplacementPolicy>),
            Some(maker) => maker.make(options.frames),
        };
        let replacement = replacement.map_err(out_of_memory)?;
        assert!(replacement.use_cap() <= Some(MAX_USES), "{replacement:?} counts more uses than a frame can");
        let memory = Memory::new(options.frames, log.clone()).map_err(out_of_memory)?;
        let core = Arc::new(Core {
            table: PageTable::new(),
            free: FreeList::all(memory.frames()),
            memory,
            freed: EventCount::new(),
            use_cap: replacement.use_cap(),
            enough: replacement.use_cap().map_or(u32::MAX, frame::enough),
            replacement,
            // Without a background thread nothing but need empties frames, so what stays is the policy's choice alone.
            inline_batch: if options.background { INLINE_BATCH.min(options.frames / 8) } else { 1 },
            dry: AtomicBool::new(false),
            helped: Helped::default(),
            passing: Passing::new(options.frames).map_err(out_of_memory)?,
            cleaner: Cleaner::new(doublewrite, options.doublewrite, data.writes_whole(PAGE_SIZE)),
            data,
            log,
            counters: Counters::new(),
            hot: Hottest::new(),
            low: Signal::new(),
            ahead: Ahead::new(options.frames),
            reads_around: options.read_around,
        });
        let daemons = if options.background { Self::spawn(&core)? } else { Vec::new() };
        Ok(Self { daemons: Arc::new(Mutex::new(LockRank::Leaf, daemons)), core })
    }

    /// The thread that keeps frames free, the one that helps to write pages home, and those that read ahead if the pool has frames for that.
    fn spawn(core: &Arc<Core>) -> Result<Vec<Daemon>> {
        let start = |name: &'static str, op: &'static str, signal: &Signal, step: Arc<dyn Step>| {
            let (log, path) = (core.log.clone(), core.data.path().to_owned());
            let failed = path.clone();
            let on_panic = move |_: &str, message: &str| {
                log.poison(&Error::io(op, failed, io::Error::other(message.to_owned())));
            };
            Daemon::spawn(&ThreadSpawn, name, signal.clone(), step, Box::new(on_panic))
                .map_err(|e| Error::io("start a thread for", path, e))
        };
        let mut daemons =
            vec![start("foreshore-pages", "write pages to", &core.low, Arc::new(Provider { core: core.clone() }))?];
        daemons.push(start(
            "foreshore-clean",
            "write pages to",
            &core.helped.signal,
            Arc::new(Helper { core: core.clone() }),
        )?);
        if core.ahead.depth() > 0 {
            for bell in &core.ahead.bells {
                daemons.push(start("foreshore-ahead", "read", bell, Arc::new(Reader { core: core.clone() }))?);
            }
        }
        Ok(daemons)
    }

    /// Ends the background threads. Dirty pages stay unwritten; [`Pool::flush_all`] comes before where they matter.
    pub fn close(&self) {
        let daemons = std::mem::take(&mut *self.daemons.lock());
        daemons.into_iter().for_each(Daemon::stop);
    }

    /// Fixes a page for reading, from disk if need be.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the page on disk is not sound or holds more than the durable log; `OutOfFrames`; `Poisoned`
    /// if the page is not in memory and the log has stopped.
    pub fn shared(&self, pid: PageId) -> Result<SharedGuard<'_>> {
        self.shared_as(pid, Wanted::Again)
    }

    /// [`Pool::shared`] that says whether the page will be wanted again.
    pub fn shared_as(&self, pid: PageId, wanted: Wanted) -> Result<SharedGuard<'_>> {
        self.core.shared(pid, wanted)
    }

    /// Fixes a page for writing, from disk if need be. Errors as [`Pool::shared`].
    pub fn exclusive(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        self.core.exclusive(pid, Fill::Read)
    }

    /// [`Pool::shared`] under the latch of another page: `None` if the page is not in memory, is being read just now, or is
    /// latched by somebody else and pinned by nobody. Then the caller drops its latch, pins the page and comes back. Waits for
    /// nobody but the holder of the latch of a page that is pinned.
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    pub fn try_shared(&self, pid: PageId) -> Result<Option<SharedGuard<'_>>> {
        self.try_shared_as(pid, Wanted::Again)
    }

    /// [`Pool::try_shared`] that says whether the page will be wanted again.
    ///
    /// # Errors
    /// As [`Pool::try_shared`].
    pub fn try_shared_as(&self, pid: PageId, wanted: Wanted) -> Result<Option<SharedGuard<'_>>> {
        self.core.known(pid, self.core.fix_beside(pid, wanted))
    }

    /// [`Pool::exclusive`] under the latch of another page, as [`Pool::try_shared`].
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    pub fn try_exclusive(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        self.core.known(pid, self.core.fix_beside(pid, Wanted::Again))
    }

    /// [`Pool::exclusive`] of a page that is in memory; `None` if it is not, or is being read just now. Waits for no I/O, but for
    /// whoever has the frame latched, so the caller has nothing latched.
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    pub fn exclusive_resident(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        self.core.known(pid, self.core.fix_loaded(pid, Wanted::Again))
    }

    /// Fixes a page for reading without latching it, from disk if need be. Errors as [`Pool::shared`].
    #[inline(always)]
    pub fn optimistic(&self, pid: PageId) -> Result<OptimisticGuard<'_>> {
        self.optimistic_as(pid, Wanted::Again)
    }

    /// [`Pool::optimistic`] that says whether the page will be wanted again.
    #[inline(always)]
    pub fn optimistic_as(&self, pid: PageId, wanted: Wanted) -> Result<OptimisticGuard<'_>> {
        self.core.optimistic(pid, wanted)
    }

    /// [`Pool::optimistic`] of a page that is in memory; `None` if it is not, or is being read just now. Waits as
    /// [`Pool::exclusive_resident`].
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    #[inline(always)]
    pub fn try_optimistic(&self, pid: PageId) -> Result<Option<OptimisticGuard<'_>>> {
        self.try_optimistic_as(pid, Wanted::Again)
    }

    /// [`Pool::try_optimistic`] that says whether the page will be wanted again.
    ///
    /// # Errors
    /// As [`Pool::try_optimistic`].
    #[inline(always)]
    pub fn try_optimistic_as(&self, pid: PageId, wanted: Wanted) -> Result<Option<OptimisticGuard<'_>>> {
        self.core.try_optimistic(pid, wanted)
    }

    /// Latches the page at `position` exclusively, if it has not changed since and no latch is in the way. Waits for nothing.
    #[must_use]
    pub fn exclusive_at(&self, position: PagePosition) -> Option<ExclusiveGuard<'_>> {
        position.latch(&self.core.memory)
    }

    /// Fixes a page that its caller is about to initialise: zeros, with its id, and not read from disk.
    ///
    /// If the page is in memory, from an earlier use of its id, it is blanked and keeps its LSN. If not, its LSN is 0, and
    /// the caller brings the last LSN of the earlier use in as [`foreshore_wal::Dep::freed`].
    pub fn create(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        let mut guard = self.core.exclusive(pid, Fill::Blank)?;
        guard.blank();
        Ok(guard)
    }

    /// Brings a page into memory that its caller is about to initialise, without reading it, and keeps it there until the
    /// pin is dropped.
    ///
    /// It has a blank page if it was not in memory. If it was, from an earlier use of its id, its bytes stay **as they are**
    /// until a record initialises them, under the latch that covers both: the record that ended the earlier use may not be
    /// durable yet, so nothing but the earlier page may go home.
    pub fn pin_unread(&self, pid: PageId) -> Result<Pinned<'_>> {
        Ok(self.core.exclusive(pid, Fill::Blank)?.pin())
    }

    /// [`Pool::exclusive`] for redo: a page that is unreadable or damaged comes as a blank one of LSN 0. Right only for a record
    /// that initialises the page, since everything on it is then in the log from that record on.
    pub fn exclusive_or_blank(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        self.core.exclusive(pid, Fill::ReadOrBlank)
    }

    /// Brings a page into memory and keeps it there until the pin is dropped. Errors as [`Pool::shared`].
    pub fn pin(&self, pid: PageId) -> Result<Pinned<'_>> {
        self.pin_as(pid, Wanted::Again)
    }

    /// [`Pool::pin`] that says whether the page will be wanted again.
    pub fn pin_as(&self, pid: PageId, wanted: Wanted) -> Result<Pinned<'_>> {
        Ok(Pinned::by(&self.core.shared(pid, wanted)?))
    }

    /// Asks for pages that will be wanted soon to be read in the background. Waits for nothing; requests beyond the
    /// [`Scan::depth`] of a scan that is alone are dropped.
    pub fn prefetch(&self, pids: &[PageId]) {
        self.core.prefetch(pids);
    }

    /// Counts one more scan among those that read ahead, until it is dropped.
    #[must_use]
    pub fn scan(&self) -> Scan {
        Scan::new(&self.core)
    }

    /// Refills the store of free frames once, cleaning if there is no other way, and reads a page that was asked for. For
    /// owners without background threads.
    pub fn provide_step(&self) -> Result<NextWake> {
        self.core.read_ahead();
        self.core.provide()
    }

    /// Mends torn pages from the doublewrite file and returns how many. Comes before redo; the recovered log ends at `durable`.
    ///
    /// # Errors
    /// `Corrupted` if an image that is needed holds more than the durable log; `Io`.
    pub fn restore_doublewrite(&self, durable: Lsn) -> Result<usize> {
        self.core.cleaner.restore(&*self.core.data, durable)
    }

    /// The pages whose latches measured threads (see [`foreshore_sync::spent`]) have waited longest for.
    #[must_use]
    pub fn hot_pages(&self) -> Vec<Hot<PageId>> {
        self.core.hot.list()
    }

    /// What the pool has done since it was opened.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let free = self.core.free.len(self.core.memory.frames());
        let (whole_writes, page_writes) = self.core.cleaner.ways();
        let page_table_bytes = self.core.table.bytes();
        let counted = self.core.counters.stats(self.core.memory.frames().len(), free);
        PoolStats { pages_dirty: self.core.memory.dirty(), whole_writes, page_writes, page_table_bytes, ..counted }
    }

    /// Frames in the pool.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.core.memory.frames().len()
    }

    /// The log that the pool obeys.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.core.log
    }
}

impl Core {
    /// The frames as the replacement policy sees them.
    pub(crate) fn view(&self) -> Frames<'_> {
        Frames::new(self.memory.frames())
    }

    /// Page ids come from pages, so a bad one is corruption and not a defect of the caller.
    pub(crate) fn check(&self, pid: PageId) -> Result<()> {
        if PageTable::in_range(pid) {
            return Ok(());
        }
        Err(Error::corrupted(self.data.path(), Place::Page(pid), "a page id out of range is referred to"))
    }

    /// Passes `result` on; an error of the data file stops the log first, because a page may be clean and lost.
    pub(crate) fn fatal<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| self.log.poison(e))
    }

    pub(crate) fn sync_data(&self) -> Result<()> {
        self.counters.data_syncs.add(1);
        self.data.sync()
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
pub(crate) mod tests {
    use super::*;
    use crate::page::PageMut;
    use crate::replacement::MakeReplacementPolicy;
    use foreshore_io::{Fs, Mem};
    use foreshore_wal::LogOptions;
    use std::path::Path;

    /// A pool without threads over files without pages.
    pub(crate) fn empty_pool(frames: usize) -> Pool {
        pool_with(frames, None)
    }

    /// The same, with a policy.
    pub(crate) fn pool_with(frames: usize, replacement: Option<Arc<dyn MakeReplacementPolicy>>) -> Pool {
        let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
        let [data, doublewrite] = ["data", "dw"].map(|name| Mem::null().create(Path::new(name)).expect("memory"));
        Pool::create_files(&*doublewrite, Uuid([1; 16])).expect("memory");
        let options = PoolOptions { frames, background: false, replacement, ..PoolOptions::default() };
        Pool::open(data, doublewrite, Uuid([1; 16]), log, &options).expect("a pool")
    }

    #[test]
    fn a_page_that_has_changed_or_gone_is_not_returned_to() {
        let pool = empty_pool(64);
        let mut guard = pool.create(PageId(1)).unwrap();
        guard.mark_dirty();
        let position = guard.position();
        drop(guard);
        let again = pool.exclusive_at(position).expect("as it was left");
        assert_eq!(again.pid(), PageId(1));
        assert!(pool.exclusive_at(position).is_none(), "it is latched");
        drop(again);
        let mut again = pool.exclusive_at(position).expect("the latch alone is no change");
        again.write(100, &[1]);
        drop(again);
        assert!(pool.exclusive_at(position).is_none(), "it has changed");
    }
}
