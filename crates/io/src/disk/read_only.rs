//! Files of the operating system that another process writes and this one only reads.

use super::{Disk, file::DiskFile, open_file};
use crate::{Backend, DirLock, File, Fs, Kind};
use foreshore_base::{Error, Result};
use rustix::fs::OFlags;
use std::{io, path::Path, sync::Arc};

/// The file system of the operating system, for reading files that another process writes. Files are opened for reading
/// and not locked; every operation that would change something is refused.
///
/// Reads go past the page cache where the file system allows it. So they show direct writes of the other process at
/// once, and no stale bytes.
#[derive(Clone, Debug)]
pub struct ReadOnly {
    disk: Disk,
}

impl ReadOnly {
    /// Returns read access to the file system that holds `dir`.
    ///
    /// # Errors
    /// `Io` if there is no such directory.
    pub fn new(dir: &Path) -> Result<Self> {
        Ok(Self { disk: Disk::buffered(dir)? })
    }
}

/// Returns the error for an operation that would change something.
fn refused<T>(op: &'static str, path: &Path) -> Result<T> {
    Err(Error::io(op, path, io::ErrorKind::ReadOnlyFilesystem.into()))
}

impl Fs for ReadOnly {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        refused("create", dir)
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        self.disk.kind(path)
    }

    /// Opens an existing file for reading. Writing to it fails.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let direct = open_file(path, true, OFlags::RDONLY, "open");
        let refuses = |e: &io::Error| e.kind() == io::ErrorKind::InvalidInput;
        match direct {
            Ok(fd) => Ok(Arc::new(DiskFile::new(fd, path.into(), true).read_only())),
            Err(Error::Io { source, .. }) if refuses(&source) => {
                let fd = open_file(path, false, OFlags::RDONLY, "open")?;
                Ok(Arc::new(DiskFile::new(fd, path.into(), false).read_only()))
            }
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        refused("create", path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        refused("rename", from)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        refused("remove", path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        refused("sync", dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        refused("lock", path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.disk.lock_shared(path)
    }

    fn backend(&self) -> Backend {
        Backend { name: "read-only".into(), needs_alignment: true, ..self.disk.backend() }
    }
}
