//! A full backup and its increments, each of which continues the one before.

use crate::backup::{IncrementReader, check_finished, is_increment, read_header, read_superblock};
use crate::create::{self, Contents};
use crate::files::Files;
use crate::format::backups::BackupHeader;
use crate::{Error, Result};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error as Storage, Lsn, PageId, Place, RestoreRefusal};
use foreshore_buffer::format::{page_type, verify_page};
use foreshore_buffer::{PageType, Pool};
use foreshore_io::{AlignedBuf, DirLock, File, Fs};
use foreshore_space::SuperBlock;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages copied at once: 1 MiB.
const RUN: u64 = 128;
/// The first page that is none of a superblock.
const FIRST: u64 = 2;

/// The backups of a restore.
pub(super) struct Chain {
    data: Arc<dyn File>,
    /// What the full backup says of itself.
    full: Option<BackupHeader>,
    /// Pages with contents that it was found to have.
    stored: u64,
    increments: Vec<IncrementReader>,
    last: Link,
    locks: Vec<Box<dyn DirLock>>,
}

/// The last backup of a chain.
struct Link {
    dir: PathBuf,
    fs: Arc<dyn Fs>,
    superblock: SuperBlock,
    /// `None` in a backup of a build that wrote none.
    header: Option<BackupHeader>,
}

/// What was copied of the data file.
#[derive(Default)]
pub(super) struct Copied {
    pub(super) pages: u64,
    pub(super) quarantined: u64,
}

impl Chain {
    /// Opens the full backup in `dir`.
    ///
    /// # Errors
    /// `NoDatabase`, `UnfinishedBackup`, `Locked`, or `Foreign` if it was opened as a database; `Restore` for an
    /// increment; the error of a damaged file or of a read.
    pub(super) fn open(dir: &Path, fs: Arc<dyn Fs>) -> Result<Self> {
        let files = Files::of(dir);
        check_finished(&files, &*fs)?;
        if is_increment(&files, &*fs)? {
            return Err(Error::Restore(RestoreRefusal::MissingBase { increment: dir.to_owned() }));
        }
        if create::contents(&files, &fs)? != Contents::Database {
            return Err(Error::NoDatabase { path: dir.to_owned() });
        }
        let lock = fs.lock_shared(&files.lock)?;
        let data = fs.open(&files.data)?;
        data.read_past_cache()?;
        let superblock = read_superblock(&files, &*fs, &*data)?;
        Pool::check_files(&fs.open(&files.doublewrite)?, superblock.uuid)?;
        let header = read_header(&files, &*fs)?;
        if header.is_some_and(|header| header.uuid != superblock.uuid || header.base.is_some()) {
            return Err(Error::Foreign { path: files.token, why: "it names another backup" });
        }
        let last = Link { dir: dir.to_owned(), fs, superblock, header };
        Ok(Self { data, full: header, stored: 0, increments: Vec::new(), last, locks: vec![lock] })
    }

    /// Adds the increment in `dir`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); `Restore` if its base is not the last backup, or it is no increment.
    pub(super) fn add(&mut self, dir: &Path, fs: Arc<dyn Fs>) -> Result<()> {
        let files = Files::of(dir);
        check_finished(&files, &*fs)?;
        let header = read_header(&files, &*fs)?.filter(|_| is_increment(&files, &*fs).is_ok_and(|is_one| is_one));
        let is_next = |header: &BackupHeader| {
            header.uuid == self.last.superblock.uuid
                && header.base.is_some()
                && header.base == self.last.header.map(|last| last.token)
        };
        let Some(header) = header.filter(is_next) else {
            let (increment, base) = (dir.to_owned(), self.last.dir.clone());
            return Err(Error::Restore(RestoreRefusal::WrongBase { increment, base }));
        };
        let lock = fs.lock_shared(&files.lock)?;
        let file = fs.open(&files.increment)?;
        file.read_past_cache()?;
        let superblock = SuperBlock { data_pages: header.pages, ..read_superblock(&files, &*fs, &*file)? };
        if superblock.uuid != header.uuid {
            return Err(Error::Foreign { path: files.increment, why: "it belongs to another database" });
        }
        self.increments.push(IncrementReader::new(&file, header));
        self.last = Link { dir: dir.to_owned(), fs, superblock, header: Some(header) };
        self.locks.push(lock);
        Ok(())
    }

    /// Returns the data file of the full backup.
    pub(super) fn data(&self) -> &dyn File {
        &*self.data
    }

    /// Returns the superblock of the last backup.
    pub(super) fn superblock(&self) -> SuperBlock {
        self.last.superblock.clone()
    }

    /// Returns the log of the last backup.
    pub(super) fn log(&self) -> (Arc<dyn Fs>, PathBuf) {
        (Arc::clone(&self.last.fs), Files::of(&self.last.dir).log)
    }

    /// Returns where that log ends, if the backup says it.
    pub(super) fn end(&self) -> Option<Lsn> {
        self.last.header.map(|header| header.end)
    }

    /// Checks all pages, and copies to `to` the newest image of each. The log of the last backup ends at `end`.
    pub(super) fn copy_pages(mut self, to: Option<&dyn File>, end: Lsn) -> Result<Copied, Storage> {
        let of_full = self.data.len()? / PAGE_SIZE as u64;
        let pages = if self.increments.is_empty() { of_full } else { self.last.superblock.data_pages };
        if let Some(to) = to {
            // The engine never writes a page home without space for it.
            to.allocate(0, pages * PAGE_SIZE as u64)?;
        }
        let mut buf = AlignedBuf::new(RUN as usize * PAGE_SIZE);
        let mut copied = Copied { pages, quarantined: 0 };
        let mut first = 0;
        while first < pages {
            let count = RUN.min(pages - first);
            let run = &mut buf[..count as usize * PAGE_SIZE];
            self.read(run, first, end)?;
            let is_quarantined = |page: &&[u8]| page_type(page) == Some(PageType::Quarantined);
            copied.quarantined += run.chunks_exact(PAGE_SIZE).filter(is_quarantined).count() as u64;
            if let Some(to) = to
                && run.iter().any(|&byte| byte != 0)
            {
                to.write_at(run, PageId(first).offset())?;
            }
            first += count;
        }
        // A shorter last increment leaves some unread.
        if self.full.is_some_and(|full| full.stored != self.stored) && pages >= of_full {
            return Err(Storage::corrupted(self.data.path(), Place::File, "some of its pages are missing"));
        }
        self.increments.into_iter().try_for_each(IncrementReader::finish)?;
        Ok(copied)
    }

    /// Fills `run` with the newest images of the pages from `first` on.
    fn read(&mut self, run: &mut [u8], first: u64, end: Lsn) -> Result<(), Storage> {
        // The pages of a base that was opened may have changes of another history. An increment has their LSNs, too.
        let end = self.full.map_or(end, |full| full.end);
        let read = self.data.read_at(run, PageId(first).offset())?;
        run[read..].fill(0);
        for (number, page) in (first..).zip(run.chunks_exact_mut(PAGE_SIZE)) {
            if number < FIRST {
                page.fill(0);
            } else if page.iter().any(|&byte| byte != 0) {
                self.stored += 1;
                verify_page(page, PageId(number), end)
                    .map_err(|flaw| Storage::corrupted(self.data.path(), Place::Page(PageId(number)), flaw.why()))?;
            }
        }
        self.increments.iter_mut().try_for_each(|increment| increment.overlay(run, PageId(first)))
    }
}
