//! What a session and the leader keep of lanes.

#[cfg(any(foreshore_loom, foreshore_shuttle))]
use super::Lanes;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
use crate::slots::Slots;
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::AtomicU64;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
use std::{io, sync::Arc};

/// The line that a session writes and the leader reads.
///
/// `seq` is the last stamp, shifted left by one, and in bit 0 whether the session is drawing the next. Rules: only the lane's
/// session writes both words; `seq` becomes even by a store (Release) behind the tail.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) seq: AtomicU64,
    /// Position behind the last whole record.
    pub(super) tail: AtomicU64,
    /// Position up to which the session has been admitted. The session's own.
    pub(super) admitted: AtomicU64,
}

/// What the leader knows of the cut in progress.
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

/// For models of the lanes alone.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
impl Lanes {
    /// Empty lanes of `bytes` each, a power of two, one for each slot. The first LSN is greater than `floor`.
    pub fn new(bytes: usize, slots: Arc<Slots>, floor: Lsn) -> io::Result<Self> {
        Self::with_shared(bytes, slots.len(), 0, slots, floor)
    }
}
