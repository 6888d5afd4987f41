//! The directory of a backup or a restore, from its creation until it is a database.
//!
//! 1. The directory is locked. It is empty.
//! 2. The file `UNFINISHED_BACKUP` is created, durably. While it exists, no open accepts the directory.
//! 3. The caller writes the other files. Without a superblock they are no database, whatever becomes of the marker.
//! 4. When all of them are durable, the marker is removed.
//!
//! If it fails before step 4 ends, its files are removed, the marker last.

use crate::create;
use crate::files::Files;
use crate::{Error, Result};
use foreshore_base::Error as Storage;
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
    /// Begins one in `dir`, which is missing or empty.
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

    /// Makes the directory a database. All its files are durable.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.fs.remove(&self.files.unfinished_backup)?;
        self.fs.sync_dir(&self.files.dir)?;
        self.is_finished = true;
        Ok(())
    }

    fn clear(&self) -> Result<(), Storage> {
        let Files { data, doublewrite, log, unfinished_backup, lock, .. } = &self.files;
        let remove = |path: &Path| match self.fs.kind(path)? {
            Some(Kind::File) => self.fs.remove(path),
            _ => Ok(()),
        };
        remove(data)?;
        remove(doublewrite)?;
        if self.fs.kind(log)? == Some(Kind::Dir) {
            self.fs.list(log)?.iter().try_for_each(|name| remove(&log.join(name)))?;
            self.fs.sync_dir(log)?;
        }
        self.fs.sync_dir(&self.files.dir)?;
        remove(unfinished_backup)?;
        remove(lock)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_finished {
            // The error of the caller is the one to report. Files that stay are marked.
            let _ = self.clear();
        }
    }
}

/// Refuses a directory with files. What a failed backup or restore leaves is no file: a directory for the log.
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
