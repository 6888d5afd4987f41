//! Name and abilities of the file system under a directory.

use crate::{AlignedBuf, os};
use foreshore_base::{Error, InvalidOption, Result, limits::BLOCK};
#[cfg(feature = "uring")]
use rustix::fd::AsFd;
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, StatFs},
    io::Errno,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Mode of every file, whatever the umask.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Errors of a kernel or a file system that does not support a kind of transfer.
const REFUSALS: [Errno; 3] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];

/// Returns the name of the file system that holds `dir`, or will hold it: `ext4`, `tmpfs`, … or its magic number in
/// hex.
pub fn filesystem_name(dir: &Path) -> Result<String> {
    Ok(os::type_name(&statfs(dir)?))
}

/// Whether a sync in `dir` reaches a device. False on file systems in memory.
pub fn syncs(dir: &Path) -> Result<bool> {
    Ok(!os::is_memory(&statfs(dir)?))
}

/// Returns the path of a directory for a system call: the working directory has an empty relative path.
pub(super) fn dir_path(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

fn statfs(dir: &Path) -> Result<StatFs> {
    let dir = existing(dir);
    fs::statfs(&dir).map_err(|e| Error::io("stat", &dir, e.into()))
}

/// Returns `dir`, or its nearest ancestor that exists.
fn existing(dir: &Path) -> PathBuf {
    let found = dir.ancestors().find(|d| !d.as_os_str().is_empty() && fs::stat(*d).is_ok());
    found.unwrap_or(Path::new(".")).to_owned()
}

/// Whether files in `dir` support direct I/O with durable writes. `dir` need not exist yet. Leaves no file behind.
///
/// If there is a file, the trial reads a block of it, which works without free space and on a read-only file system.
/// Otherwise the trial writes a block to a new file and reads it back. Only these errors mean that direct I/O is not
/// supported:
///
/// - `EINVAL` of the open: "The filesystem does not support the `O_DIRECT` flag" (`open(2)`);
/// - `EINVAL` of the aligned transfer: the alignment does not suit the file (`read(2)`, `write(2)`);
/// - `EOPNOTSUPP` of the write: the kernel does not know `RWF_DSYNC` (`pwritev2(2)`);
/// - `ENOSYS` of the write: the kernel does not know the call (`syscalls(2)`).
///
/// # Errors
/// Any other error of the trial, such as a full disk or a read-only file system.
pub(super) fn takes_direct(dir: &Path) -> Result<bool> {
    takes(dir, |fd, buf| Ok(os::write_durable(fd, buf, 0)?))
}

/// Returns the error for a directory without direct I/O.
pub(super) fn no_direct(dir: &Path) -> Result<Error> {
    let expected = format!("auto or buffered: {} refuses O_DIRECT with RWF_DSYNC", filesystem_name(dir)?);
    Ok(InvalidOption { name: "device", value: "direct".into(), expected }.into())
}

/// Fails unless files in `dir` support direct I/O with durable writes through `ring`.
#[cfg(feature = "uring")]
pub(super) fn probe_uring(dir: &Path, ring: &super::uring::Ring) -> Result<()> {
    if takes(dir, |fd, buf| Ok(ring.write_durable(fd.as_fd(), buf, 0)?.unwrap_or(0)))? {
        return Ok(());
    }
    Err(no_uring(&format!("{} refuses O_DIRECT with RWF_DSYNC in a ring", filesystem_name(dir)?)))
}

/// Returns the error for a machine or a directory without io_uring, with the reason.
#[cfg(feature = "uring")]
pub(super) fn no_uring(why: &str) -> Error {
    let expected = format!("auto, direct or buffered: {why}");
    InvalidOption { name: "device", value: "uring".into(), expected }.into()
}

/// Does the trial of [`takes_direct`] with durable writes by `write`.
fn takes(dir: &Path, write: impl Fn(&OwnedFd, &[u8]) -> io::Result<usize>) -> Result<bool> {
    let place = existing(dir);
    let by_file = if place == dir { existing_file_takes_direct(dir)? } else { None };
    let Some(takes_direct) = by_file else { return new_file_takes(&place, write) };
    // Whether durable writes work depends on the kernel alone: the file system only gets the request to sync.
    Ok(takes_direct && memory_takes(&place, write)?)
}

/// Whether a direct read of a block of the largest file in `dir` works, or of the next one if that cannot be opened.
/// `None` without such a file.
fn existing_file_takes_direct(dir: &Path) -> Result<Option<bool>> {
    let wrap = |e: Errno| Error::io("list", dir, e.into());
    let listing = fs::openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let listing = listing.map_err(wrap)?;
    let mut files = Vec::new();
    for entry in fs::Dir::read_from(&listing).map_err(wrap)? {
        let name = entry.map_err(wrap)?.file_name().to_owned();
        // Skips a file that was removed meanwhile.
        let Ok(stat) = fs::statat(&listing, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_size >= BLOCK as i64 {
            files.push((stat.st_size, name));
        }
    }
    files.sort_unstable();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    for (_, name) in files.iter().rev() {
        match os::open_direct(&listing, name, flags, Mode::empty()) {
            Ok(fd) => {
                let read = rustix::io::pread(&fd, &mut *AlignedBuf::new(BLOCK), 0);
                // A damaged block is no refusal of direct I/O.
                return Ok(Some(read.is_ok_and(|n| n == BLOCK) || read.is_err_and(|e| !REFUSALS.contains(&e))));
            }
            Err(Errno::INVAL) => return Ok(Some(false)),
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Whether `write` writes a block to a new file in `dir`, opened for direct I/O.
fn new_file_takes(dir: &Path, write: impl Fn(&OwnedFd, &[u8]) -> io::Result<usize>) -> Result<bool> {
    let (path, created) = create_probe(dir)?;
    drop(created);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = os::open_direct(CWD, &path, flags, FILE_MODE);
    fs::unlinkat(CWD, &path, AtFlags::empty()).map_err(|e| Error::io("remove", &path, e.into()))?;
    let fd = match opened {
        Ok(fd) => fd,
        Err(Errno::INVAL) => return Ok(false),
        Err(e) => return Err(Error::io("open", path, e.into())),
    };
    let mut buf = AlignedBuf::new(BLOCK);
    let wrote = write(&fd, &buf).and_then(|wrote| {
        let read = rustix::io::pread(&fd, &mut *buf, 0)?;
        Ok(wrote == BLOCK && read == BLOCK)
    });
    unless_refused(wrote, &path)
}

/// Whether `write` writes a block to a file in memory.
fn memory_takes(dir: &Path, write: impl Fn(&OwnedFd, &[u8]) -> io::Result<usize>) -> Result<bool> {
    let fd = os::memory_file("foreshore-probe");
    let fd = fd.map_err(|e| Error::io("try direct I/O in", dir, e.into()))?;
    unless_refused(write(&fd, &AlignedBuf::new(BLOCK)).map(|wrote| wrote == BLOCK), dir)
}

fn unless_refused(tried: io::Result<bool>, path: &Path) -> Result<bool> {
    match tried {
        Err(e) if REFUSALS.map(|refusal| Some(refusal.raw_os_error())).contains(&e.raw_os_error()) => Ok(false),
        tried => tried.map_err(|e| Error::io("write", path, e)),
    }
}

/// Creates an empty file under a name that no other process uses.
fn create_probe(dir: &Path) -> Result<(PathBuf, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut attempt = 0_u32;
    loop {
        let path = dir.join(format!(".probe-{}-{attempt}", std::process::id()));
        match fs::openat(CWD, &path, flags, FILE_MODE) {
            Ok(fd) => return Ok((path, fd)),
            // Left by a process that was killed, or made by another thread just now.
            Err(Errno::EXIST) => attempt += 1,
            Err(e) => return Err(Error::io("create", path, e.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("foreshore-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// With a file in the directory and without one.
    #[test]
    fn a_write_that_is_unknown_is_a_refusal_and_a_full_disk_is_an_error() {
        let dir = scratch("refusals");
        if !takes_direct(&dir).unwrap() {
            return eprintln!("{} takes no direct I/O", filesystem_name(&dir).unwrap());
        }
        for has_file in [false, true] {
            if has_file {
                std::fs::write(dir.join("data"), [1; 2 * BLOCK]).unwrap();
            }
            for errno in REFUSALS {
                assert!(!takes(&dir, |_, _| Err(errno.into())).unwrap(), "{errno}");
            }
            assert!(matches!(takes(&dir, |_, _| Err(Errno::NOSPC.into())), Err(Error::DiskFull { .. })));
            for errno in [Errno::IO, Errno::ROFS, Errno::ACCESS, Errno::MFILE] {
                assert!(matches!(takes(&dir, |_, _| Err(errno.into())), Err(Error::Io { .. })), "{errno}");
            }
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), usize::from(has_file));
        }
        assert_eq!(std::fs::read(dir.join("data")).unwrap(), [1; 2 * BLOCK]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
