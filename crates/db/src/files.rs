//! The files of a database directory.

use std::path::{Path, PathBuf};

/// Paths in a database directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The directory itself.
    pub(crate) dir: PathBuf,
    /// Held locked while the database is open.
    pub(crate) lock: PathBuf,
    /// Exists while the other files are being created: see `marker`.
    pub(crate) unfinished: PathBuf,
    /// Exists while a backup writes the other files: see `backup`.
    pub(crate) unfinished_backup: PathBuf,
    /// Directory of the log.
    pub(crate) log: PathBuf,
    /// Superblocks and pages.
    pub(crate) data: PathBuf,
    /// Doublewrite areas.
    pub(crate) doublewrite: PathBuf,
    /// Stamps of the pages in `data`.
    pub(crate) stamps: PathBuf,
    /// The backups that an increment may continue.
    pub(crate) backups: PathBuf,
    /// In a backup: its name.
    pub(crate) token: PathBuf,
    /// In an incremental backup: superblock and changed pages.
    pub(crate) increment: PathBuf,
    /// Undo that does not fit in memory. The file has its name for a moment only.
    pub(crate) spill: PathBuf,
}

impl Files {
    pub(crate) fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            lock: dir.join("LOCK"),
            unfinished: dir.join("UNFINISHED"),
            unfinished_backup: dir.join("UNFINISHED_BACKUP"),
            log: dir.join("log"),
            data: dir.join("data"),
            doublewrite: dir.join("dw"),
            stamps: dir.join("stamps"),
            backups: dir.join("backups"),
            token: dir.join("token"),
            increment: dir.join("increment"),
            spill: dir.join("spill"),
        }
    }
}
