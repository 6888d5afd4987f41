//! What an archive has, and what it lacks.

use super::folder::{Other, oldest_name};
use super::join::{Found, missing};
use super::stats::Shown;
use crate::follow::Cursor;
use crate::format::FIRST_GROUP;
use crate::format::archive::ArchiveHeader;
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_io::DirLock;
use foreshore_sync::Nanos;
use std::collections::VecDeque;
use std::path::Path;

/// The state of an archive. The thread with the turn alone changes what is marked with *.
pub(super) struct State {
    /// The first group that is neither archived nor given up.
    pub(super) next: GroupNo,
    /// The first group that the archive has, or was to have.
    pub(super) begin: GroupNo,
    /// * The sound files, ascending. Those behind `next` follow a hole that is filled first.
    pub(super) files: VecDeque<ArchiveHeader>,
    /// * Files that take space besides them, ascending.
    pub(super) others: VecDeque<Other>,
    /// * Why a file could not be read whose groups are archived next. It is read again before.
    pub(super) unread: Option<Error>,
    /// A cursor at `next`, if there is one.
    pub(super) at: Option<Cursor>,
    /// Whether a thread has the turn to write, and since when it is busy with one file.
    pub(super) at_work: Option<Nanos>,
    /// Failed attempts since one has succeeded.
    pub(super) failed: u32,
    /// * Why an old file was not removed when the last one was written.
    pub(super) drop_failure: Option<Error>,
    /// When the end of the log was archived.
    pub(super) ended: Nanos,
    /// `None` once the archive is released.
    pub(super) lock: Option<Box<dyn DirLock>>,
    pub(super) shown: Shown,
}

impl State {
    /// Takes over what was found in the folder.
    pub(super) fn adopt(&mut self, found: Found) {
        let Found { next, at, files, others, unread, unsound, damage, .. } = found;
        assert!(self.next <= next, "the archive goes back from {} to {next}", self.next);
        (self.next, self.at, self.files, self.others, self.unread) = (next, at, files, others, unread);
        (self.shown.stats.unsound_files, self.shown.damage) = (unsound, damage);
        self.show();
    }

    /// Adds a file that is durable. If its groups were given up meanwhile, the archive has them all the same.
    pub(super) fn add(&mut self, file: ArchiveHeader, at: Cursor) {
        let place = self.files.partition_point(|other| other.first < file.first);
        let fits = |other: Option<&ArchiveHeader>| other.is_none_or(|other| other.last < file.first);
        assert!(place == 0 || fits(self.files.get(place - 1)), "{file:?} overlaps the file before it");
        let behind = self.files.get(place);
        assert!(behind.is_none_or(|behind| file.last < behind.first), "{file:?} overlaps {behind:?}");
        self.files.insert(place, file);
        self.next = missing(&self.files, self.next);
        self.at = Some(at).filter(|at| at.next_group() == self.next);
        self.shown.stats.written_files += 1;
        self.show();
    }

    /// Gives up the groups before `wanted` that no file has.
    pub(super) fn lose(&mut self, wanted: GroupNo) {
        if self.next < wanted {
            (self.next, self.at) = (missing(&self.files, wanted), None);
            self.show();
        }
    }

    /// Returns the next file behind `next`, which ends a hole.
    pub(super) fn behind(&self) -> Option<ArchiveHeader> {
        self.files.iter().find(|file| file.first > self.next).copied()
    }

    /// Returns the checksum of the header before `next`, if a file has that group.
    pub(super) fn prev_crc(&self) -> Option<u32> {
        self.files.iter().rfind(|file| file.last.next() == self.next).map(|file| file.last_crc)
    }

    /// Returns the bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let others: u64 = self.others.iter().map(|other| other.bytes).sum();
        self.files.iter().map(|file| FIRST_GROUP + file.bytes).sum::<u64>() + others
    }

    /// Forgets the oldest file of its kind, which was removed. The archive begins with the next name.
    pub(super) fn forget(&mut self, path: &Path, is_sound: bool) {
        let stats = &mut self.shown.stats;
        if !is_sound {
            let is_it = |other: &Other| other.path == path;
            stats.dropped_files += u64::from(self.others.iter().any(|other| is_it(other) && other.bytes > 0));
            self.others.retain(|other| !is_it(other));
        } else if let Some(oldest) = self.files.pop_front() {
            stats.dropped_files += 1;
            stats.dropped_upto = oldest.cut;
        }
        self.begin = oldest_name(&self.files, &self.others, self.next).unwrap_or(self.next).max(self.begin);
        self.show();
    }

    /// Puts what the files are into the counters.
    pub(super) fn show(&mut self) {
        let (bytes, (lost_groups, lost_upto)) = (self.bytes(), self.lost());
        assert!(lost_groups == 0 || lost_upto < self.next, "group {lost_upto} is lost, and {} comes next", self.next);
        let stats = &mut self.shown.stats;
        stats.files = self.files.len() as u64;
        (stats.bytes, stats.lost_groups, stats.lost_upto) = (bytes, lost_groups, lost_upto);
        // What follows a hole cannot be reached yet.
        let reached = self.files.iter().rfind(|file| file.first < self.next);
        stats.archived = reached.map_or(Lsn::ZERO, |file| file.cut);
    }

    /// Returns how many groups before `next` no file has, and the newest of them.
    fn lost(&self) -> (u64, GroupNo) {
        let (mut at, mut lost) = (self.begin, (0, GroupNo::ZERO));
        let files = self.files.iter().map(|file| (file.first, file.last.next()));
        for (first, next) in files.take_while(|file| file.0 < self.next).chain([(self.next, self.next)]) {
            if at < first {
                lost = (lost.0 + first.0 - at.0, GroupNo(first.0 - 1));
            }
            at = at.max(next);
        }
        lost
    }
}
