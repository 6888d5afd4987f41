//! Why a restore, or an incremental backup, is refused.

use crate::{GroupNo, Lsn};
use std::fmt;
use std::path::PathBuf;

/// Why a restore is refused. Nothing was restored then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreRefusal {
    /// Log groups are missing between the backup and its archive, or in the archive. No restore passes them.
    Gap {
        /// The archive.
        dir: PathBuf,
        /// The first missing group.
        missing: GroupNo,
        /// The next group that the archive has.
        next: GroupNo,
    },
    /// The directory of the archive has no file of an archive, and the position is not in the backup alone.
    EmptyArchive {
        /// The directory.
        dir: PathBuf,
    },
    /// The position lies before the end of the backup, which may hold later changes.
    BeforeBackup {
        /// The end of the backup: the first position that can be restored.
        end: Lsn,
    },
    /// The first backup is an incremental one, and its base is missing.
    MissingBase {
        /// The directory of the increment.
        increment: PathBuf,
    },
    /// A backup behind the first is no increment of the one before it.
    WrongBase {
        /// Its directory.
        increment: PathBuf,
        /// The directory of the one before.
        base: PathBuf,
    },
    /// Backup and archive do not reach the position.
    BeyondLog {
        /// Their end: the last position that can be restored.
        end: Lsn,
    },
}

impl fmt::Display for RestoreRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { dir, missing, next } => {
                let dir = dir.display();
                write!(f, "the archive {dir} lacks log group {missing}, and the next one in it is {next}: ")?;
                f.write_str("restore up to the gap, or a later backup")
            }
            Self::EmptyArchive { dir } => {
                let dir = dir.display();
                write!(f, "no log is archived in {dir}: name the directory of the archive, ")?;
                f.write_str("or none to restore the backup alone")
            }
            Self::BeforeBackup { end } => {
                write!(f, "the position lies before the end of the backup, {end}: restore an earlier backup")
            }
            Self::MissingBase { increment } => {
                let increment = increment.display();
                write!(f, "{increment} is an incremental backup: name the full backup first, then its increments")
            }
            Self::WrongBase { increment, base } => {
                let (increment, base) = (increment.display(), base.display());
                write!(f, "{increment} does not continue the backup in {base}: ")?;
                f.write_str("name the full backup first, then each of its increments in their order")
            }
            Self::BeyondLog { end } => {
                write!(f, "backup and archive end at {end}, before the position: restore up to their end")
            }
        }
    }
}

/// Why an incremental backup is refused: its base is none of the last backups of the database, in the state that it is
/// in. It was made of another one, or the files were put back to a state from before, or there were many backups since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownBase {
    /// The directory of the base.
    pub base: PathBuf,
    /// The directory of the database.
    pub dir: PathBuf,
}

impl UnknownBase {
    /// Returns the refusal of `base` by the database in `dir`.
    #[doc(hidden)]
    pub fn new(base: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self { base: base.into(), dir: dir.into() }
    }
}

impl fmt::Display for UnknownBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, dir) = (self.base.display(), self.dir.display());
        write!(f, "{base} is none of the last backups of the database in {dir} as it is now: take a full backup")
    }
}
