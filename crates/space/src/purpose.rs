//! What pages are taken for, and for what free ones are kept.

/// What a page is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New data. Leaves a reserve of free pages alone.
    Data,
    /// Undo of a transaction, or freeing of pages. May use the reserve, so that a full disk does not stop a rollback,
    /// nor keep the room of a dropped table.
    Rollback,
}

/// Free pages that a truncation of the file leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// As many as writers will soon need.
    Growth,
    /// Only the reserve for [`Purpose::Rollback`]. The file grows again with the next page that a writer needs.
    Least,
}

/// Pages kept back for [`Purpose::Rollback`]: an undo, or the drop or end of a table, splits at most one node a level,
/// and few run at once.
pub(crate) const KEPT_BACK: u64 = 32;
