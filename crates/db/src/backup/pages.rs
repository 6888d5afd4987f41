//! Copying the pages of a data file while they are written.
//!
//! Pages are read in runs. A page that is not sound, or is below its stamp, is looked at alone:
//!
//! | found | copied as |
//! |---|---|
//! | its next read is sound: it was being written | that read |
//! | zeros, and the page is free | zeros |
//! | it is in memory, with a change: it is being written, or was never home | its copy in memory |
//! | it is in memory without one, and its home is still not sound: it was handed out, and not linked | zeros |
//! | neither is sound, and the page is free | zeros |
//! | zeros, not in memory, and the page may be free because its map was rebuilt | zeros |
//! | neither is sound, and the page is in use | damage: the backup fails |
//!
//! A free page may be copied as zeros only if no later record relies on its former content. None does: a record that
//! links the page initialises it. Records of its former use from the redo start on begin with such a record as well, if
//! the page was never home.

use crate::storage::Storage;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, PageId, Result};
use foreshore_buffer::format::{page_lsn, page_type, verify_page};
use foreshore_buffer::{PageType, Stamps};
use foreshore_io::AlignedBuf;
use foreshore_wal::REQUEST;

/// Pages read at once.
const RUN: u64 = (REQUEST / PAGE_SIZE) as u64;
/// The first page that is none of a superblock.
const FIRST: u64 = 2;
/// Reads of a page that was handed out, and is perhaps being linked.
const TRIES: u32 = 8;

/// What was copied.
#[derive(Default)]
pub(super) struct Copied {
    /// The largest LSN of a page. It may not be durable yet.
    pub(super) lsn: Lsn,
    /// Quarantined pages.
    pub(super) quarantined: u64,
    /// Pages with contents that were written.
    pub(super) stored: u64,
}

/// A reader of all pages.
pub(super) struct PageCopier<'e> {
    storage: &'e Storage,
    copied: Copied,
}

impl<'e> PageCopier<'e> {
    pub(super) fn new(storage: &'e Storage) -> Self {
        Self { storage, copied: Copied::default() }
    }

    /// Calls `put` with each run of pages before `end`, and its first page. Superblocks are zeros. Calls `rest` before
    /// each run, and ends with its error.
    pub(super) fn copy(
        mut self,
        end: u64,
        rest: &dyn Fn() -> Result<()>,
        put: &mut dyn FnMut(PageId, &[u8]) -> Result<()>,
    ) -> Result<Copied> {
        let mut buf = AlignedBuf::new(RUN as usize * PAGE_SIZE);
        let mut first = 0;
        while first < end {
            rest()?;
            let count = RUN.min(end - first);
            let run = &mut buf[..count as usize * PAGE_SIZE];
            self.read(run, PageId(first))?;
            put(PageId(first), run)?;
            first += count;
        }
        Ok(self.copied)
    }

    /// Fills `run` with the pages from `first` on.
    fn read(&mut self, run: &mut [u8], first: PageId) -> Result<()> {
        // Before the read: a page may be written again at any time.
        let durable = self.storage.log().durable();
        let least = |number| self.storage.pool().stamps().least(PageId(number), durable);
        let least: Vec<_> = (first.0..).map(least).take(run.len() / PAGE_SIZE).collect();
        // If the read of a run fails, each page is read alone.
        let len = self.storage.data().read_at(run, first.offset()).unwrap_or(0);
        run[len..].fill(0);
        // The log is asked after the read: a page is written only once its changes are durable.
        let durable = self.storage.log().durable();
        for ((number, page), least) in (first.0..).zip(run.chunks_exact_mut(PAGE_SIZE)).zip(least) {
            if number < FIRST {
                page.fill(0);
                continue;
            }
            if verify_page(page, PageId(number), durable).is_err() || Stamps::is_stale(page, least) {
                self.read_alone(PageId(number), page)?;
            }
            self.copied.lsn = self.copied.lsn.max(page_lsn(page));
            self.copied.quarantined += u64::from(page_type(page) == Some(PageType::Quarantined));
        }
        Ok(())
    }

    /// Fills `page` with a sound image, or with zeros if it has no content that counts.
    ///
    /// # Errors
    /// `Corrupted` or `Io` for a page in use without one.
    fn read_alone(&self, pid: PageId, page: &mut [u8]) -> Result<()> {
        for _ in 0..TRIES {
            // Asked first. A page in use that is later not in memory is whole at home, even if it was freed since.
            let is_in_use = self.storage.space().is_in_use(pid)?;
            let least = self.storage.pool().stamps().least(pid, self.storage.log().durable());
            let read = self.storage.data().read_at(page, pid.offset());
            page[*read.as_ref().unwrap_or(&0)..].fill(0);
            let is_sound = verify_page(page, pid, self.storage.log().durable()).is_ok();
            if is_sound && !Stamps::is_stale(page, least) {
                return Ok(());
            }
            let is_blank = read.is_ok() && page.iter().all(|&byte| byte == 0);
            if is_blank && !is_in_use {
                return Ok(());
            }
            match self.storage.pool().copy_page(pid, page) {
                Ok(Lsn::ZERO) => {}
                Ok(_) => return Ok(()),
                Err(Error::Corrupted { .. }) if is_blank && self.storage.space().may_be_unused(pid)? => break,
                Err(Error::Corrupted { .. } | Error::Io { .. }) if !is_in_use => break,
                Err(error) => return Err(error),
            }
        }
        page.fill(0);
        Ok(())
    }
}
