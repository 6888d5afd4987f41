//! The calls of Linux.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, Advice, AtFlags, FallocateFlags, IFlags, MemfdFlags, Mode, OFlags, StatFs, StatxFlags},
    io::{Errno, ReadWriteFlags, Result, pwritev2},
    path::Arg,
    thread::{ClockId, clock_nanosleep_absolute, current_timer_slack, set_current_timer_slack},
    time::Timespec,
};
use std::{io::IoSlice, num::NonZeroU64, ops::RangeInclusive};

/// `RWF_ATOMIC`, of Linux 6.11: the write is on the device whole or not at all. Needs direct I/O.
const WHOLE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);

/// `STATX_WRITE_ATOMIC`: requests the lengths of atomic writes.
const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;

/// Names of file systems by the magic number of `statfs(2)`.
const NAMES: [(u32, &str); 15] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (0x794C_7630, "overlay"),
    (0x6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x4D44, "vfat"),
];
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;

/// Opens a file whose reads and writes bypass the page cache. `EINVAL` if its file system has no direct I/O.
pub(crate) fn open_direct(dir: impl AsFd, path: impl Arg, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    fs::openat(dir, path, flags | OFlags::DIRECT, mode)
}

/// Writes once, maybe less than all of `buf`. What is written survives power loss when the call returns.
pub(crate) fn write_durable(fd: impl AsFd, buf: &[u8], offset: u64) -> Result<usize> {
    pwritev2(fd, &[IoSlice::new(buf)], offset, ReadWriteFlags::DSYNC)
}

/// Writes to a file of direct I/O once, so that all of `buf` is on the device or nothing, even after power loss.
pub(crate) fn write_whole(fd: impl AsFd, buf: &[u8], offset: u64) -> Result<usize> {
    pwritev2(fd, &[IoSlice::new(buf)], offset, WHOLE)
}

/// Returns the lengths that [`write_whole`] may write to the file, or `None` if it may write none.
pub(crate) fn whole_lengths(fd: impl AsFd) -> Option<RangeInclusive<usize>> {
    let asked = StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
    let stat = fs::statx(fd, c"", AtFlags::EMPTY_PATH, asked).ok()?;
    let lens = stat.stx_atomic_write_unit_min as usize..=stat.stx_atomic_write_unit_max as usize;
    (stat.stx_mask & STATX_WRITE_ATOMIC != 0).then_some(lens)
}

/// Makes the bytes and the length of a file survive power loss.
pub(crate) fn sync_data(fd: impl AsFd) -> Result<()> {
    fs::fdatasync(fd)
}

/// Makes the names in a directory survive power loss.
pub(crate) fn sync_dir(fd: impl AsFd) -> Result<()> {
    fs::fsync(fd)
}

/// Drops the clean pages of the file from the page cache. The kernel keeps those that are in use.
pub(crate) fn drop_cached(fd: impl AsFd) -> Result<()> {
    fs::fadvise(fd, 0, None, Advice::DontNeed)
}

/// Allocates space for a range of the file and grows it to hold the range. `EOPNOTSUPP` if its file system cannot.
pub(crate) fn allocate(fd: impl AsFd, offset: u64, len: u64) -> Result<()> {
    fs::fallocate(fd, FallocateFlags::empty(), offset, len)
}

/// Asks the file system to write a new, empty file in place (`FS_NOCOW_FL` of `ioctl_iflags(2)`: "on btrfs, the flag
/// should be set on new or empty files").
///
/// Otherwise btrfs writes every change elsewhere. Then a full disk fails writes to allocated space, and direct writes
/// with checksums fall back to the page cache. Other file systems write in place anyway and refuse the flag; that is no
/// error.
pub(crate) fn write_in_place(fd: impl AsFd) {
    let Ok(flags) = fs::ioctl_getflags(&fd) else { return };
    // A compressed file cannot be written in place; the flag comes from the directory.
    let _ = fs::ioctl_setflags(&fd, (flags | IFlags::NOCOW) - IFlags::COMPRESSED);
}

/// Creates a file in memory, on no file system, that ends with its descriptor.
pub(crate) fn memory_file(name: &str) -> Result<OwnedFd> {
    fs::memfd_create(name, MemfdFlags::CLOEXEC)
}

/// Returns the name of a file system: `ext4`, `tmpfs`, … or its magic number in hex.
pub(crate) fn type_name(stat: &StatFs) -> String {
    let known = NAMES.iter().find(|(m, _)| *m == magic(stat));
    known.map_or_else(|| format!("{:#x}", magic(stat)), |(_, name)| (*name).to_owned())
}

/// Whether a file system keeps its files in memory.
pub(crate) fn is_memory(stat: &StatFs) -> bool {
    matches!(magic(stat), TMPFS | RAMFS)
}

/// Returns the magic number. The field is a signed word on some targets; the numbers have 32 bits.
fn magic(stat: &StatFs) -> u32 {
    stat.f_type as u32
}

/// Sleeps until the monotonic clock shows `end` nanoseconds, never less.
pub(crate) fn sleep_until(end: u64) {
    let at = Timespec { tv_sec: (end / 1_000_000_000) as i64, tv_nsec: (end % 1_000_000_000) as _ };
    // WAIT: park - the latency that this device was given. A signal may end the sleep early.
    while clock_nanosleep_absolute(ClockId::Monotonic, &at) == Err(Errno::INTR) {}
}

/// A guard that sets the timer slack of the calling thread to the minimum, and restores it on drop.
pub(crate) struct NoSlack {
    before: Option<NonZeroU64>,
}

impl NoSlack {
    pub(crate) fn new() -> Self {
        let before = current_timer_slack().ok().and_then(NonZeroU64::new);
        // If this is refused, the sleeps are longer, so errors are ignored.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Self { before }
    }
}

impl Drop for NoSlack {
    fn drop(&mut self) {
        let _ = set_current_timer_slack(self.before);
    }
}
