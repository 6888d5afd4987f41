//! The archive of a log.

use crate::archive::{Archive, ArchiveOptions, ArchiveStats, Extent};
use crate::log::Log;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_sync::{Nanos, NextWake, Signal};

impl Log {
    /// Copies the log from now on to an archive before it is truncated. Called once, before the first
    /// [`truncate`](Self::truncate) of this run. The owner drives [`archive_step`](Self::archive_step).
    ///
    /// # Errors
    /// - `Foreign` if the folder holds the log of another database, or of another timeline of this one.
    /// - `Locked` if another log is copied to it.
    /// - `InvalidOption` for a log without files; or the error of a disk. A file of the archive that is damaged is no
    ///   error: [`ArchiveStats::unsound_files`] counts it.
    pub fn archive_to(&self, options: ArchiveOptions) -> Result<()> {
        self.check_files("archive")?;
        let archive = Archive::open(self.core(), options)?;
        assert!(self.handle.archive.set(archive).is_ok(), "a log has one archive");
        Ok(())
    }

    /// Copies what is durable to the archive, up to the end of the log. Does nothing without an archive.
    ///
    /// # Errors
    /// The error of the archive, or of reading the log.
    pub fn archive_all(&self) -> Result<()> {
        self.archive().map_or(Ok(()), |archive| archive.copy(self.core(), Extent::End))
    }

    /// Copies complete segments to the archive: one step of the archiver, for its thread or an owner without threads.
    /// With threads the end of the log is copied once a minute. Waits for another thread that copies.
    pub fn archive_step(&self) -> NextWake {
        self.archive().map_or(NextWake::OnSignal, |archive| archive.step(self.core()))
    }

    /// Sets the clock that groups are stamped with, in place of the system's: time since 1970. Only the first call has
    /// an effect.
    pub fn stamp_by(&self, clock: fn() -> Nanos) {
        self.core().segments.stamp_by(clock);
    }

    /// Returns the signal that a segment is complete.
    #[must_use]
    pub fn archive_signal(&self) -> Signal {
        self.core().segments.rolled_signal().clone()
    }

    /// Ends the copying, and releases the folder of the archive. The log is truncated no further than it is archived.
    pub fn release_archive(&self) {
        if let Some(archive) = self.archive() {
            archive.release();
        }
    }

    /// Returns the state of the archive, if there is one.
    #[must_use]
    pub fn archive_stats(&self) -> Option<ArchiveStats> {
        self.archive().map(|archive| archive.stats(self.core()))
    }

    /// Returns the error of the archive, if its last attempt failed.
    #[must_use]
    pub fn archive_failure(&self) -> Option<Error> {
        self.archive().and_then(Archive::failure)
    }

    /// Returns what is wrong with the newest file of the archive that was not sound when it was opened.
    #[must_use]
    pub fn archive_damage(&self) -> Option<Error> {
        self.archive().and_then(Archive::damage)
    }

    /// Has complete segments copied to the archive, since the disk of the log is full. If the archive fails, log is not
    /// held for it until [`hold_for_archive`](Self::hold_for_archive). Returns whether more log may be truncated than
    /// when [`next_to_archive`](Self::next_to_archive) was `before`. No log is lost if some was archived since.
    #[must_use]
    pub fn yield_archive(&self, before: GroupNo) -> bool {
        self.archive().is_some_and(|archive| archive.yield_space(self.core(), before))
    }

    /// Returns the first group that is neither archived nor given up; zero without an archive.
    #[must_use]
    pub fn next_to_archive(&self) -> GroupNo {
        self.archive().map_or(GroupNo::ZERO, Archive::next)
    }

    /// Notes whether a thread drives [`archive_step`](Self::archive_step). While one does, no other thread copies log
    /// but by [`archive_all`](Self::archive_all).
    pub fn drive_archive(&self, has_thread: bool) {
        if let Some(archive) = self.archive() {
            archive.driven(has_thread);
        }
    }

    /// Holds log that is not archived again, after [`yield_archive`](Self::yield_archive).
    pub fn hold_for_archive(&self) {
        if let Some(archive) = self.archive() {
            archive.hold();
        }
    }

    fn archive(&self) -> Option<&Archive> {
        self.handle.archive.get()
    }

    /// Returns the first group that stays if the log is truncated before `group`. `helps`: an archive that is behind
    /// may be helped.
    pub(super) fn archive_bound(&self, group: GroupNo, helps: bool) -> GroupNo {
        match self.archive() {
            None => group,
            Some(archive) if helps => archive.bound(self.core(), group),
            Some(archive) => archive.held(group),
        }
    }
}
