//! The pool: the interface for upper layers. It owns the parts and the threads, and has no logic of its own.

mod open;
mod redo;

use crate::cleaner::Cleaner;
use crate::flush_order;
use crate::guard::{ExclusiveGuard, SharedGuard};
use crate::loader::{Fill, Loader};
use crate::optimistic::OptimisticGuard;
use crate::pinned::Pinned;
use crate::position::PagePosition;
use crate::quarantine::quarantined;
use crate::read_ahead::Scan;
use crate::reclaimer::Reclaimer;
use crate::residency::Residency;
use crate::scan_ring::AccessPattern;
use crate::stats::PoolStats;
use foreshore_base::{GroupNo, Lsn, PageId, Result, TableId};
use foreshore_sync::{Daemon, Hot, Mutex, NextWake};
use foreshore_wal::Log;
use std::fmt;
use std::sync::Arc;

/// The buffer pool of one database. Clones share it. Dropping the last one stops its threads and writes nothing.
///
/// Methods that fix a page return a guard, which gives access to its bytes until it is dropped. They differ in the
/// latch that the guard holds (shared, exclusive, none), in what the caller may have latched already, and in what
/// happens if the page is missing:
///
/// | methods | the caller has latched | a page that is not in memory |
/// |---|---|---|
/// | `shared`, `exclusive`, `optimistic`, `pin` | nothing | is read |
/// | `create`, `pin_unread` | nothing | comes in blank; is read if it waits for its redo |
/// | `exclusive_or_blank`, `exclusive_or_quarantined` | nothing | is read; damage is no error |
/// | `try_optimistic`, `exclusive_resident` | nothing | `None` |
/// | `try_shared`, `try_exclusive` | other pages | `None` |
///
/// # Errors
/// Methods that may read a page fail with:
///
/// - `Corrupted` if the id is out of range, or the page on disk is not sound or holds more than the durable log;
/// - `Io` if the read fails, or there is no memory for the page table;
/// - `OutOfFrames` if all pages in memory stay latched or pinned;
/// - `Poisoned` if the page is not in memory and the log has stopped.
///
/// The others fail with `Corrupted` if the id is out of range.
#[derive(Clone)]
pub struct Pool {
    // Declared first, so that the threads end before the parts that they use.
    daemons: Arc<Mutex<Vec<Daemon>>>,
    residency: Arc<Residency>,
    loader: Arc<Loader>,
    reclaimer: Arc<Reclaimer>,
    cleaner: Arc<Cleaner>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Ends the background threads. Dirty pages stay unwritten; [`Pool::flush_all`] writes them before.
    pub fn close(&self) {
        let daemons = std::mem::take(&mut *self.daemons.lock());
        daemons.into_iter().for_each(Daemon::stop);
    }

    /// Frees frames if few are free, cleaning pages if need be, and does one requested read-ahead. For owners without
    /// background threads.
    ///
    /// # Errors
    /// Those of writing pages home, see [`Pool::flush_all`].
    pub fn reclaim_step(&self) -> Result<NextWake> {
        self.loader.read_ahead();
        self.reclaimer.refill()
    }

    /// Writes home a waiting batch of another thread's pass, if there is one. For owners without background threads.
    pub fn help_step(&self) -> NextWake {
        self.cleaner.help()
    }

    /// Fixes a page for reading.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    pub fn shared(&self, pid: PageId) -> Result<SharedGuard<'_>> {
        self.shared_as(pid, AccessPattern::Random)
    }

    /// Fixes a page for reading, with the given access pattern.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    pub fn shared_as(&self, pid: PageId, pattern: AccessPattern) -> Result<SharedGuard<'_>> {
        loop {
            if let Some(guard) = self.residency.fix(pid, pattern) {
                return Ok(guard);
            }
            if let Some(guard) = self.loader.load(pid, Fill::Read, pattern)? {
                return Ok(guard.downgrade());
            }
        }
    }

    /// Fixes a page for writing.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    pub fn exclusive(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        self.exclusive_filled(pid, Fill::Read)
    }

    fn exclusive_filled(&self, pid: PageId, fill: Fill) -> Result<ExclusiveGuard<'_>> {
        loop {
            if let Some(guard) = self.residency.fix(pid, AccessPattern::Random) {
                return Ok(guard);
            }
            if let Some(guard) = self.loader.load(pid, fill, AccessPattern::Random)? {
                return Ok(guard);
            }
        }
    }

    /// Fixes a page for reading, without a latch.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    // Inlined, so that the guard is built in place. The call that may read the page is out of line.
    #[inline(always)]
    pub fn optimistic(&self, pid: PageId, pattern: AccessPattern) -> Result<OptimisticGuard<'_>> {
        if let Some(guard) = self.residency.optimistic(pid, pattern) {
            return Ok(guard);
        }
        let guard = self.optimistic_slow(pid, pattern)?;
        Ok(guard)
    }

    #[cold]
    fn optimistic_slow(&self, pid: PageId, pattern: AccessPattern) -> Result<OptimisticGuard<'_>> {
        Ok(self.shared_as(pid, pattern)?.as_optimistic())
    }

    /// Fixes a page in memory for reading, without a latch. Returns `None` if the page is not in memory or is being
    /// read. May wait for the holder of the exclusive latch.
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    #[inline(always)]
    pub fn try_optimistic(&self, pid: PageId, pattern: AccessPattern) -> Result<Option<OptimisticGuard<'_>>> {
        if let Some(guard) = self.residency.optimistic(pid, pattern) {
            return Ok(Some(guard));
        }
        let guard = self.try_optimistic_slow(pid, pattern)?;
        Ok(guard)
    }

    #[cold]
    fn try_optimistic_slow(&self, pid: PageId, pattern: AccessPattern) -> Result<Option<OptimisticGuard<'_>>> {
        let found = self.residency.fix_loaded::<SharedGuard<'_>>(pid, pattern);
        self.or_checked(pid, found.map(|guard| guard.as_optimistic()))
    }

    /// Fixes a page for reading while the caller holds latches of other pages. Returns `None` if the page is not in
    /// memory, is being read, or is latched exclusively and not pinned. The caller then drops its latches, pins the
    /// page and retries. May wait for the latch of a pinned page.
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    pub fn try_shared(&self, pid: PageId, pattern: AccessPattern) -> Result<Option<SharedGuard<'_>>> {
        self.or_checked(pid, self.residency.try_fix(pid, pattern))
    }

    /// Fixes a page for writing while the caller holds latches of other pages, like [`Pool::try_shared`].
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    pub fn try_exclusive(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        self.or_checked(pid, self.residency.try_fix(pid, AccessPattern::Random))
    }

    /// Fixes a page in memory for writing. Returns `None` if the page is not in memory or is being read. May wait for
    /// the holders of its latch.
    ///
    /// # Errors
    /// `Corrupted` for an id out of range.
    pub fn exclusive_resident(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        self.or_checked(pid, self.residency.fix_loaded(pid, AccessPattern::Random))
    }

    /// Returns `found`; if that is `None`, fails for an id out of range.
    fn or_checked<T>(&self, pid: PageId, found: Option<T>) -> Result<Option<T>> {
        match found {
            Some(_) => Ok(found),
            None => self.loader.check(pid).map(|()| None),
        }
    }

    /// Latches the page at `position` exclusively, if it has not changed since and no other thread holds the latch.
    /// Never waits. The replacement does not count this as a use of the page.
    #[must_use]
    pub fn exclusive_at(&self, position: PagePosition) -> Option<ExclusiveGuard<'_>> {
        ExclusiveGuard::at(self.residency.memory(), position)
    }

    /// Reads the page at `position` again without its latch, if the page has not changed since. The replacement does
    /// not count this as a use of the page.
    #[must_use]
    #[inline]
    pub fn optimistic_at(&self, position: PagePosition) -> Option<OptimisticGuard<'_>> {
        OptimisticGuard::at(self.residency.memory(), position)
    }

    /// Fixes a page that the caller is about to initialise. It is blank, with its id, and is not read from disk.
    ///
    /// If the page is in memory from an earlier use of its id, it is blanked and keeps its LSN. Otherwise its LSN is 0,
    /// and the caller adds the last LSN of the earlier use by [`foreshore_wal::Dep::freed`].
    ///
    /// # Errors
    /// Those of reads, see [`Pool`]. Those of the page on disk only if changes wait for it.
    pub fn create(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        let mut guard = self.exclusive_filled(pid, Fill::Blank)?;
        guard.blank();
        Ok(guard)
    }

    /// Pins a page that the caller is about to initialise, without reading it.
    ///
    /// The page is blank if it was not in memory and no change waits for it. If it was, or one does, from an earlier
    /// use of its id, its bytes stay **as they are** until a record initialises them. The record that ended the earlier
    /// use may not be durable yet, so only the earlier page may go home. One latch covers the record and the new bytes.
    ///
    /// # Errors
    /// Those of [`Pool::create`].
    pub fn pin_unread(&self, pid: PageId) -> Result<Pinned<'_>> {
        Ok(self.exclusive_filled(pid, Fill::Blank)?.pin())
    }

    /// Fixes a page for redo. An unreadable or damaged page is replaced by a blank one of LSN 0. Only for a record that
    /// initialises the page: the log has all of its content from that record on.
    ///
    /// # Errors
    /// Those of [`Pool::create`]; `Corrupted` for a page that holds more than the durable log.
    pub fn exclusive_or_blank(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        self.exclusive_filled(pid, Fill::ReadOrBlank)
    }

    /// Fixes a page for recovery. A damaged page is replaced by a quarantined one of LSN 0, which the caller marks
    /// dirty.
    ///
    /// # Errors
    /// Those of [`Pool::exclusive_or_blank`]; `Io` for a page that cannot be read.
    pub fn exclusive_or_quarantined(&self, pid: PageId) -> Result<ExclusiveGuard<'_>> {
        self.exclusive_filled(pid, Fill::ReadOrQuarantined)
    }

    /// Returns the table of a quarantined page, and why the page cannot be used; `None` for any other page.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    pub fn quarantined(&self, pid: PageId) -> Result<Option<(TableId, &'static str)>> {
        Ok(quarantined(&self.shared(pid)?))
    }

    /// Pins a page, and reads it if it is not in memory.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    pub fn pin(&self, pid: PageId) -> Result<Pinned<'_>> {
        self.pin_as(pid, AccessPattern::Random)
    }

    /// Pins a page like [`Pool::pin`], with the given access pattern.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    pub fn pin_as(&self, pid: PageId, pattern: AccessPattern) -> Result<Pinned<'_>> {
        Ok(Pinned::by(&self.shared_as(pid, pattern)?))
    }

    /// Requests background reads of pages that will be needed soon. Never waits; requests beyond the [`Scan::depth`] of
    /// a single scan are dropped.
    pub fn prefetch(&self, pids: &[PageId]) {
        self.loader.prefetch(pids);
    }

    /// Registers a scan that reads ahead, until the returned value is dropped.
    #[must_use]
    pub fn scan(&self) -> Scan {
        Scan::new(self.loader.ahead())
    }

    /// Restores torn pages from the doublewrite file and returns how many. Called before redo; the recovered log ends
    /// at `durable`.
    ///
    /// # Errors
    /// `Corrupted` if a needed image holds more than the durable log; `Io`.
    pub fn restore_doublewrite(&self, durable: Lsn) -> Result<usize> {
        self.cleaner.home().restore(durable)
    }

    /// Writes home every page that is dirty at the time of the call, and syncs.
    ///
    /// # Errors
    /// `Io` or `DiskFull` of the files or the log, which stop the log; `Poisoned` if the log has stopped.
    pub fn flush_all(&self) -> Result<()> {
        self.cleaner.flush(false, |dirty| flush_order::older_than(dirty, None), |_| Ok(()))
    }

    /// Writes home every page that may hold a change from a group before `group`, and syncs. Then no page needs the log
    /// before `group`. Checkpoints call it, and load [`Log::next_group`] first. The oldest pages go first. After each
    /// batch `progress` gets the oldest group that a remaining page needs.
    ///
    /// # Errors
    /// Those of [`Pool::flush_all`]; an error of `progress`, which ends the call.
    pub fn flush_older_than(&self, group: GroupNo, progress: impl FnMut(GroupNo) -> Result<()>) -> Result<()> {
        self.cleaner.flush(false, |dirty| flush_order::older_than(dirty, Some(group)), progress)
    }

    /// Writes pages like [`Pool::flush_older_than`], one batch at a time. Calls `rest` after each batch, and writes no
    /// page meanwhile.
    ///
    /// # Errors
    /// Those of [`Pool::flush_all`]; an error of `rest`, which ends the call.
    pub fn flush_paced(&self, group: GroupNo, rest: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.cleaner.flush(true, |dirty| flush_order::older_than(dirty, Some(group)), |_| rest())
    }

    /// Writes pages like [`Pool::flush_older_than`], but at least one in `share` of all dirty pages: those of the
    /// extents with the oldest ones. Regular calls as the log grows spread the writes, so that pages do not all get old
    /// at once.
    ///
    /// # Errors
    /// Those of [`Pool::flush_older_than`].
    pub fn flush_some(&self, group: GroupNo, share: usize, progress: impl FnMut(GroupNo) -> Result<()>) -> Result<()> {
        self.cleaner.flush(false, |dirty| flush_order::share_of(dirty, group, share), progress)
    }

    /// Writes one batch of the oldest dirty pages home and returns how many were written.
    ///
    /// # Errors
    /// Those of [`Pool::flush_all`].
    pub fn clean_step(&self) -> Result<usize> {
        self.cleaner.clean_oldest()
    }

    /// Returns the pages for whose latches measured threads ([`foreshore_sync::spent`]) have waited longest.
    #[must_use]
    pub fn hot_pages(&self) -> Vec<Hot<PageId>> {
        self.residency.hot_pages()
    }

    /// Returns the statistics of the pool since it was opened.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let [misses, pages_read, pages_ahead] = self.loader.counts();
        let [evictions, evictions_inline] = self.reclaimer.counts();
        let [batches, doublewrite_batches, pages_written, data_syncs] = self.cleaner.home().counts();
        PoolStats {
            frames: self.frames() as u64,
            frames_free: self.residency.free_frames() as u64,
            pages_dirty: self.residency.memory().dirty(),
            misses,
            pages_read,
            pages_ahead,
            pages_written,
            evictions,
            evictions_inline,
            batches,
            doublewrite_batches,
            data_syncs,
            stamps: self.stamps().stats(),
            whole_writes: self.cleaner.home().offers_whole(),
            page_writes: self.cleaner.rounds().writes(),
            page_table_bytes: self.residency.page_table_bytes(),
        }
    }

    /// Returns the number of frames in the pool.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.residency.memory().frames().len()
    }

    /// Returns the log of the pool.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.residency.memory().log()
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
