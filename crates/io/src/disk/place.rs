//! What the file system under a directory is and can do.

use crate::AlignedBuf;
use foreshore_base::{Error, Result, limits::BLOCK};
#[cfg(feature = "uring")]
use rustix::fd::AsFd;
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, CWD, OFlags},
    io::{Errno, ReadWriteFlags},
};
use std::{
    io::{self, IoSlice},
    path::{Path, PathBuf},
};

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
/// What a file system answers to a kind of write that it does not have.
const REFUSALS: [Errno; 3] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;

/// Name of the file system that holds `dir`, or will hold it: `ext4`, `tmpfs`, … or its magic number in hex.
pub fn filesystem_name(dir: &Path) -> Result<String> {
    let magic = magic(dir)?;
    let known = NAMES.iter().find(|(m, _)| *m == magic);
    Ok(known.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned()))
}

/// Whether a sync in `dir` reaches a device at all. False on file systems in memory.
pub fn syncs(dir: &Path) -> Result<bool> {
    Ok(!matches!(magic(dir)?, TMPFS | RAMFS))
}

fn magic(dir: &Path) -> Result<u32> {
    let dir = existing(dir);
    let stat = fs::statfs(&dir).map_err(|e| Error::io("stat", &dir, e.into()))?;
    // The field is a signed word on some targets; the numbers have 32 bits.
    Ok(stat.f_type as u32)
}

/// `dir`, or its nearest ancestor that exists.
fn existing(dir: &Path) -> PathBuf {
    let found = dir.ancestors().find(|d| !d.as_os_str().is_empty() && fs::stat(*d).is_ok());
    found.unwrap_or(Path::new(".")).to_owned()
}

/// Tries a direct durable write in `dir` or its nearest existing ancestor. Leaves nothing behind.
pub(super) fn probe_direct(dir: &Path) -> Result<()> {
    let write =
        |fd: &OwnedFd, buf: &[u8]| Ok(rustix::io::pwritev2(fd, &[IoSlice::new(buf)], 0, ReadWriteFlags::DSYNC)?);
    if try_write(dir, write)? {
        return Ok(());
    }
    Err(Error::InvalidOption {
        name: "device",
        value: "direct".into(),
        expected: format!("auto or buffered: {} refuses O_DIRECT with RWF_DSYNC", filesystem_name(dir)?),
    })
}

/// [`probe_direct`] through a ring.
#[cfg(feature = "uring")]
pub(super) fn probe_uring(dir: &Path, ring: &super::uring::Ring) -> Result<()> {
    let write = |fd: &OwnedFd, buf: &[u8]| Ok(ring.write_durable(fd.as_fd(), buf, 0)?.unwrap_or(0));
    if try_write(dir, write)? {
        return Ok(());
    }
    Err(super::uring::refused(&format!("{} refuses O_DIRECT with RWF_DSYNC in a ring", filesystem_name(dir)?)))
}

/// Whether `write` writes a block to a file opened for direct I/O in `dir` or its nearest existing ancestor.
fn try_write(dir: &Path, write: impl Fn(&OwnedFd, &[u8]) -> io::Result<usize>) -> Result<bool> {
    let dir = existing(dir);
    let (path, created) = create_probe(&dir)?;
    drop(created);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECT;
    let opened = fs::openat(CWD, &path, flags, super::FILE_MODE);
    fs::unlinkat(CWD, &path, AtFlags::empty()).map_err(|e| Error::io("remove", &path, e.into()))?;
    let mut buf = AlignedBuf::new(BLOCK);
    let wrote = opened.map_err(io::Error::from).and_then(|fd| {
        let wrote = write(&fd, &buf)?;
        let read = rustix::io::pread(&fd, &mut *buf, 0)?;
        Ok(wrote == BLOCK && read == BLOCK)
    });
    match wrote {
        Ok(works) => Ok(works),
        Err(e) if REFUSALS.map(|refusal| Some(refusal.raw_os_error())).contains(&e.raw_os_error()) => Ok(false),
        Err(e) => Err(Error::io("probe", dir, e)),
    }
}

/// Creates an empty file of a name that nobody else uses.
fn create_probe(dir: &Path) -> Result<(PathBuf, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut attempt = 0_u32;
    loop {
        let path = dir.join(format!(".probe-{}-{attempt}", std::process::id()));
        match fs::openat(CWD, &path, flags, super::FILE_MODE) {
            Ok(fd) => return Ok((path, fd)),
            // Left by a process that was killed, or made by another thread just now.
            Err(Errno::EXIST) => attempt += 1,
            Err(e) => return Err(Error::io("probe", path, e.into())),
        }
    }
}
