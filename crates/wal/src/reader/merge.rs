//! A merge of the records of several lanes, in the order of their stamps.
//!
//! The records of a lane ascend. Between lanes the order is known only at a cut. Every record up to the cut S of a
//! group is in that group or an earlier one, so all later records are above S. Records above the last cut are held
//! back. A later cut of their incarnation releases them in order, or the end of the incarnation drops them.
//!
//! **Memory.** A large cut is written in several groups, of which all but the last have the cut before. So the merge
//! holds the records of one cut at a time. That is at most the memory of the writer's buffer, 16 MiB that `lanes`
//! copies without a cut, and one group.

use super::assemble::Assembler;
use super::parts::visit;
use crate::format::{Envelope, GroupHeader};
use crate::record::LoggedRecord;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result};
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

/// A record that was found and not yet returned.
#[derive(Clone, Copy, Debug)]
struct Found {
    lsn: Lsn,
    /// The number of its group in the order of reading.
    kept: usize,
    /// Offset in its group.
    at: u32,
    lane: u16,
}

/// A group with records that have not been returned.
#[derive(Debug)]
struct Kept {
    group: GroupNo,
    path: PathBuf,
    offset: u64,
    bytes: Vec<u8>,
    /// The count of records not yet returned.
    left: usize,
}

impl Kept {
    fn corrupted(&self, why: &'static str) -> Error {
        Error::corrupted(&self.path, Place::Offset(self.offset), why)
    }
}

/// A group as it was read.
pub(crate) struct Read<'a> {
    pub(crate) header: &'a GroupHeader,
    pub(crate) bytes: &'a [u8],
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
}

/// A merge. Groups are added in the order of the chain, and records are returned in the order of stamps.
#[derive(Default)]
pub(crate) struct Merge {
    incarnation: Incarnation,
    /// Largest cut of the groups of this incarnation read so far.
    cut: Lsn,
    /// Records, ascending by LSN; those of equal stamps in the order of reading.
    found: Vec<Found>,
    /// The next index in `found` to return, and the end of those that a cut has released.
    next: usize,
    released: usize,
    kept: VecDeque<Kept>,
    /// The count of groups removed from `kept`.
    gone: usize,
    assembler: Assembler,
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.found.len() - self.next;
        f.debug_struct("Merge").field("cut", &self.cut).field("held", &held).finish_non_exhaustive()
    }
}

impl Merge {
    /// Returns the incarnation of the group read last.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Begins `incarnation`, and drops the records of the earlier one that are above its cuts or incomplete.
    pub(crate) fn begin(&mut self, incarnation: Incarnation) {
        assert!(self.next == self.released, "records that count are handed out before others are read");
        (self.incarnation, self.cut) = (incarnation, Lsn::ZERO);
        self.found.clear();
        (self.next, self.released) = (0, 0);
        self.gone += self.kept.len();
        self.kept.clear();
        self.assembler.clear();
    }

    /// Adds the records of the next group that are not above `limit`, and releases what its cut covers.
    ///
    /// # Errors
    /// `Corrupted`.
    pub(crate) fn push(&mut self, read: &Read<'_>, limit: Lsn) -> Result<()> {
        assert!(self.next == self.released, "records that count are handed out before others are read");
        assert_eq!(self.incarnation, read.header.incarnation, "each incarnation is begun");
        self.found.drain(..self.next);
        self.next = 0;
        let (kept, before) = (self.gone + self.kept.len(), self.found.len());
        visit(read.bytes, read.header, self.cut, |lane, lsn, at| {
            if lsn <= limit {
                self.found.push(Found { lsn, kept, at: u32::try_from(at).expect("a group is at most 1 MiB"), lane });
            }
        })
        .map_err(|why| Error::corrupted(read.path, Place::Offset(read.offset), why))?;
        let left = self.found.len() - before;
        if left > 0 {
            let (path, bytes) = (read.path.to_owned(), read.bytes.to_vec());
            self.kept.push_back(Kept { group: read.header.group, path, offset: read.offset, bytes, left });
            // Extents are ascending runs, which this stable sort merges.
            self.found.sort_by_key(|found| found.lsn);
        }
        self.cut = self.cut.max(read.header.cut);
        self.released = self.found.partition_point(|found| found.lsn <= self.cut);
        Ok(())
    }

    /// Releases the records held back, which the caller knows to count. Returns whether there are any.
    pub(super) fn release(&mut self) -> bool {
        self.released = self.found.len();
        self.next < self.released
    }

    /// Returns the oldest group with records that have not been returned, if there is one.
    pub(crate) fn oldest(&self) -> Option<GroupNo> {
        let kept = self.kept.iter().filter(|kept| kept.left > 0).map(|kept| kept.group).min();
        kept.into_iter().chain(self.assembler.oldest()).min()
    }

    /// Returns the number of groups held in memory.
    #[cfg(test)]
    pub(super) fn held_groups(&self) -> usize {
        self.kept.len()
    }

    /// Returns the next released record, if there is one.
    ///
    /// # Errors
    /// `Corrupted`.
    pub(crate) fn next(&mut self) -> Result<Option<LoggedRecord>> {
        let mut record = LoggedRecord::default();
        Ok(self.next_into(&mut record)?.then_some(record))
    }

    /// Stores the next released record in the memory of `record`. Returns whether there is one.
    ///
    /// # Errors
    /// `Corrupted`.
    pub(crate) fn next_into(&mut self, record: &mut LoggedRecord) -> Result<bool> {
        while self.next < self.released {
            let found = self.found[self.next];
            self.next += 1;
            let kept = &mut self.kept[found.kept - self.gone];
            let (envelope, payload, _) = Envelope::split(&kept.bytes[found.at as usize..])
                .ok_or_else(|| kept.corrupted("a record is damaged"))?;
            let added = self.assembler.add(kept.group, found.lane, (&envelope, payload), record);
            let is_whole = added.map_err(|why| kept.corrupted(why))?;
            kept.left -= 1;
            while self.kept.front().is_some_and(|kept| kept.left == 0) {
                self.kept.pop_front();
                self.gone += 1;
            }
            if is_whole {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
