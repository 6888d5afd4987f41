//! The files of a database directory.

use crate::marker;
use foreshore_base::{Error, Place, Result};
use foreshore_io::{Fs, Kind};
use foreshore_space::SuperBlock;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths in a database directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The directory itself.
    pub(crate) dir: PathBuf,
    /// Held locked while the database is open.
    pub(crate) lock: PathBuf,
    /// Exists while the other files are being created: see `marker`.
    pub(crate) unfinished: PathBuf,
    /// Directory of the log.
    pub(crate) log: PathBuf,
    /// Superblocks and pages.
    pub(crate) data: PathBuf,
    /// Doublewrite areas.
    pub(crate) doublewrite: PathBuf,
    /// Undo that does not fit in memory. The file has its name for a moment only.
    pub(crate) spill: PathBuf,
}

/// Contents of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// No file of a database.
    Nothing,
    /// Files of a creation that did not finish.
    Unfinished,
    /// A database.
    Database,
}

impl Files {
    pub(crate) fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            lock: dir.join("LOCK"),
            unfinished: dir.join("UNFINISHED"),
            log: dir.join("log"),
            data: dir.join("data"),
            doublewrite: dir.join("dw"),
            spill: dir.join("spill"),
        }
    }

    /// Finds out what the directory holds, and writes nothing.
    ///
    /// # Errors
    /// - `Corrupted` if some files of a database are there and others are missing.
    /// - `Foreign` if a file stands in the place of a directory or the reverse, or if `UNFINISHED` does not belong to
    ///   the other files.
    pub(crate) fn contents(&self, fs: &Arc<dyn Fs>) -> Result<Contents> {
        if fs.kind(&self.unfinished)?.is_some() {
            return marker::check(fs, self).map(|()| Contents::Unfinished);
        }
        let wanted = [(&self.data, Kind::File), (&self.log, Kind::Dir), (&self.doublewrite, Kind::File)];
        let mut missing = None;
        let mut found = 0;
        for (path, kind) in wanted {
            match fs.kind(path)? {
                None => missing = Some(path),
                Some(is) if is == kind => found += 1,
                Some(_) => {
                    let why = "a file stands in the place of a directory, or a directory in that of a file";
                    return Err(Error::Foreign { path: path.clone(), why });
                }
            }
        }
        match (found, missing) {
            (0, _) => Ok(Contents::Nothing),
            (_, None) => Ok(Contents::Database),
            (_, Some(path)) => {
                self.check_owner(&**fs)?;
                Err(Error::corrupted(path, Place::File, "the file is missing"))
            }
        }
    }

    /// Returns an error if `data`, log or doublewrite file do not belong to a database.
    fn check_owner(&self, fs: &dyn Fs) -> Result<()> {
        if fs.kind(&self.data)?.is_some() {
            return match SuperBlock::read_newest(&*fs.open(&self.data)?) {
                Err(error @ Error::Foreign { .. }) => Err(error),
                _ => Ok(()),
            };
        }
        let has_doublewrite = fs.kind(&self.doublewrite)?.is_some();
        if has_doublewrite || fs.list(&self.log)?.iter().any(|name| name == "ctl" || name.ends_with(".seg")) {
            return Ok(());
        }
        Err(Error::Foreign { path: self.log.clone(), why: "it holds no file of a log" })
    }

    /// Removes the files of an unfinished creation, except the marker, durably.
    pub(crate) fn clear(&self, fs: &dyn Fs) -> Result<()> {
        if fs.kind(&self.log)? == Some(Kind::Dir) {
            // Removed first and durably. Without it there is no log, whatever other files of it survive power loss.
            let control = self.log.join("ctl");
            if fs.kind(&control)?.is_some() {
                fs.remove(&control)?;
                fs.sync_dir(&self.log)?;
            }
            for name in fs.list(&self.log)? {
                fs.remove(&self.log.join(name))?;
            }
            fs.sync_dir(&self.log)?;
        }
        for path in [&self.data, &self.doublewrite] {
            if fs.kind(path)?.is_some() {
                fs.remove(path)?;
            }
        }
        fs.sync_dir(&self.dir)
    }
}
