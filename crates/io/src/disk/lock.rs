//! The lock on a database directory.

use super::place::{FILE_MODE, dir_path};
use crate::DirLock;
use foreshore_base::{Error, Result};
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags},
    io::Errno,
    process::{Pid, getpid},
};
use std::path::Path;

/// Two `flock`s: one on the file LOCK, and one on its directory if the file system supports that. The second still
/// excludes other processes if the file is removed under a running database.
///
/// `flock` belongs to the open file and not to the process. So it also excludes a second open in this process. Closing
/// another descriptor of the file does not drop it, unlike a POSIX `fcntl` lock. The kernel releases it when the last
/// copy of the descriptor is closed, and forked children have copies. So a drop unlocks explicitly, which works even
/// while such a child lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Locked,
    _dir: Locked,
}

impl DirLock for Lock {}

/// An open file with a lock. A drop unlocks it only in the process that has opened it: a child that drops its copy
/// leaves the lock to its parent.
#[derive(Debug)]
struct Locked {
    file: OwnedFd,
    process: Pid,
}

impl Locked {
    fn new(file: OwnedFd) -> Self {
        Self { file, process: getpid() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if getpid() == self.process {
            // If this fails, there was no lock, or closing the file releases it.
            let _ = fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl Lock {
    /// Takes the lock exclusively, without waiting. Creates the file if it is missing.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let created = OFlags::RDWR | OFlags::CREATE;
        Self::take_by(path, created, FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock shared, without waiting. Neither creates nor writes a file.
    pub(super) fn share(path: &Path) -> Result<Self> {
        Self::take_by(path, OFlags::RDONLY, FlockOperation::NonBlockingLockShared)
    }

    fn take_by(path: &Path, open: OFlags, operation: FlockOperation) -> Result<Self> {
        let wrap = |e: Errno| Error::io("lock", path, e.into());
        let dir_path = dir_path(path.parent().unwrap_or(Path::new("/")));
        let locked = || Error::Locked { path: dir_path.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = Locked::new(fs::openat(CWD, dir_path, flags, Mode::empty()).map_err(wrap)?);
        // Network file systems may refuse to lock a directory. Then the lock of the file decides.
        if fs::flock(&dir.file, operation) == Err(Errno::WOULDBLOCK) {
            return Err(locked());
        }
        loop {
            let flags = open | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let lock = Locked::new(fs::openat(CWD, path, flags, FILE_MODE).map_err(wrap)?);
            let file = &lock.file;
            if open.contains(OFlags::CREATE) {
                fs::fchmod(file, FILE_MODE).map_err(wrap)?;
            }
            match fs::flock(file, operation) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => return Err(locked()),
                Err(e) => return Err(wrap(e)),
            }
            // The file may have been removed between open and lock: the lock must be on the one that has the name.
            let held = fs::fstat(file).map_err(wrap)?;
            match fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {
                    return Ok(Self { _file: lock, _dir: dir });
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(e) => return Err(wrap(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_unlocks_what_a_child_process_shares() {
        let dir = std::env::temp_dir().join(format!("foreshore-lock-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("LOCK");
        let lock = Lock::take(&path).unwrap();
        // As a fork copies them: other descriptors of the same open files.
        let copies = [&lock._file, &lock._dir].map(|locked| locked.file.try_clone().unwrap());
        assert!(matches!(Lock::take(&path), Err(Error::Locked { .. })));
        drop(lock);
        drop(Lock::take(&path).expect("unlocked"));
        drop(copies);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
