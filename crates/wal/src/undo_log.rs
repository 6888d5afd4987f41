//! The account of log space for rollbacks.
//!
//! Before a transaction logs a change, it charges its session with the log space of the compensation record. The space
//! is on disk: segments prepared ahead of the log, beyond those for records in flight, the next checkpoint and a
//! restart. So a rollback of any size finds its log space on a full disk, also after a restart, which finds the
//! prepared segments.
//!
//! ```text
//! prepared ahead  >=  granted to sessions  +  restart  +  in flight        before an ordinary reservation
//! prepared ahead  >=  in flight                                            before one of a rollback or a checkpoint
//! ```
//!
//! Sessions take space from the shared account in blocks. Each keeps one block from transaction to transaction, so
//! small transactions change nothing shared. When a session is refused, these blocks are returned too, and refused
//! sessions wait for returned blocks ([`crate::returns`]).
//!
//! **Invariant:** a session has charged at most what it was granted.

use crate::segment::{GRANT, Segments};
use foreshore_base::Result;
use foreshore_base::limits::BLOCK;
use foreshore_sync::model::mutant;

/// The share of a compensation in the headers and the padding of its groups. A batch of up to 64 pages that go home
/// seals a group, and each of these pages has at least one compensation. So each compensation pays for a 64th of a
/// block. Commits have reserved a group of their own, and a full lane fills its group.
const GROUP_SHARE: u64 = BLOCK as u64 / 64;

/// The bytes that one session has charged and been granted.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    charged: u64,
    granted: u64,
}

/// Returns the bytes of the account for a compensation that takes `cost` bytes of a reservation.
#[must_use]
pub const fn undo_log_cost(cost: usize) -> u64 {
    let cost = cost as u64;
    // A lane is copied at half its size at the earliest, and an eighth of that is more than a block and the table of a
    // group.
    cost + cost / 8 + GROUP_SHARE
}

impl UndoLog {
    /// Returns the bytes charged.
    pub(crate) const fn charged(&self) -> u64 {
        self.charged
    }

    /// Returns the bytes granted.
    pub(crate) const fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns the bytes that have to be granted before `bytes` more can be charged.
    #[inline]
    pub(crate) fn missing(&self, bytes: u64) -> u64 {
        let missing = (self.charged + bytes).saturating_sub(self.granted);
        if missing > 0 && mutant("sabotage: no log space is kept for a compensation") { 0 } else { missing }
    }

    /// Requests a grant of `missing` more bytes. `frees`: for work that frees space.
    pub(crate) fn take(&mut self, segments: &Segments, missing: u64, frees: bool) -> Result<()> {
        let blocks = missing.div_ceil(GRANT);
        segments.grant(blocks, frees)?;
        self.granted += blocks * GRANT;
        Ok(())
    }

    /// Charges `bytes`. They were granted, or were charged in the run before; then the space exists already.
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

    /// Lowers the charge to `charged`, and returns the blocks that are not needed.
    #[inline]
    pub(crate) fn lower(&mut self, segments: &Segments, charged: u64) {
        self.charged = self.charged.min(charged);
        // Only from two blocks more than needed on, so that a charge that goes up and down at a border costs nothing.
        if self.granted > self.charged.next_multiple_of(GRANT) + GRANT {
            self.give_back(segments, GRANT);
        }
    }

    /// Ends the account of a transaction. Keeps a block for the next one, unless other sessions need space.
    #[inline]
    pub(crate) fn end(&mut self, segments: &Segments) {
        self.charged = 0;
        let keep = if self.granted > 0 && segments.is_wanted() { 0 } else { GRANT };
        if self.granted > keep {
            self.give_back(segments, keep);
        }
    }

    /// Takes the granted blocks that no charge uses.
    pub(crate) fn take_idle(&mut self) -> u64 {
        debug_assert!(self.is_covered(), "before idle log is taken: {self:?}");
        let blocks = (self.granted - self.charged.next_multiple_of(GRANT).min(self.granted)) / GRANT;
        self.granted -= blocks * GRANT;
        blocks
    }

    /// Whether the grant covers the charge, in whole blocks.
    const fn is_covered(&self) -> bool {
        self.charged <= self.granted && self.granted.is_multiple_of(GRANT)
    }

    /// Returns the granted bytes beyond the charge and `keep`.
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
