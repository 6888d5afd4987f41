//! The account of log space for rollbacks.
//!
//! A transaction charges its session with what its compensation records will take, change by change, before the changes
//! are logged. The space lies on the disk: prepared segments ahead of the log, over what is kept back for records under
//! way, for the next checkpoint and for a restart. So a rollback of any size finds its log on a full disk, now or after
//! a restart, which finds the prepared segments there.
//!
//! ```text
//! prepared ahead  >=  granted to sessions  +  restart  +  in flight        before an ordinary reservation
//! prepared ahead  >=  in flight                                            before one of a rollback or a checkpoint
//! ```
//!
//! Sessions take space from the account that all share in blocks, and keep one from transaction to transaction, so that
//! small transactions change nothing shared. Where a session is refused, that one goes back, too, and others wait for
//! blocks to come back (see [`crate::returns`]).
//!
//! **Invariant:** what a session has charged is at most what it was granted.

use crate::segment::{GRANT, Segments};
use foreshore_base::Result;
use foreshore_base::limits::BLOCK;
use foreshore_sync::model::mutant;

/// What the groups that carry a compensation add to it: headers and padding. A group is sealed where a lane is full.
/// Commits have a group of their own reserved. A batch of up to 64 pages that go home seals one: each page of it has a
/// compensation at least, and pays for its part of the group here.
const GROUP_SHARE: u64 = BLOCK as u64 / 64;

/// What one session has charged and been granted.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    charged: u64,
    granted: u64,
}

/// Bytes of the account for a compensation that takes `cost` bytes of a reservation.
#[must_use]
pub const fn undo_log_cost(cost: usize) -> u64 {
    let cost = cost as u64;
    // A lane is copied at half its size at the earliest, and an eighth of that is more than a block and the table of a
    // group.
    cost + cost / 8 + GROUP_SHARE
}

impl UndoLog {
    /// Bytes charged.
    pub(crate) const fn charged(&self) -> u64 {
        self.charged
    }

    /// Bytes granted.
    pub(crate) const fn granted(&self) -> u64 {
        self.granted
    }

    /// Bytes that have to be granted before `bytes` more can be charged.
    #[inline]
    pub(crate) fn missing(&self, bytes: u64) -> u64 {
        let missing = (self.charged + bytes).saturating_sub(self.granted);
        if missing > 0 && mutant("sabotage: no log space is kept for a compensation") { 0 } else { missing }
    }

    /// Has `missing` bytes more granted. `frees`: for work that frees space.
    pub(crate) fn take(&mut self, segments: &Segments, missing: u64, frees: bool) -> Result<()> {
        let blocks = missing.div_ceil(GRANT);
        segments.grant(blocks, frees)?;
        self.granted += blocks * GRANT;
        Ok(())
    }

    /// Charges `bytes`, which were reserved or have been charged in the run before: then the space is there already.
    #[inline]
    pub(crate) fn charge(&mut self, segments: &Segments, bytes: u64) {
        self.charged += bytes;
        if let Some(missing) = self.charged.checked_sub(self.granted).filter(|&missing| missing > 0) {
            let blocks = missing.div_ceil(GRANT);
            segments.grant_again(blocks);
            self.granted += blocks * GRANT;
        }
        debug_assert!(self.is_covered(), "{bytes} bytes were charged: {self:?}");
    }

    /// Lowers the charge to `charged`, and gives back the blocks that it does not need.
    #[inline]
    pub(crate) fn lower(&mut self, segments: &Segments, charged: u64) {
        self.charged = self.charged.min(charged);
        // Two more than needed, so that a charge that goes up and down at a border costs nothing.
        if self.granted > self.charged.next_multiple_of(GRANT) + GRANT {
            self.give_back(segments, GRANT);
        }
    }

    /// The transaction is over. Keeps a block for the next one where space is not wanted.
    #[inline]
    pub(crate) fn end(&mut self, segments: &Segments) {
        self.charged = 0;
        let keep = if self.granted > 0 && segments.is_wanted() { 0 } else { GRANT };
        if self.granted > keep {
            self.give_back(segments, keep);
        }
    }

    /// Takes the blocks that are granted and charged by nothing.
    pub(crate) fn take_idle(&mut self) -> u64 {
        debug_assert!(self.is_covered(), "before idle log is taken: {self:?}");
        let blocks = (self.granted - self.charged.next_multiple_of(GRANT).min(self.granted)) / GRANT;
        self.granted -= blocks * GRANT;
        blocks
    }

    /// Whether all that is charged is granted, in whole blocks.
    const fn is_covered(&self) -> bool {
        self.charged <= self.granted && self.granted.is_multiple_of(GRANT)
    }

    /// Gives back what is granted beyond the charge and `keep`.
    #[cold]
    pub(crate) fn give_back(&mut self, segments: &Segments, keep: u64) {
        assert!(self.is_covered(), "undo log is given back: {self:?}");
        let keep = self.charged.next_multiple_of(GRANT) + keep;
        if let Some(more) = self.granted.checked_sub(keep) {
            segments.take_back(more / GRANT);
            self.granted -= more;
        }
    }
}
