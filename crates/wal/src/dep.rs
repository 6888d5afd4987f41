//! The dependencies of a record.

use foreshore_base::{Csn, Lsn};
use foreshore_sync::model::mutant;

/// The greatest stamp that a record must exceed, collected by kind so that no source is forgotten.
///
/// An LSN is a Lamport stamp: every record that a change depends on has a smaller one. So every cut of the log at a
/// stamp is closed under dependency, and recovery may stop at any such cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Dep(u64);

impl Dep {
    /// Starts with no dependency.
    pub const fn none() -> Self {
        Self(0)
    }

    /// Adds the LSN of a page that is changed, or that was read to decide the change, optimistic reads included.
    pub fn page(self, lsn: Lsn) -> Self {
        if mutant("sabotage: a record forgets the pages it rests on") { self } else { self.max(lsn.0) }
    }

    /// Adds the last LSN of the same transaction.
    pub fn transaction(self, lsn: Lsn) -> Self {
        self.max(lsn.0)
    }

    /// Adds the stamp of a version that was overwritten or observed.
    pub fn observed(self, csn: Csn) -> Self {
        self.max(csn.0)
    }

    /// Adds the last LSN of a freed page whose id is reused. Without it the old page on disk could mask its successor.
    pub fn freed(self, lsn: Lsn) -> Self {
        self.max(lsn.0)
    }

    /// Adds a stamp that a checkpoint reports as committed: the checkpoint must not survive without the commit.
    pub fn checkpoint(self, csn: Csn) -> Self {
        self.max(csn.0)
    }

    /// Returns the greatest stamp collected.
    #[must_use]
    pub const fn lsn(self) -> Lsn {
        Lsn(self.0)
    }

    fn max(self, stamp: u64) -> Self {
        Self(self.0.max(stamp))
    }
}
