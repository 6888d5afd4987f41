//! The xids of the previous run that may be live, while a restart undoes transactions beside new ones.
//!
//! Rows may name such an xid in their headers. Each access to a row with a live one waits: the restart still has to
//! restore the row. An xid is live if one of these holds:
//!
//! - It is that of a *loser*: a transaction without an end. It ends when its changes are undone.
//! - It is *unknown*: the log does not tell that it has committed. A page may have its lock on top of a change whose
//!   commit was lost, because locks in headers are not logged. Unknown xids end when all losers have ended.
//!
//! 1. A bit is set once, after the last change of the loser was undone. A reader that finds the bit set finds the page
//!    changed when it validates, if it has read the row before that.
//! 2. An xid that has ended is visible to all snapshots of this run: it had ended before they were taken, or its rows
//!    are as they were before it.

use foreshore_base::Xid;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};

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
    ended: Box<[AtomicU64]>,
    are_over: AtomicBool,
}

impl Earlier {
    pub(super) fn new(EarlierXids { first, ended }: EarlierXids, next: Xid) -> Self {
        let covered = first.0 + 64 * ended.len() as u64;
        assert!(first < next && next.0 <= covered, "xids from {first} to {next} in {} words", ended.len());
        let ended = ended.into_iter().map(AtomicU64::new).collect();
        Self { first: first.0, next: next.0, ended, are_over: AtomicBool::new(false) }
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
        // ORDERING: Acquire, pairs with `end` (rule 1).
        self.ended[(at / 64) as usize].load(Ordering::Acquire) & 1 << (at % 64) == 0
    }

    /// Notes that a loser has ended.
    pub(super) fn end(&self, xid: Xid) {
        assert!(self.may_be_live(xid), "{xid} ends, and has ended before");
        let at = xid.0 - self.first;
        let is_late = mutant("earlier: the end of a loser is not published");
        // ORDERING: AcqRel, publish; pairs with `may_be_live`.
        let order = if is_late { Ordering::Relaxed } else { Ordering::AcqRel };
        // ORDERING: as above.
        self.ended[(at / 64) as usize].fetch_or(1 << (at % 64), order);
    }

    /// Notes that all have ended.
    pub(super) fn end_all(&self) {
        // ORDERING: Release, as in `end`.
        self.ended.iter().for_each(|word| word.store(u64::MAX, Ordering::Release));
        // ORDERING: Release, pairs with `are_over`.
        self.are_over.store(true, Ordering::Release);
    }

    /// Returns whether all have ended.
    pub(super) fn are_over(&self) -> bool {
        // ORDERING: Acquire, pairs with `end_all`.
        self.are_over.load(Ordering::Acquire)
    }
}
