//! The calls of macOS. They compile, and have not been run.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, Mode, OFlags, StatFs},
    io::{Errno, Result},
    path::Arg,
    thread::nanosleep,
    time::{ClockId, Timespec, clock_gettime},
};
use std::ops::RangeInclusive;

/// Refuses with `EINVAL`: macOS has no `O_DIRECT`. `F_NOCACHE` is no substitute, since such reads still take what is in
/// the page cache.
pub(crate) fn open_direct(_: impl AsFd, _: impl Arg, _: OFlags, _: Mode) -> Result<OwnedFd> {
    Err(Errno::INVAL)
}

/// Refuses: no call writes and syncs. A file without direct I/O is written, and then synced by [`sync_data`].
pub(crate) fn write_durable(_: impl AsFd, _: &[u8], _: u64) -> Result<usize> {
    Err(Errno::OPNOTSUPP)
}

/// Refuses: power loss may tear every write.
pub(crate) fn write_whole(_: impl AsFd, _: &[u8], _: u64) -> Result<usize> {
    Err(Errno::OPNOTSUPP)
}

/// Returns `None`: [`write_whole`] writes no length.
pub(crate) fn whole_lengths(_: impl AsFd) -> Option<RangeInclusive<usize>> {
    None
}

/// Makes the bytes and the length of a file survive power loss. `fsync(2)` of macOS leaves them in the cache of the
/// device; `F_FULLFSYNC` flushes that, too. An error if the file system has no such call.
pub(crate) fn sync_data(fd: impl AsFd) -> Result<()> {
    fs::fcntl_fullfsync(fd)
}

/// Makes the names in a directory survive power loss, as [`sync_data`] does for a file.
pub(crate) fn sync_dir(fd: impl AsFd) -> Result<()> {
    fs::fcntl_fullfsync(fd)
}

/// Does nothing: macOS has no `posix_fadvise`. Reads may show what is only in the cache.
#[expect(clippy::unnecessary_wraps, reason = "another system may fail")]
pub(crate) fn drop_cached(_: impl AsFd) -> Result<()> {
    Ok(())
}

/// Refuses, so that the caller writes zeros. `F_PREALLOCATE` does not grow the file, and `ftruncate` after it would
/// shrink a longer one.
pub(crate) fn allocate(_: impl AsFd, _: u64, _: u64) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// Does nothing: APFS has no such flag.
pub(crate) fn write_in_place(_: impl AsFd) {}

/// Refuses: macOS has no files without a file system.
pub(crate) fn memory_file(_: &str) -> Result<OwnedFd> {
    Err(Errno::OPNOTSUPP)
}

/// Returns the name of a file system: `apfs`, `hfs`, …
pub(crate) fn type_name(stat: &StatFs) -> String {
    let name = stat.f_fstypename.iter().map(|&byte| byte as u8);
    String::from_utf8_lossy(&name.take_while(|&byte| byte != 0).collect::<Vec<_>>()).into_owned()
}

/// Whether a file system keeps its files in memory. A disk image in memory is not noticed.
pub(crate) fn is_memory(stat: &StatFs) -> bool {
    type_name(stat) == "tmpfs"
}

/// Sleeps until the monotonic clock shows `end` nanoseconds, never less.
pub(crate) fn sleep_until(end: u64) {
    loop {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        let rest = end.saturating_sub(now);
        if rest == 0 {
            return;
        }
        let rest = Timespec { tv_sec: (rest / 1_000_000_000) as i64, tv_nsec: (rest % 1_000_000_000) as _ };
        // WAIT: park - the latency that this device was given. A signal may end the sleep early: the loop goes on.
        let _ = nanosleep(&rest);
    }
}

/// A guard that does nothing: the timer slack of a thread is not ours to set. Sleeps may be longer than on Linux.
pub(crate) struct NoSlack;

impl NoSlack {
    pub(crate) fn new() -> Self {
        Self
    }
}
