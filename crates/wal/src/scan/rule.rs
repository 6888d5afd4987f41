//! What a start concludes from the cuts that it finds.

use foreshore_base::{Incarnation, Lsn};

/// How cuts are read. There is one right way; the others are plausible and wrong, and live in tests, which they must
/// fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A record counts up to the largest cut of its own incarnation; new stamps begin above every cut and every record.
    Sound,
    /// A record counts up to the last cut of its incarnation: loses what an earlier, larger cut has acknowledged.
    #[cfg(test)]
    LastCut,
    /// A record counts up to the largest cut of the whole log: revives what an earlier start has dropped.
    #[cfg(test)]
    ChainWide,
    /// New stamps begin above the largest record, which may be below the cut: they are durable before they are written.
    #[cfg(test)]
    BaseBelow,
}

impl Rule {
    /// What records of an incarnation count up to, when a group with `cut` follows others.
    pub(super) fn limit(self, before: Lsn, cut: Lsn) -> Lsn {
        match self {
            #[cfg(test)]
            Self::LastCut => cut,
            _ => before.max(cut),
        }
    }

    /// What new stamps begin above, because of a group with `cut` and records up to `max`.
    pub(super) fn base(self, cut: Lsn, max: Lsn) -> Lsn {
        match self {
            #[cfg(test)]
            Self::BaseBelow => max,
            _ => cut.max(max),
        }
    }

    /// Looks back on the cuts of all incarnations.
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
