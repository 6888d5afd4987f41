//! The state of a lane, and of the cut in progress.

use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::AtomicU64;

/// The words that a session writes and the leader reads.
///
/// `seq` is the last stamp, shifted left by one, and in bit 0 whether the session is drawing the next. Rules: only the
/// lane's session writes both words; `seq` becomes even by a store (Release) behind the tail.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) seq: AtomicU64,
    /// Position behind the last whole record.
    pub(super) tail: AtomicU64,
    /// Position up to which the session has been admitted. The session's own.
    pub(super) admitted: AtomicU64,
}

/// The cut in progress.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// `S`, until everything up to the targets is copied.
    pub(super) stamp: Option<Lsn>,
    /// By lane, from `next` on: up to where this cut copies.
    pub(super) targets: Vec<u64>,
    /// The lane that is copied next.
    pub(super) next: usize,
    /// Bytes appended between it, or the last one if none is in progress, and the one before.
    pub(super) size: u64,
    /// Bytes copied since the last cut began that it need not cover.
    pub(super) provisional: usize,
}
