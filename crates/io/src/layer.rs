//! A file in front of another one, and a file system.

use crate::{Backend, DirLock, File, Fs, Kind};
use foreshore_base::Result;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// A [`File`] that hands on to the one below all that it does not do itself: for tests and experiments that fail, watch or
/// count some operations. Each part of a [`File::write_many`] passes through [`FileLayer::write_at`].
///
/// ```
/// use foreshore_io::{File, FileLayer, Fs, Mem};
/// use std::{path::Path, sync::Arc};
///
/// #[derive(Debug)]
/// struct ReadOnly(Arc<dyn File>);
///
/// impl FileLayer for ReadOnly {
///     fn below(&self) -> &dyn File {
///         &*self.0
///     }
///
///     fn write_at(&self, _: &[u8], _: u64) -> foreshore_base::Result<()> {
///         Err(foreshore_base::Error::Closed)
///     }
/// }
///
/// let below = Mem::null().create(Path::new("/f"))?;
/// let file: Arc<dyn File> = Arc::new(ReadOnly(below.clone()));
/// assert!(file.write_at(b"no", 0).is_err());
/// below.write_at(b"yes", 0)?;
/// assert_eq!(file.len()?, 3);
/// # Ok::<(), foreshore_base::Error>(())
/// ```
pub trait FileLayer: Send + Sync + Debug {
    /// The file behind.
    fn below(&self) -> &dyn File;

    /// See [`File::read_at`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.below().read_at(buf, offset)
    }

    /// See [`File::write_at`].
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.below().write_at(buf, offset)
    }

    /// See [`File::write_durable`].
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.below().write_durable(buf, offset)
    }

    /// See [`File::write_many`].
    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        parts.iter().try_for_each(|&(buf, offset)| self.write_at(buf, offset))
    }

    /// See [`File::sync`].
    fn sync(&self) -> Result<()> {
        self.below().sync()
    }

    /// See [`File::read_past_cache`].
    fn read_past_cache(&self) -> Result<()> {
        self.below().read_past_cache()
    }

    /// See [`File::read_cached`].
    fn read_cached(&self) {
        self.below().read_cached();
    }

    /// See [`File::set_len`].
    fn set_len(&self, len: u64) -> Result<()> {
        self.below().set_len(len)
    }

    /// See [`File::allocate`].
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.below().allocate(offset, len)
    }
}

impl<L: FileLayer> File for L {
    fn path(&self) -> &Path {
        self.below().path()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        FileLayer::read_at(self, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        FileLayer::write_at(self, buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        FileLayer::write_durable(self, buf, offset)
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        FileLayer::write_many(self, parts)
    }

    fn sync(&self) -> Result<()> {
        FileLayer::sync(self)
    }

    fn read_past_cache(&self) -> Result<()> {
        FileLayer::read_past_cache(self)
    }

    fn read_cached(&self) {
        FileLayer::read_cached(self);
    }

    fn len(&self) -> Result<u64> {
        self.below().len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        FileLayer::set_len(self, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        FileLayer::allocate(self, offset, len)
    }
}

/// An [`Fs`] that hands on to the one below all that it does not do itself, and puts a layer on the files that it likes.
///
/// ```
/// use foreshore_io::{Fs, FsLayer, Mem};
/// use std::path::Path;
///
/// #[derive(Debug)]
/// struct Forgetful(Mem);
///
/// impl FsLayer for Forgetful {
///     fn below(&self) -> &dyn Fs {
///         &self.0
///     }
///
///     fn sync_dir(&self, _: &Path) -> foreshore_base::Result<()> {
///         Ok(())
///     }
/// }
///
/// let fs: &dyn Fs = &Forgetful(Mem::null());
/// fs.create(Path::new("/f"))?.write_at(b"here", 0)?;
/// assert_eq!(fs.open(Path::new("/f"))?.len()?, 4);
/// assert!(fs.sync_dir(Path::new("/nowhere")).is_ok());
/// # Ok::<(), foreshore_base::Error>(())
/// ```
pub trait FsLayer: Send + Sync + Debug {
    /// The file system behind.
    fn below(&self) -> &dyn Fs;

    /// What stands in front of `file`, which has been opened or created below.
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        file
    }

    /// See [`Fs::open`].
    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.below().open(path).map(|file| self.wrap(file))
    }

    /// See [`Fs::create`].
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.below().create(path).map(|file| self.wrap(file))
    }

    /// See [`Fs::rename`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below().rename(from, to)
    }

    /// See [`Fs::remove`].
    fn remove(&self, path: &Path) -> Result<()> {
        self.below().remove(path)
    }

    /// See [`Fs::sync_dir`].
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.below().sync_dir(dir)
    }
}

impl<L: FsLayer> Fs for L {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.below().create_dir(dir)
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        self.below().kind(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        FsLayer::open(self, path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        FsLayer::create(self, path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.below().list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        FsLayer::rename(self, from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        FsLayer::remove(self, path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        FsLayer::sync_dir(self, dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.below().lock(path)
    }

    fn backend(&self) -> Backend {
        self.below().backend()
    }
}
