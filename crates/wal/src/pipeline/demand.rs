//! The commits that want a group: of threads that wait, of futures and callbacks, and pipelined ones.

use super::waiters::Waiters;
use crate::slots::Slots;
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What leaders lead for.
pub(super) struct Demand {
    /// Threads that are about to park, or parked.
    pub(super) waiters: Waiters,
    /// Greatest LSN that a future or callback waits for.
    asked: AtomicU64,
    /// Each holds the greatest LSN that its session asked the flusher for.
    slots: Arc<Slots>,
}

impl Demand {
    pub(super) fn new(slots: Arc<Slots>) -> Self {
        Self { waiters: Waiters::new(), asked: AtomicU64::new(0), slots }
    }

    /// Asks for `lsn` on behalf of a future or callback. The caller fences and checks for a leader after.
    pub(super) fn ask(&self, lsn: Lsn) {
        // ORDERING: Release, the leader that sees the wish sees what is wished for; pairs with `is_asked`.
        self.asked.fetch_max(lsn.0, Ordering::Release);
    }

    /// Asks for `lsn` on behalf of the session in `slot`. The caller fences and checks for a leader after.
    pub(super) fn ask_pipelined(&self, slot: usize, lsn: Lsn) {
        self.slots.get(slot).want(lsn);
    }

    /// Whether a future or callback waits for more than `sealed`. Behind a `SeqCst` fence.
    pub(super) fn is_asked(&self, sealed: Lsn) -> bool {
        // ORDERING: Acquire, pairs with the wish; otherwise ordered by the caller's fence and the one that follows the
        // wish.
        self.asked.load(Ordering::Acquire) > sealed.0
    }

    /// Whether a thread, a future or a callback waits for more than `sealed`, as far as this thread knows.
    pub(super) fn is_awaited(&self, sealed: Lsn) -> bool {
        self.is_asked(sealed) || !self.waiters.is_empty()
    }

    /// Whether a flusher is wanted for more than `sealed`. Behind a `SeqCst` fence.
    pub(super) fn is_pending(&self, sealed: Lsn) -> bool {
        self.is_asked(sealed) || self.slots.wants_beyond(sealed)
    }

    /// Sessions that have been in use at once, at most.
    pub(super) fn sessions(&self) -> usize {
        self.slots.used_len()
    }

    /// Bytes of all records appended.
    pub(super) fn appended(&self) -> u64 {
        self.slots.totals().1
    }
}
