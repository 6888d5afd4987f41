//! The traits that every backend implements.

use foreshore_base::Result;
use std::{fmt::Debug, path::Path, sync::Arc};

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
}

/// Properties of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `direct`, `uring`, `buffered`, `null`, `delay:300us` or `sim`.
    pub name: String,
    /// Whether what has been synced survives power loss. Memory and tmpfs do not.
    pub durable: bool,
    /// Whether buffers, offsets and lengths of reads and writes are multiples of [`foreshore_base::limits::BLOCK`].
    pub needs_alignment: bool,
}

/// A file system: names and directories. Paths are used as given. If the last component is a symbolic link, it is never
/// followed.
///
/// Names become durable by [`Fs::sync_dir`] of their directory, not by syncing the file.
pub trait Fs: Send + Sync + Debug {
    /// Creates a directory of mode 0700 unless it exists. Its parent exists.
    ///
    /// # Errors
    /// `Io` if something else stands in its place.
    fn create_dir(&self, dir: &Path) -> Result<()>;

    /// Returns the kind of the entry at `path`, or `None` if there is none.
    ///
    /// # Errors
    /// `Foreign` for an entry that is neither a file nor a directory.
    fn kind(&self, path: &Path) -> Result<Option<Kind>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `Io` with `NotFound` if there is none, `Foreign` if it is not a regular file.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Creates an empty file of mode 0600 and opens it for reading and writing.
    ///
    /// # Errors
    /// `Io` with `AlreadyExists` if something lies there.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Returns the names in `dir`, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Renames a file. An existing file at `to` is replaced. Open handles keep naming the old path.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file. Open handles keep working.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes the names in `dir` durable: files created, renamed and removed in it before the call.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Locks the directory of `path` against every other caller, in this process or another, and creates the file
    /// `path` if it is missing. Does not wait.
    ///
    /// # Errors
    /// `Locked` if another caller holds the lock.
    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>>;

    /// Locks the directory of `path` against callers of [`Fs::lock`], in this process or another. Others may have this
    /// lock, too. The file `path` exists, and nothing is written. Does not wait.
    ///
    /// # Errors
    /// `Locked` if another caller holds the lock of [`Fs::lock`]. `Io` with `NotFound` if there is no such file.
    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>>;

    /// Returns the properties of this backend.
    fn backend(&self) -> Backend;
}

/// A lock on a directory, released on drop.
pub trait DirLock: Send + Sync + Debug {}

/// An open file. Calls of several threads may overlap. No method has a default body, except [`File::is_empty`], so that
/// a [`FileLayer`](crate::FileLayer) cannot miss the file below.
pub trait File: Send + Sync + Debug {
    /// Returns the path that it was opened with.
    fn path(&self) -> &Path;

    /// Reads bytes at `offset` into `buf` and returns how many: less than `buf.len()` only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// Performs several [`File::read_at`], in any order and as many at once as keeps the device busy. Returns the
    /// result of each part, in the order of the parts. A part may fail while others succeed.
    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>>;

    /// Writes all of `buf` at `offset`, growing the file where needed. After an error any part of it may be written.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Writes like [`File::write_at`], and returns when `buf`, and the length that it needs, survive power loss. Other
    /// writes to the file need not be durable then.
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Performs several [`File::write_at`] whose ranges do not overlap, in any order and as many at once as keeps the
    /// device busy. After an error any part of any of them may be written.
    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()>;

    /// Whether the device offers [`File::write_whole`] of `len` bytes at multiples of `len`: after power loss such a
    /// write is there whole or not at all.
    fn writes_whole(&self, len: usize) -> bool;

    /// Writes like [`File::write_many`], and each part whole or not at all, even if power is lost. Returns false if the
    /// device refuses that for some part. The refused part is then unchanged; others may be written.
    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool>;

    /// Makes all earlier writes and the length durable. Once a sync of this open file has failed, every later one
    /// fails: an earlier write may be lost. [`File::write_durable`] answers for its own bytes only, and works again.
    fn sync(&self) -> Result<()>;

    /// Makes reads bypass the page cache of the operating system until [`File::read_cached`], so that they show the
    /// medium. Dirty pages of the cache are written first, and the cache drops as many pages as it can. On macOS it
    /// drops none, and reads may show what is only in the cache.
    ///
    /// Called on a file that was just opened and not written to. A lost write of an earlier process is no error here,
    /// because the caller sees what is left.
    ///
    /// # Errors
    /// `Io` or `DiskFull` if the cache cannot be written.
    fn read_past_cache(&self) -> Result<()>;

    /// Ends [`File::read_past_cache`]: reads may come from the page cache again. The cache may still hold stale bytes,
    /// except where they were written since. So the caller first rewrites every byte that differed from the cache.
    fn read_cached(&self);

    /// Returns the length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates or grows the file. New bytes read as zeros and may have no space allocated yet.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Allocates space for `[offset, offset + len)` and grows the file to hold it. New bytes read as zeros.
    ///
    /// # Errors
    /// `DiskFull` if there is no space. The file may then have grown part of the way.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
}
