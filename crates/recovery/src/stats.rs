//! Counters of a restart.

use std::time::Duration;

/// What the undo of a restart did, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoStats {
    pub(crate) losers: u64,
    pub(crate) pending_losers: u64,
    pub(crate) undone: u64,
    pub(crate) parked: u64,
    pub(crate) undo_time: Duration,
}

/// What a restart did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryStats {
    /// Whether the database had been closed, and nothing was logged after that.
    pub was_clean: bool,
    /// Records read.
    pub records: u64,
    /// Those before the redo start, which concern no page.
    pub analysed: u64,
    /// Commits among them.
    pub commits: u64,
    /// Changes of pages that were applied again, so far.
    pub redone: u64,
    /// Pages whose changes wait until they are read.
    pub pending_pages: u64,
    /// Memory that these changes take, in bytes.
    pub pending_bytes: u64,
    /// Transactions that are prepared and wait for a decision.
    pub prepared: u64,
    /// Transactions that had not committed.
    pub losers: u64,
    /// Those among them that are still undone, beside new transactions.
    pub pending_losers: u64,
    /// Changes that were undone, so far.
    pub undone: u64,
    /// Losers whose rollback is parked, because of a missing or a damaged page.
    pub parked: u64,
    /// Torn pages restored from the doublewrite file.
    pub restored: u64,
    /// Damaged pages that redo has met so far and that no image and no record rebuilds.
    pub quarantined: u64,
    /// Bytes of log that analysis and redo read.
    pub log_bytes: u64,
    /// Bytes of log behind the redo start. A segment that the scan has passed over counts as full.
    pub redo_bytes: u64,
    /// Bytes of all log that was found, also of what is kept for other reasons.
    pub scanned_bytes: u64,
    /// Time of analysis, and of the redo before the database was open.
    pub redo_time: Duration,
    /// Time of undo, so far. If there are pending losers or were some, it came after the open.
    pub undo_time: Duration,
    /// Time from the call of `open` until transactions could begin: these two, the scan of the log, and all else.
    pub open_time: Duration,
}

impl RecoveryStats {
    /// Returns the counters with those of the undo.
    #[must_use]
    pub fn with_undo(self, undo: UndoStats) -> Self {
        let UndoStats { losers, pending_losers, undone, parked, undo_time } = undo;
        assert!(pending_losers <= losers, "{pending_losers} of {losers} losers are left");
        Self { losers, pending_losers, undone, parked, undo_time, ..self }
    }
}
