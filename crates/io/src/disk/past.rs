//! Reads past the page cache, for a start that must not believe it.
//!
//! After a failed write-back Linux keeps a page in its cache, with the new bytes, and calls it clean. So the cache of
//! a file may show what the medium does not have, to every later opener, until it drops the page.
//!
//! 1. Sync. What the cache has not written goes to the medium first. A first failure may be old: the kernel reports to
//!    a new opener what no earlier one has heard of. It is no error of the caller, which has written nothing and
//!    believes nothing but the medium. The pages that it speaks of are clean afterwards. A second failure is of now,
//!    and is returned.
//! 2. Drop the clean pages (`POSIX_FADV_DONTNEED`). The kernel keeps those that are in use. This matters for writes,
//!    too: ext4 keeps with a cached page that its block is mapped. Where the conversion of an unwritten extent has
//!    failed, a second write through that page reaches the block, leaves the extent unwritten, and reads as zeros once
//!    the page is gone (Linux 6.18).
//! 3. Read through a second descriptor with `O_DIRECT`, where the file system takes it. Otherwise step 2 is all there
//!    is.

use crate::retry::{RawFile, uninterrupted};
use crate::{AlignedBuf, retry};
use foreshore_base::limits::BLOCK;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{LockRank, RwLock};
use rustix::{
    fd::OwnedFd,
    fs::{self, Advice, CWD, Mode, OFlags},
    io::Errno,
};
use std::{io, path::Path};

/// How a file system refuses direct reads.
const REFUSALS: [Errno; 2] = [Errno::INVAL, Errno::OPNOTSUPP];

/// How a file is read that was opened for reads through the cache.
#[derive(Debug)]
pub(super) struct PastCache {
    /// Whether reads look at `direct`.
    on: AtomicBool,
    direct: RwLock<Option<OwnedFd>>,
}

impl PastCache {
    pub(super) fn new() -> Self {
        Self { on: AtomicBool::new(false), direct: RwLock::new(LockRank::File, None) }
    }

    /// Writes the cache of `fd` back, drops it, and if `reopens` lets reads go through a descriptor of their own.
    pub(super) fn begin(&self, fd: &OwnedFd, path: &Path, reopens: bool) -> io::Result<()> {
        fs::fdatasync(fd).or_else(|_| fs::fdatasync(fd))?;
        fs::fadvise(fd, 0, None, Advice::DontNeed)?;
        if reopens && let Some(direct) = open_direct(fd, path)? {
            *self.direct.write() = Some(direct);
            // ORDERING: release, pairs with `read_full`. The file is not shared yet.
            self.on.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        // ORDERING: Relaxed, a read that comes late goes to the medium.
        self.on.store(false, Ordering::Relaxed);
        *self.direct.write() = None;
    }

    /// Reads until `buf` is full or the file ends, as [`retry::read_full`]; `None` if reads go through the file's own
    /// descriptor.
    pub(super) fn read_full(&self, buf: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        // ORDERING: acquire, pairs with `begin`.
        if !self.on.load(Ordering::Acquire) {
            return None;
        }
        let direct = self.direct.read();
        direct.as_ref().map(|fd| retry::read_full(&Direct(fd), buf, offset))
    }
}

/// A descriptor with `O_DIRECT` for the file of `fd`, if its file system takes direct reads.
fn open_direct(fd: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let direct = match uninterrupted(|| Ok(fs::openat(CWD, path, flags, Mode::empty())?)) {
        Ok(direct) => direct,
        Err(e) if is_refusal(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let (one, other) = (fs::fstat(fd)?, fs::fstat(&direct)?);
    if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
        return Err(io::Error::other("another file has taken its name"));
    }
    // Some take the flag and refuse the reads.
    match Direct(&direct).read_once(&mut AlignedBuf::new(BLOCK), 0) {
        Err(e) if is_refusal(&e) => Ok(None),
        Err(e) => Err(e),
        Ok(_) => Ok(Some(direct)),
    }
}

fn is_refusal(e: &io::Error) -> bool {
    REFUSALS.iter().any(|refusal| e.raw_os_error() == Some(refusal.raw_os_error()))
}

/// A descriptor for direct reads.
struct Direct<'a>(&'a OwnedFd);

impl RawFile for Direct<'_> {
    fn aligned(&self) -> bool {
        true
    }

    fn read_once(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(self.0, buf, offset)?)
    }

    fn write_once(&self, _: &[u8], _: u64, _: bool) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_whole_once(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(fs::fstat(self.0)?.st_size).unwrap_or(0))
    }
}
