//! Counters of an archive.

use foreshore_base::{Error, GroupNo, Lsn};

/// The state of an archive, and its counters since the log was opened. Bytes are those of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveStats {
    /// Files in the archive.
    pub files: u64,
    /// Their bytes, and those of files that are not sound.
    pub bytes: u64,
    /// A restore can reach every position up to this one. A commit is archived if its LSN is not above it. A file that
    /// was found damaged when the database was opened may lower it, until its groups are archived again.
    pub archived: Lsn,
    /// Bytes of log that are not archived yet. They are not recycled, up to the log budget.
    pub behind_bytes: u64,
    /// Files written.
    pub written_files: u64,
    /// Attempts to write a file that failed.
    pub failures: u64,
    /// Groups of log that the archive lacks: those between its files, and those that were recycled although they were
    /// not archived. That is done if the archive fails, or hangs, for longer than the log budget lasts, or while the
    /// disk of the log is full. No restore gets past them from a backup that was made before: make a new backup. What
    /// the limit has dropped does not count.
    pub lost_groups: u64,
    /// The newest of them.
    pub lost_upto: GroupNo,
    /// Files that were damaged, or could not be read, when the database was opened, or when they were read again.
    /// Restores that need them are refused. `Stats::archive_damage` names the newest.
    pub unsound_files: u64,
    /// Files removed to keep the limit of the archive.
    pub dropped_files: u64,
    /// The newest position in them. Backups that end before it can only be restored as they are.
    pub dropped_upto: Lsn,
}

/// What users see of an archive.
#[derive(Clone, Default)]
pub(super) struct Shown {
    pub(super) stats: ArchiveStats,
    /// The error of the last attempt, if it failed.
    pub(super) failure: Option<Error>,
    /// What is wrong with the newest file that is not sound.
    pub(super) damage: Option<Error>,
}
