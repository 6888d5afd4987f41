//! Files of the operating system.

mod descriptor;
mod file;
mod handle;
mod lock;
mod many;
mod place;
mod read_only;
#[cfg(feature = "uring")]
#[cfg_attr(not(target_os = "linux"), path = "no_uring.rs")]
mod uring;

use crate::{Backend, DirLock, File, Fs, Kind, os, retry::uninterrupted};
use file::DiskFile;
use foreshore_base::{Error, Result};
use place::{FILE_MODE, dir_path};
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags},
};
use std::{io, path::Path, sync::Arc};

pub use place::{filesystem_name, syncs};
pub use read_only::ReadOnly;

/// Mode of every directory, whatever the umask.
const DIR_MODE: Mode = Mode::RWXU;

/// The file system of the operating system.
///
/// | mode | reads and writes | `write_durable` | `sync` |
/// |---|---|---|---|
/// | direct | `O_DIRECT`, past the page cache | one `pwritev2` with `RWF_DSYNC` | `fdatasync` |
/// | uring | as direct | one submission with `RWF_DSYNC` to a ring that all files share | `fdatasync` |
/// | buffered | page cache | `pwrite`, then `fdatasync` | `fdatasync` |
///
/// On macOS only the last mode exists, with `F_FULLFSYNC` in place of `fdatasync`.
///
/// Several threads do the batches of direct I/O ([`File::read_many`], [`File::write_many`]). All files of a `Disk`
/// share them.
///
/// A direct durable write to blocks that have been written before changes no metadata. So the kernel can pass it to the
/// device as a single forced-unit-access write, whereas `fdatasync` flushes the whole cache of the device.
#[derive(Clone, Debug)]
pub struct Disk {
    direct: bool,
    /// The workers for batches of direct I/O. Buffered I/O needs none, since its transfers are copies.
    workers: Arc<many::Workers>,
    durable: bool,
    /// The ring for durable writes, instead of `pwritev2`. Direct I/O only.
    #[cfg(feature = "uring")]
    ring: Option<Arc<uring::Ring>>,
}

impl Disk {
    /// Returns direct I/O on the file system that holds `dir`. `dir` need not exist yet.
    ///
    /// # Errors
    /// `InvalidOption` if that file system refuses `O_DIRECT` or `RWF_DSYNC`. Otherwise the error of the trial.
    pub fn direct(dir: &Path) -> Result<Self> {
        if place::takes_direct(dir)? { Self::new(dir, true) } else { Err(place::no_direct(dir)?) }
    }

    /// Returns buffered I/O on the file system that holds `dir`. `dir` need not exist yet.
    pub fn buffered(dir: &Path) -> Result<Self> {
        Self::new(dir, false)
    }

    /// Returns direct I/O, or buffered I/O if a trial in `dir` shows that the file system refuses direct I/O. Both give
    /// the same guarantees.
    ///
    /// # Errors
    /// The error of the trial if it is no refusal. A full disk or a read-only file system does not change the mode.
    pub fn auto(dir: &Path) -> Result<Self> {
        Self::new(dir, place::takes_direct(dir)?)
    }

    fn new(dir: &Path, direct: bool) -> Result<Self> {
        Ok(Self {
            direct,
            workers: Arc::new(many::workers()),
            durable: syncs(dir)?,
            #[cfg(feature = "uring")]
            ring: None,
        })
    }

    /// Returns direct I/O with durable writes through io_uring, on the file system that holds `dir`. `dir` need not
    /// exist yet. If the kernel refuses a submission later, the value goes on as [`Disk::direct`].
    ///
    /// # Errors
    /// `InvalidOption` with the reason of the kernel or the file system: no io_uring or none for this process, no plain
    /// write, no `O_DIRECT`, or no `RWF_DSYNC` in a ring.
    #[cfg(feature = "uring")]
    pub fn uring(dir: &Path) -> Result<Self> {
        let ring = uring::Ring::new().map_err(place::no_uring)?;
        place::probe_uring(dir, &ring)?;
        Ok(Self { ring: Some(Arc::new(ring)), ..Self::new(dir, true)? })
    }

    /// Returns the name of the backend.
    fn name(&self) -> &'static str {
        #[cfg(feature = "uring")]
        if self.ring.is_some() {
            return "uring";
        }
        if self.direct { "direct" } else { "buffered" }
    }

    /// Opens a file with `extra` flags and checks that it is one.
    fn open_with(&self, path: &Path, extra: OFlags) -> Result<Arc<dyn File>> {
        let op = if extra.contains(OFlags::CREATE) { "create" } else { "open" };
        let fd = open_file(path, self.direct, OFlags::RDWR | extra, op)?;
        let wrap = |e: rustix::io::Errno| Error::io(op, path, e.into());
        if extra.contains(OFlags::CREATE) {
            fs::fchmod(&fd, FILE_MODE).map_err(wrap)?;
            os::write_in_place(&fd);
        }
        #[cfg(feature = "uring")]
        if self.ring.is_some() {
            // With O_NONBLOCK a write through a ring would fail instead of waiting.
            let flags = fs::fcntl_getfl(&fd).map_err(wrap)?;
            fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK).map_err(wrap)?;
        }
        let file = DiskFile::new(fd, path.into(), self.direct);
        #[cfg(feature = "uring")]
        let file = file.with_ring(self.ring.clone());
        Ok(Arc::new(if self.direct { file.with_workers(self.workers.clone()) } else { file }))
    }
}

/// Opens a regular file with `flags`, for direct I/O or not, and refuses everything else.
fn open_file(path: &Path, direct: bool, flags: OFlags, op: &'static str) -> Result<OwnedFd> {
    // O_NONBLOCK: opening does not block, even if the path names a pipe or a device.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = || match direct {
        true => Ok(os::open_direct(CWD, path, flags, FILE_MODE)?),
        false => Ok(fs::openat(CWD, path, flags, FILE_MODE)?),
    };
    let fd = match uninterrupted(open) {
        Ok(fd) => fd,
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(Error::Foreign { path: path.into(), why: "a symbolic link" });
        }
        Err(e) => return Err(Error::io(op, path, e)),
    };
    let stat = fs::fstat(&fd).map_err(|e| Error::io(op, path, e.into()))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(Error::Foreign { path: path.into(), why: "not a regular file" });
    }
    Ok(fd)
}

impl Fs for Disk {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        let dir = dir_path(dir);
        let wrap = |e: rustix::io::Errno| Error::io("create", dir, e.into());
        match fs::mkdirat(CWD, dir, DIR_MODE) {
            Ok(()) => fs::chmodat(CWD, dir, DIR_MODE, AtFlags::empty()).map_err(wrap),
            Err(rustix::io::Errno::EXIST) => {
                let stat = fs::stat(dir).map_err(wrap)?;
                let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
                if is_dir { Ok(()) } else { Err(wrap(rustix::io::Errno::NOTDIR)) }
            }
            Err(e) => Err(wrap(e)),
        }
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        let path = dir_path(path);
        let wrap = |e: rustix::io::Errno| Error::io("stat", path, e.into());
        let stat = match fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(wrap(e)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(Kind::File)),
            FileType::Directory => Ok(Some(Kind::Dir)),
            // A database directory may be reached through a link, a file may not.
            FileType::Symlink => match fs::stat(path) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(Some(Kind::Dir)),
                _ => Err(Error::Foreign { path: path.into(), why: "a symbolic link" }),
            },
            _ => Err(Error::Foreign { path: path.into(), why: "neither a file nor a directory" }),
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.open_with(path, OFlags::empty())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.open_with(path, OFlags::CREATE | OFlags::EXCL)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let dir = dir_path(dir);
        let wrap = |e: rustix::io::Errno| Error::io("list", dir, e.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(CWD, dir, flags, Mode::empty()).map_err(wrap)?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(fd).map_err(wrap)? {
            let entry = entry.map_err(wrap)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::renameat(CWD, from, CWD, to).map_err(|e| Error::io("rename", from, e.into()))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::unlinkat(CWD, path, AtFlags::empty()).map_err(|e| Error::io("remove", path, e.into()))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let dir = dir_path(dir);
        let wrap = |e: io::Error| Error::io("sync", dir, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(CWD, dir, flags, Mode::empty()).map_err(|e| wrap(e.into()))?;
        os::sync_dir(&fd).map_err(|e| wrap(e.into()))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        Ok(Box::new(lock::Lock::take(path)?))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        Ok(Box::new(lock::Lock::share(path)?))
    }

    fn backend(&self) -> Backend {
        Backend { name: self.name().into(), durable: self.durable, needs_alignment: self.direct }
    }
}
