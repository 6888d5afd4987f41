//! The state of a table: in use, or dropped.

use foreshore_base::{Csn, Xid};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_txn::Snapshot;

/// The state of a table, or of one of its names, in one word.
///
/// ```text
///  bits 0..2   0 in use | 1 dropping | 2 dropped | 3 withdrawn
///  bits 2..64  the xid of the dropper, if dropping; the number of its commit, if dropped
/// ```
///
/// 1. 0 -> 1 -> 2: by the dropper, which holds the table exclusively up to its commit. It stores 1 before its commit
///    record, and 2 when that record has its commit number.
/// 2. 0 -> 3: by the creator, when it rolls the creation back. No other transaction knows the tree.
#[derive(Debug, Default)]
pub struct TableEnd(AtomicU64);

/// A state of [`TableEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    InUse,
    Dropping(Xid),
    Dropped(Csn),
    Withdrawn,
}

impl TableEnd {
    /// Notes that transaction `by` ends the use, and that its commit can no longer fail.
    pub fn ends_by(&self, by: Xid) {
        self.set(Stage::Dropping(by));
    }

    /// Notes the number of the commit of that transaction.
    pub fn ended_by(&self, csn: Csn) {
        self.set(Stage::Dropped(csn));
    }

    /// Whether the use has ended.
    #[must_use]
    #[inline]
    pub fn is_over(&self) -> bool {
        self.stage() != Stage::InUse
    }

    /// Returns the commit that ended the use, if `snapshot` sees it; zero if no commit has to become durable for that.
    #[must_use]
    pub fn gone_at(&self, snapshot: &Snapshot) -> Option<Csn> {
        match self.stage() {
            Stage::InUse => None,
            Stage::Dropping(xid) => snapshot.sees(xid),
            Stage::Dropped(csn) => (csn <= snapshot.csn()).then_some(csn),
            Stage::Withdrawn => Some(Csn::ZERO),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        // ORDERING: Acquire, pairs with `set`: what the dropper did before is visible.
        let word = self.0.load(Ordering::Acquire);
        match word & 3 {
            0 => Stage::InUse,
            1 => Stage::Dropping(Xid(word >> 2)),
            2 => Stage::Dropped(Csn(word >> 2)),
            _ => Stage::Withdrawn,
        }
    }

    pub(crate) fn set(&self, stage: Stage) {
        let before = self.stage();
        let is_next = match (before, stage) {
            (Stage::InUse, Stage::Dropping(xid)) => xid > Xid::ZERO,
            (Stage::Dropping(_), Stage::Dropped(csn)) => csn > Csn::ZERO,
            (Stage::InUse, Stage::Withdrawn) => true,
            _ => false,
        };
        assert!(is_next, "a table goes from {before:?} to {stage:?}");
        let word = match stage {
            Stage::InUse => 0,
            Stage::Dropping(xid) => xid.0 << 2 | 1,
            Stage::Dropped(csn) => csn.0 << 2 | 2,
            Stage::Withdrawn => 3,
        };
        // ORDERING: Release, before the clock is raised to the commit, whose readers find it; a thread that is granted
        // a lock of the table finds it by that.
        self.0.store(word, Ordering::Release);
    }
}
