//! Log that is retained for a copy of the database, besides what a restart needs.
//!
//! A copy consists of a superblock, and of pages and log that are read later. It opens like a crashed database with
//! that superblock. So while the copy is made, two things stay:
//!
//! - the log from the scan start of the superblock on: [`Checkpointer`] truncates it no further
//! - the pages that a record from its redo start on changes: [`Checkpointer::settle`] allows no cut of the data file
//!
//! A full disk comes first. If log is retained for copies alone, a writer that waits for log space ends that, and the
//! copies fail.

use super::{Checkpointer, Reach};
use foreshore_base::{GroupNo, Result};
use foreshore_space::SuperBlock;
use std::fmt;
use std::sync::Arc;

/// Most checkpoints that [`Checkpointer::settle`] takes.
const SETTLE_TRIES: u32 = 4;

impl Checkpointer {
    /// Takes a checkpoint like [`Checkpointer::checkpoint`], but calls `rest` after each batch of pages that it writes.
    /// Other checkpoints are taken meanwhile. Pages that become dirty meanwhile are not written, so redo begins about
    /// where the log was at the call.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`]; an error of `rest`, which ends the call.
    pub fn checkpoint_paced(&self, rest: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.redo_rest()?;
        self.pool.flush_paced(self.log.next_group(), rest)?;
        let mut state = self.state.lock();
        self.admit(&mut state).and_then(|()| self.take(&mut state, Reach::None))
    }

    /// Retains the log that a restart from the newest superblock reads, until the returned value is dropped. Waits for
    /// a checkpoint in progress.
    pub fn retain_log(self: &Arc<Self>) -> RetainedLog {
        // Under this lock, since a checkpoint truncates the log under it.
        let state = self.state.lock();
        let superblock = state.newest.clone();
        let copy = self.copies.add(&superblock);
        RetainedLog { checkpointer: Arc::clone(self), copy, superblock }
    }

    /// Truncates the log. Twice, because the log keeps what the older of its own two control slots names: after the
    /// second call both name the same.
    pub(super) fn truncate(&self, before: GroupNo) -> Result<()> {
        self.log.truncate(before)?;
        self.log.truncate(before)
    }

    /// Returns the run that the newest superblock names.
    #[must_use]
    pub fn run(&self) -> [u8; 16] {
        self.copies.run()
    }

    /// Notes the newest backup that the database knows. The next checkpoint names it.
    pub fn note_backup(&self, token: [u8; 16]) {
        self.copies.made(token);
    }

    /// Takes two checkpoints, and up to two more, until no restart applies a record of a group before `group` to a
    /// page. Returns whether that was reached. It is not while a copy of the database is made that does so. Every
    /// superblock was written after the call began. An older transaction does not delay it: a restart reads no page for
    /// the log of that one alone (see [`replay`](crate::replay)).
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn settle(&self, group: GroupNo) -> Result<bool> {
        let mut taken = 0;
        while taken < SETTLE_TRIES && !self.copies.redoes_before(group) {
            self.checkpoint()?;
            taken += 1;
            // A copy that begins later has one of these superblocks, or a newer one.
            let state = self.state.lock();
            if taken >= 2 && state.newest.redo_start.min(state.older_redo) >= group {
                return Ok(!self.copies.redoes_before(group));
            }
        }
        Ok(false)
    }
}

/// Log that is retained for a copy of the database, until this is dropped.
#[must_use = "the log is retained until this is dropped"]
pub struct RetainedLog {
    checkpointer: Arc<Checkpointer>,
    copy: u64,
    superblock: SuperBlock,
}

impl RetainedLog {
    /// Returns the superblock that the log is retained for.
    #[must_use]
    pub const fn superblock(&self) -> &SuperBlock {
        &self.superblock
    }

    /// Returns whether all of the log was retained up to now. If not, it was truncated for writers on a full disk.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.checkpointer.copies.has(self.copy)
    }
}

impl fmt::Debug for RetainedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetainedLog").field("from", &self.superblock.scan_start).finish_non_exhaustive()
    }
}

impl Drop for RetainedLog {
    fn drop(&mut self) {
        self.checkpointer.copies.remove(self.copy);
    }
}
