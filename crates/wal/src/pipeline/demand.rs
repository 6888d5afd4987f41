//! The demand for groups: by threads that wait, by futures and callbacks, and by pipelined and relaxed commits.

use super::waiters::Waiters;
use crate::slots::Slots;
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The demand for groups of one log.
pub(super) struct Demand {
    /// Threads that are parked or about to park.
    pub(super) waiters: Waiters,
    /// Greatest LSN that a future or callback waits for.
    requested: AtomicU64,
    /// The slots, with the greatest LSN that each session requested from the flusher, and of its last relaxed
    /// commit.
    slots: Arc<Slots>,
}

impl Demand {
    pub(super) fn new(slots: Arc<Slots>) -> Self {
        Self { waiters: Waiters::new(), requested: AtomicU64::new(0), slots }
    }

    /// Requests `lsn` for a future or callback. The caller then fences and checks for a leader.
    pub(super) fn request(&self, lsn: Lsn) {
        // ORDERING: Release, a leader that sees the request sees the requested record; pairs with `is_requested`.
        self.requested.fetch_max(lsn.0, Ordering::Release);
    }

    /// Requests `lsn` for the session in `slot`. The caller then fences and checks for a leader.
    pub(super) fn request_pipelined(&self, slot: usize, lsn: Lsn) {
        self.slots.get(slot).request_flush(lsn);
    }

    /// Requests the relaxed commit `lsn` of the session in `slot`. The caller fences and checks for a leader after.
    pub(super) fn request_later(&self, slot: usize, lsn: Lsn) {
        self.slots.get(slot).note_relaxed(lsn);
    }

    /// Whether a future or callback waits for more than `sealed`. Behind a `SeqCst` fence.
    pub(super) fn is_requested(&self, sealed: Lsn) -> bool {
        // ORDERING: Acquire, pairs with `request`; otherwise ordered by the caller's fence and the one after the
        // request.
        self.requested.load(Ordering::Acquire) > sealed.0
    }

    /// Whether a thread, a future or a callback waits for more than `sealed`, as far as this thread knows.
    pub(super) fn is_awaited(&self, sealed: Lsn) -> bool {
        self.is_requested(sealed) || !self.waiters.is_empty()
    }

    /// Whether a flusher is needed soon for more than `sealed`. Behind a `SeqCst` fence.
    pub(super) fn is_pending(&self, sealed: Lsn) -> bool {
        self.is_requested(sealed) || self.slots.wants_beyond(sealed)
    }

    /// Whether a flusher is needed for more than `sealed`, soon or for relaxed commits. Behind a `SeqCst` fence.
    pub(super) fn is_wanted(&self, sealed: Lsn) -> bool {
        self.is_pending(sealed) || self.slots.has_relaxed_beyond(sealed)
    }

    /// Returns the most sessions that have been in use at once.
    pub(super) fn sessions(&self) -> usize {
        self.slots.used_len()
    }

    /// Returns the bytes of all records appended.
    pub(super) fn appended(&self) -> u64 {
        self.slots.totals().1
    }
}
