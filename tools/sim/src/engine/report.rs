//! What a run has done.

use foreshore_sync::schedule::Summary;

/// What a run has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The run of the scheduler.
    pub summary: Summary,
    /// Transactions.
    pub txns: usize,
    /// Commits among them.
    pub commits: usize,
    /// Starts of the database.
    pub starts: u32,
    /// Power losses.
    pub losses: u32,
    /// Power losses while the database was opening.
    pub nested: u32,
    /// Power losses soon behind a start, while pages waited for their redo.
    pub waiting: u32,
    /// Lives that a fault has cut short.
    pub stopped: u32,
    /// Restores that were compared.
    pub restores: u32,
}
