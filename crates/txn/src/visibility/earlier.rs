//! The xids of the previous run that may be live, while a restart undoes transactions beside new ones.
//!
//! Rows may name such an xid in their headers. Each access to a row with a live one waits: the restart still has to
//! restore the row. An xid is live if one of these holds:
//!
//! - It is that of a *loser*: a transaction without an end.
//! - It is *unknown*: the log does not tell that it has committed.
//!
//! A page may have the lock of either on top of a change of a loser, because locks in headers are not logged. So all of
//! them end together, when the last change of the last loser is undone.
//!
//! 1. A reader that finds them over finds the page changed when it validates, if it has read the row before that.
//! 2. An xid that has ended is visible to all snapshots of this run: it had ended before they were taken, or its rows
//!    are as they were before it.

use foreshore_base::Xid;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};

/// The xids of the previous run from `first` on, and those of them that are known to have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierXids {
    /// No xid below it is live.
    pub first: Xid,
    /// Bit `i` of word `w` is set if the xid `first + 64 * w + i` has ended.
    pub ended: Vec<u64>,
}

/// The same for concurrent use.
pub(crate) struct Earlier {
    first: u64,
    /// The first xid of this run.
    next: u64,
    ended: Box<[u64]>,
    are_over: AtomicBool,
}

impl Earlier {
    pub(super) fn new(EarlierXids { first, ended }: EarlierXids, next: Xid) -> Self {
        let covered = first.0 + 64 * ended.len() as u64;
        assert!(first < next && next.0 <= covered, "xids from {first} to {next} in {} words", ended.len());
        Self { first: first.0, next: next.0, ended: ended.into(), are_over: AtomicBool::new(false) }
    }

    /// Returns the first and the last xid.
    pub(super) const fn bounds(&self) -> (u64, u64) {
        (self.first, self.next - 1)
    }

    /// Returns the first xid.
    pub(super) const fn first(&self) -> Xid {
        Xid(self.first)
    }

    /// Returns whether `xid` may be live.
    pub(super) fn may_be_live(&self, xid: Xid) -> bool {
        if xid.0 < self.first || xid.0 >= self.next {
            return false;
        }
        let at = xid.0 - self.first;
        self.ended[(at / 64) as usize] & 1 << (at % 64) == 0 && !self.are_over()
    }

    /// Notes that all have ended.
    pub(super) fn end(&self) {
        assert!(!self.are_over(), "the previous run ends once");
        let is_late = mutant("earlier: the end of losers is not published");
        // ORDERING: Release, publish; pairs with `are_over` (rule 1).
        let order = if is_late { Ordering::Relaxed } else { Ordering::Release };
        // ORDERING: as above.
        self.are_over.store(true, order);
    }

    /// Returns whether all have ended.
    pub(super) fn are_over(&self) -> bool {
        // ORDERING: Acquire, pairs with `end`.
        self.are_over.load(Ordering::Acquire)
    }
}
