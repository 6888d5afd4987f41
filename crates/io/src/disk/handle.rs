//! An open file, and reads of it past the page cache, for recovery, which must not believe the cache.
//!
//! After a failed write-back Linux keeps a page in its cache, with the new bytes, and marks it clean. So the cache may
//! show every later opener bytes that the medium does not have, until it drops the page.
//!
//! 1. Sync. Dirty pages of the cache go to the medium. A first failure may be old: the kernel reports to a new opener a
//!    failure that no earlier one has seen. That is no error of the caller, which has written nothing and believes only
//!    the medium. Its pages are clean afterwards. A second failure is new and is returned.
//! 2. Drop the clean pages (`POSIX_FADV_DONTNEED`). The kernel keeps those that are in use. Writes need this step, too:
//!    ext4 notes in a cached page that its block is mapped. If the conversion of an unwritten extent has failed, a
//!    second write through that page reaches the block but leaves the extent unwritten. Once the page is gone, the
//!    block reads as zeros (Linux 6.18).
//! 3. Read through a second descriptor with `O_DIRECT`, where the file system allows it. Otherwise step 2 has to do.
//!
//! On macOS steps 2 and 3 do nothing, so reads may show its page cache.

use super::descriptor::Descriptor;
use crate::AlignedBuf;
use crate::os;
use crate::retry::{self, RawFile, uninterrupted};
use foreshore_base::limits::BLOCK;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{LockRank, RwLock};
use rustix::{
    fd::OwnedFd,
    fs::{self, CWD, Mode, OFlags},
    io::Errno,
};
use std::{io, path::Path};

/// Errors by which a file system refuses direct reads.
const REFUSALS: [Errno; 2] = [Errno::INVAL, Errno::OPNOTSUPP];

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) own: Descriptor,
    /// Whether reads use `past_cache`.
    on: AtomicBool,
    past_cache: RwLock<Option<Descriptor>>,
}

impl Handle {
    pub(super) fn new(own: Descriptor) -> Self {
        Self { own, on: AtomicBool::new(false), past_cache: RwLock::new(LockRank::File, None) }
    }

    /// Writes the cache of the file at `path` back and drops it. From now on reads go through a direct descriptor,
    /// where the file system allows one.
    pub(super) fn read_past_cache(&self, path: &Path) -> io::Result<()> {
        let fd = &self.own.fd;
        os::sync_data(fd).or_else(|_| os::sync_data(fd))?;
        os::drop_cached(fd)?;
        if !self.own.direct
            && let Some(direct) = open_direct(fd, path)?
        {
            *self.past_cache.write() = Some(direct);
            // ORDERING: release, pairs with `read_full`. The file is not shared yet.
            self.on.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Ends [`Self::read_past_cache`].
    pub(super) fn read_cached(&self) {
        // ORDERING: Relaxed, a read that comes late goes to the medium.
        self.on.store(false, Ordering::Relaxed);
        *self.past_cache.write() = None;
    }

    /// Reads until `buf` is full or the file ends, past the cache or not.
    pub(super) fn read_full(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // ORDERING: acquire, pairs with `read_past_cache`.
        if self.on.load(Ordering::Acquire)
            && let Some(direct) = &*self.past_cache.read()
        {
            return retry::read_full(direct, buf, offset);
        }
        retry::read_full(&self.own, buf, offset)
    }
}

/// Opens the file of `fd` again with `O_DIRECT`, if its file system allows direct reads.
fn open_direct(fd: &OwnedFd, path: &Path) -> io::Result<Option<Descriptor>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let direct = match uninterrupted(|| Ok(os::open_direct(CWD, path, flags, Mode::empty())?)) {
        Ok(direct) => Descriptor::new(direct, true),
        Err(e) if is_refusal(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let (one, other) = (fs::fstat(fd)?, fs::fstat(&direct.fd)?);
    if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
        return Err(io::Error::other("another file has taken its name"));
    }
    // Some file systems accept the flag and refuse the reads.
    match direct.read_once(&mut AlignedBuf::new(BLOCK), 0) {
        Err(e) if is_refusal(&e) => Ok(None),
        Err(e) => Err(e),
        Ok(_) => Ok(Some(direct)),
    }
}

fn is_refusal(e: &io::Error) -> bool {
    REFUSALS.iter().any(|refusal| e.raw_os_error() == Some(refusal.raw_os_error()))
}
