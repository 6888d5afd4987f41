//! The state of a lane, and of the cut in progress.

use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::AtomicU64;

/// The words that a session writes and the leader reads.
///
/// `seq` is the last stamp, shifted left by one; bit 0 says whether the session is drawing the next one. Rules: only
/// the lane's session writes both words. `seq` becomes even by a store (Release) after that of the tail.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) seq: AtomicU64,
    /// Position behind the last whole record.
    pub(super) tail: AtomicU64,
    /// Position up to which the session has been admitted. Only the session uses it.
    pub(super) admitted: AtomicU64,
}

/// The cut in progress.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// `S`, until all records up to the targets are copied.
    pub(super) stamp: Option<Lsn>,
    /// By lane, from `next` on: the end of the records that this cut copies.
    pub(super) targets: Vec<u64>,
    /// The lane that is copied next.
    pub(super) next: usize,
    /// Bytes appended between the previous cut and this one. If none is in progress, those of the last cut.
    pub(super) size: u64,
    /// Bytes copied since the last cut began that it does not cover.
    pub(super) provisional: usize,
}
