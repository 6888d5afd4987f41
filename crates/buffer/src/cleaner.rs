//! The cleaner: writes dirty pages home, in batches, without keeping anyone from them.
//!
//! A round, under a mutex, so that two images of a page never overtake each other:
//!
//! 1. note the next group number, **before** any copy;
//! 2. copy each page under a shared latch that is only tried for, and note the version of the latch;
//! 3. force the log up to the largest LSN on the copies: the write-ahead rule, which holds for the doublewrite file too;
//! 4. write the copies to a doublewrite area, durably; then home; then sync the data file;
//! 5. under a shared latch: if the version is still the one noted the page is clean, else it needs the log from the
//!    noted group on, since all older changes were on the copy. Versions are compared and not LSNs, because a page may
//!    change without a log record. (Redo changes pages by records of older groups; a page that it changed after the
//!    copy keeps the group it had.)
//!
//! The mutex is never held by a thread that waits for a latch, so a thread may wait for it while it holds one.

use crate::doublewrite::Doublewrite;
use crate::format::{AREA_BYTES, AREA_PAGES, Entry, page_id, page_lsn, seal_page};
use crate::frame::FrameNo;
use crate::guard::SharedGuard;
use crate::pool::Core;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::primitive::atomic::Ordering;

/// State of the one cleaner.
#[derive(Debug)]
pub(crate) struct Cleaner {
    doublewrite: Doublewrite,
    enabled: bool,
    /// One block for the header of a doublewrite batch, then the copies.
    buf: AlignedBuf,
    copies: Vec<Copied>,
}

/// A page as it was copied; the n-th one lies in the n-th page of the buffer.
#[derive(Clone, Copy, Debug)]
struct Copied {
    no: FrameNo,
    version: u64,
    entry: Entry,
}

impl Cleaner {
    pub(crate) fn new(doublewrite: Doublewrite, enabled: bool) -> Self {
        Self { doublewrite, enabled, buf: AlignedBuf::new(AREA_BYTES), copies: Vec::with_capacity(AREA_PAGES) }
    }

    pub(crate) fn restore(&mut self, data: &dyn File, durable: Lsn) -> Result<usize> {
        let restored = self.doublewrite.restore(data, &mut self.buf, durable)?;
        if !self.enabled {
            // Pages that are written from now on leave the images behind, and an old image must not mend a newer page.
            self.doublewrite.invalidate()?;
        }
        Ok(restored)
    }

    /// Copies the page of `guard` behind those already copied.
    fn copy(&mut self, guard: &SharedGuard<'_>) {
        let at = BLOCK + self.copies.len() * PAGE_SIZE;
        let page = &mut self.buf[at..at + PAGE_SIZE];
        page.copy_from_slice(guard);
        let version = guard.version();
        assert_eq!(page_id(page), guard.pid(), "a page carries its own id");
        let entry = Entry { pid: guard.pid(), lsn: page_lsn(page), crc: seal_page(page) };
        self.copies.push(Copied { no: guard.slot().no, version, entry });
    }

    /// Writes the copies home, all at once, and pages that are neighbours there in one piece.
    fn write_home(&self, data: &dyn File) -> Result<()> {
        let mut runs = Vec::with_capacity(self.copies.len());
        let mut start = 0;
        while start < self.copies.len() {
            let first = self.copies[start].entry.pid;
            let is_next = |(n, copied): &(usize, &Copied)| copied.entry.pid.0 == first.0 + *n as u64;
            let run = self.copies[start..].iter().enumerate().take_while(is_next).count();
            let at = BLOCK + start * PAGE_SIZE;
            runs.push((&self.buf[at..at + run * PAGE_SIZE], first.offset()));
            start += run;
        }
        data.write_many(&runs)
    }
}

impl Core {
    /// Writes the dirty ones of `frames`, at most [`AREA_PAGES`], home. Returns those whose latch was not free.
    pub(crate) fn clean(&self, cleaner: &mut Cleaner, frames: &mut [FrameNo]) -> Result<Vec<FrameNo>> {
        assert!(frames.len() <= AREA_PAGES, "a batch of {} pages", frames.len());
        // In page order, so that neighbours can be written together.
        frames.sort_unstable_by_key(|&no| self.frames[no as usize].pid());
        let group = self.log.next_group();
        let mut busy = Vec::new();
        cleaner.copies.clear();
        for &no in &*frames {
            let slot = self.slot(no);
            if !slot.frame().latch.try_lock_shared() {
                busy.push(no);
                continue;
            }
            let guard = SharedGuard::adopt(slot);
            if slot.frame().is_dirty() {
                slot.frame().forget_redo();
                cleaner.copy(&guard);
            }
        }
        if !cleaner.copies.is_empty() {
            self.write_batch(cleaner)?;
            self.settle(cleaner, group, &mut busy);
        }
        // ORDERING: hint, see `Core::dry`.
        self.dry.store(false, Ordering::Relaxed);
        Ok(busy)
    }

    /// The write-ahead rule: no page reaches any file before the log holds every change on it.
    fn write_ahead(&self, lsn: Lsn) -> Result<()> {
        if lsn > self.log.durable() {
            self.log.force(lsn)?;
        }
        assert!(lsn <= self.log.durable(), "page lsn {lsn} is ahead of the log");
        match self.log.poisoned() {
            Some(cause) => Err(Error::poisoned(&cause)),
            None => Ok(()),
        }
    }

    fn write_batch(&self, cleaner: &mut Cleaner) -> Result<()> {
        let newest = cleaner.copies.iter().map(|copied| copied.entry.lsn).max().unwrap_or_default();
        self.write_ahead(newest)?;
        let pages = cleaner.copies.len() as u64;
        self.counters.batches.add(1);
        if cleaner.enabled {
            let entries = cleaner.copies.iter().map(|copied| copied.entry).collect();
            self.fatal(cleaner.doublewrite.write(&mut cleaner.buf, entries))?;
            self.counters.doublewrite_batches.add(1);
            self.counters.pages_written.add(pages);
        }
        // Space was taken when the pages were allocated, so even a full disk here is a broken promise of the file system.
        self.fatal(cleaner.write_home(&*self.data))?;
        self.counters.pages_written.add(pages);
        self.fatal(self.sync_data())
    }

    /// Makes the pages clean that are still as they were copied. Adds those whose latch was not free to `busy`.
    fn settle(&self, cleaner: &Cleaner, group: GroupNo, busy: &mut Vec<FrameNo>) {
        for copied in &cleaner.copies {
            let slot = self.slot(copied.no);
            let frame = slot.frame();
            // A dirty page stays in its frame, and nobody else cleans.
            assert_eq!(frame.pid(), copied.entry.pid, "a dirty page left its frame");
            if !frame.latch.try_lock_shared() {
                busy.push(copied.no);
                continue;
            }
            let guard = SharedGuard::adopt(slot);
            if guard.version() == copied.version {
                frame.set_clean();
                self.counters.cleaned.add(1);
            } else {
                frame.advance_rec_group(group);
            }
            // The state of the frame changes under the latch, not after it.
            drop(guard);
        }
    }

    /// Dirty frames whose first change may stand before `limit`, oldest first, and neighbours on disk side by side.
    fn dirty_frames(&self, limit: Option<GroupNo>) -> Vec<FrameNo> {
        let mut dirty: Vec<_> = (0..)
            .zip(&self.frames)
            .filter_map(|(no, frame)| frame.rec_group().map(|group| (group, frame.pid(), no)))
            .filter(|&(group, ..)| limit.is_none_or(|limit| group < limit))
            .collect();
        dirty.sort_unstable();
        dirty.into_iter().map(|(.., no)| no).collect()
    }

    /// Writes every page home that is dirty now (with a first change before `limit`).
    pub(crate) fn flush(&self, limit: Option<GroupNo>) -> Result<()> {
        let mut left = self.dirty_frames(limit);
        while !left.is_empty() {
            let mut busy = Vec::new();
            for batch in left.chunks_mut(AREA_PAGES) {
                let mut cleaner = self.cleaner.lock();
                busy.append(&mut self.clean(&mut cleaner, batch)?);
            }
            for &no in &busy {
                let latch = &self.frames[no as usize].latch;
                // WAIT: park - until the page is free for a moment, without the cleaner's mutex, then try again.
                latch.lock_shared(&self.parks);
                latch.unlock_shared(&self.parks);
            }
            left = busy;
        }
        Ok(())
    }

    /// Writes the oldest dirty pages home, one batch of them.
    pub(crate) fn clean_oldest(&self) -> Result<usize> {
        let mut dirty = self.dirty_frames(None);
        dirty.truncate(AREA_PAGES);
        let mut cleaner = self.cleaner.lock();
        self.clean(&mut cleaner, &mut dirty)?;
        Ok(cleaner.copies.len())
    }
}
