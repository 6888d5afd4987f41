//! Counters of a restart.

/// What a restart did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryStats {
    /// Whether the database had been closed, and nothing was logged after that.
    pub was_clean: bool,
    /// Records read.
    pub records: u64,
    /// Those among them that lie before the redo start, and concern no page.
    pub analysed: u64,
    /// Commits among them.
    pub commits: u64,
    /// Changes of pages that were applied again.
    pub redone: u64,
    /// Transactions that are prepared and wait for a decision.
    pub prepared: u64,
    /// Transactions that had not committed.
    pub losers: u64,
    /// Changes that were taken back.
    pub undone: u64,
    /// Transactions among the losers whose rollback is parked, for want of a page or because of a damaged one.
    pub parked: u64,
    /// Torn pages restored from the doublewrite file.
    pub restored: u64,
    /// Pages that redo met damaged, and that no image and no record rebuilds.
    pub quarantined: u64,
}
