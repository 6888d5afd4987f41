//! Why a restore is refused.

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
            Self::BeyondLog { end } => {
                write!(f, "backup and archive end at {end}, before the position: restore up to their end")
            }
        }
    }
}
