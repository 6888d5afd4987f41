//! What was repaired, and what was not.

use crate::{GroupNo, Lsn, PageId, TableRef};
use std::fmt;

/// What a page was repaired from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairSource {
    /// Its image in the backup, and the log since.
    Backup,
    /// The log alone: a record in it initialises the page.
    Log,
}

/// A repaired page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedPage {
    /// Number of the page.
    pub page: PageId,
    /// Table of the page. Maps of pages belong to none.
    pub table: Option<TableRef>,
    /// Reason why the page was refused.
    pub damage: &'static str,
    /// What it was repaired from.
    pub source: RepairSource,
    /// Changes of the log that were applied.
    pub changes: u64,
    /// The LSN of the page: that of its last change.
    pub lsn: Lsn,
}

/// A damaged page that was not repaired. It is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnrepairedPage {
    /// Number of the page.
    pub page: PageId,
    /// Table of the page, if known.
    pub table: Option<TableRef>,
    /// Reason why the page is refused.
    pub damage: &'static str,
    /// Reason why it was not repaired.
    pub why: RepairRefusal,
}

/// A finished repair, or the result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Pages of the data file that were read.
    pub pages: u64,
    /// The pages that were repaired, ascending.
    pub repaired: Vec<RepairedPage>,
    /// The damaged pages that were not, ascending.
    pub unrepaired: Vec<UnrepairedPage>,
}

/// Why a damaged page was not repaired. It is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairRefusal {
    /// The backup has no sound image of the page. Or it has it as unused, and no record since then initialises it.
    NoImage,
    /// Log groups are missing between the backup and the database. Behind them no page is certain.
    Gap {
        /// The first missing group.
        missing: GroupNo,
        /// The next group, with which the log of the database begins.
        next: GroupNo,
    },
    /// A record of the log does not fit the page, or quarantines it.
    Contradiction,
    /// The log ends before a change that the page has had.
    LostLog {
        /// The last change that the log has of the page.
        end: Lsn,
        /// A change that the page has had, by its stamp or by itself.
        wanted: Lsn,
    },
    /// A restart has skipped the undo of changes to the table of the page, because of the damage. Once repaired, the
    /// page would show them as committed.
    SkippedUndo,
}

impl fmt::Display for RepairRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoImage => {
                f.write_str("the backup has no sound image of the page, nor does the log since then begin it")
            }
            Self::Gap { missing, next } => {
                write!(f, "log groups from {missing} to {} are missing: ", next.0 - 1)?;
                f.write_str("name an archive that has them, or a later backup")
            }
            Self::Contradiction => f.write_str("the log has a record that does not fit the page, or quarantines it"),
            Self::LostLog { end, wanted } => {
                write!(f, "the log ends at {end} for this page, which has had a change at {wanted}: log was lost, ")?;
                f.write_str("or the files of the database are from different moments")
            }
            Self::SkippedUndo => {
                f.write_str("a restart has skipped the undo of changes to its table: restore the database")
            }
        }
    }
}
