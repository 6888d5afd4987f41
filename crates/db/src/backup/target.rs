//! The directory of a backup or a restore, from its creation until it is a database.
//!
//! 1. The directory is created if it is missing. It must be empty, and is locked.
//! 2. The file `UNFINISHED_BACKUP`, the marker, is created durably. While it exists, no open accepts the directory.
//! 3. The caller writes the other files, the superblock last. Before that they are no database, even without the
//!    marker.
//! 4. When all of them are durable, the marker is removed.
//!
//! If it fails before step 4 ends, its files are removed: the marker after all others, and then the lock file.

use crate::create;
use crate::files::Files;
use crate::{Error, Result};
use foreshore_base::Error as StorageError;
use foreshore_io::{DirLock, Fs, Kind};
use foreshore_sync::pause;
use std::path::Path;
use std::sync::Arc;

/// A directory with an unfinished backup or restore.
pub(crate) struct Target {
    files: Files,
    fs: Arc<dyn Fs>,
    is_finished: bool,
    /// Released when the files are removed, or are a database.
    _lock: Box<dyn DirLock>,
}

impl Target {
    /// Begins an unfinished backup or restore in `dir`, which is missing or empty.
    pub(crate) fn create(fs: Arc<dyn Fs>, dir: &Path) -> Result<Self> {
        create::create_dir(&*fs, dir)?;
        let files = Files::of(dir);
        // Before the lock, which creates a file; and again, because another process may have been faster.
        check_empty(&*fs, &files)?;
        let lock = fs.lock(&files.lock)?;
        check_empty(&*fs, &files)?;
        let target = Self { files, fs, is_finished: false, _lock: lock };
        target.fs.create(&target.files.unfinished_backup)?;
        target.fs.sync_dir(dir)?;
        pause::point("backup: the marker is durable");
        Ok(target)
    }

    /// Returns the paths.
    pub(crate) const fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the file system.
    pub(crate) const fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// Makes the directory a database. The caller has made all its other files durable.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.fs.remove(&self.files.unfinished_backup)?;
        self.fs.sync_dir(&self.files.dir)?;
        self.is_finished = true;
        Ok(())
    }

    fn clear(&self) -> Result<(), StorageError> {
        let remove = |path: &Path| if self.fs.kind(path)?.is_some() { self.fs.remove(path) } else { Ok(()) };
        // Durably before the marker: without them it is no increment, even if the marker is gone.
        remove(&self.files.increment)?;
        remove(&self.files.token)?;
        create::clear(&self.files, &*self.fs)?;
        remove(&self.files.unfinished_backup)?;
        remove(&self.files.lock)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_finished {
            // The caller reports its own error. Files that stay are marked, unless `finish` has removed the marker.
            let _ = self.clear();
        }
    }
}

/// Refuses a directory that is not empty. The lock file and an empty log directory are allowed, since a failed backup
/// or restore may leave them.
pub(crate) fn check_empty(fs: &dyn Fs, files: &Files) -> Result<()> {
    for name in fs.list(&files.dir)? {
        let path = files.dir.join(name);
        let is_empty_log = path == files.log && fs.kind(&path)? == Some(Kind::Dir) && fs.list(&path)?.is_empty();
        if path != files.lock && !is_empty_log {
            return Err(Error::NotEmpty { dir: files.dir.clone() });
        }
    }
    Ok(())
}
