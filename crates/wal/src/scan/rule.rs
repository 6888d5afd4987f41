//! The rules by which a start interprets the cuts that it finds.

use foreshore_base::{Incarnation, Lsn};

/// A rule for reading cuts. One is sound. The others are plausible but wrong, and exist for tests, which they must
/// fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A record counts up to the largest cut of its own incarnation; new stamps begin above every cut and every record.
    Sound,
    /// A record counts up to the last cut of its incarnation: loses records that an earlier, larger cut has
    /// acknowledged.
    #[cfg(test)]
    LastCut,
    /// A record counts up to the largest cut of the whole log: revives records that an earlier start has dropped.
    #[cfg(test)]
    ChainWide,
    /// New stamps begin above the largest record, which may be below the cut: they are durable before they are written.
    #[cfg(test)]
    BaseBelow,
}

impl Rule {
    /// Returns the LSN up to which records of an incarnation count, after a group with `cut`.
    pub(super) fn limit(self, before: Lsn, cut: Lsn) -> Lsn {
        match self {
            #[cfg(test)]
            Self::LastCut => cut,
            _ => before.max(cut),
        }
    }

    /// Returns the LSN above which new stamps begin, for a group with `cut` and records up to `max`.
    pub(super) fn base(self, cut: Lsn, max: Lsn) -> Lsn {
        match self {
            #[cfg(test)]
            Self::BaseBelow => max,
            _ => cut.max(max),
        }
    }

    /// Adjusts the cuts of all incarnations at the end of the scan.
    pub(super) fn conclude(self, cuts: &mut [(Incarnation, Lsn)]) {
        let widens = match self {
            #[cfg(test)]
            Self::ChainWide => true,
            _ => false,
        };
        if widens {
            let largest = cuts.iter().map(|&(_, cut)| cut).max().unwrap_or(Lsn::ZERO);
            cuts.iter_mut().for_each(|(_, cut)| *cut = largest);
        }
    }
}
