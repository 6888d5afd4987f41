//! The wishes of those that do not lead: commits that sessions asked the flusher for, and what futures and callbacks wait for.

use crate::slots::Slots;
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What the flushers lead for.
#[derive(Debug)]
pub(super) struct Demand {
    /// Greatest LSN that a future or callback waits for.
    asked: AtomicU64,
    /// Each holds the greatest LSN that its session asked for.
    slots: Arc<Slots>,
}

impl Demand {
    pub(super) fn new(slots: Arc<Slots>) -> Self {
        Self { asked: AtomicU64::new(0), slots }
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Asks for `lsn` on behalf of a future or callback. The caller fences and looks at the leader after.
    pub(super) fn ask(&self, lsn: Lsn) {
        // ORDERING: Release, the leader that sees the wish sees what is wished for; pairs with `is_asked`.
        self.asked.fetch_max(lsn.0, Ordering::Release);
    }

    /// Whether a future or callback waits for more than `sealed`. Behind a `SeqCst` fence.
    pub(super) fn is_asked(&self, sealed: Lsn) -> bool {
        // ORDERING: Acquire, pairs with the wish; otherwise ordered by the caller's fence and the one that follows the wish.
        self.asked.load(Ordering::Acquire) > sealed.0
    }

    /// Whether a flusher is wanted for more than `sealed`. Behind a `SeqCst` fence.
    pub(super) fn is_pending(&self, sealed: Lsn) -> bool {
        self.is_asked(sealed) || self.slots.wants_beyond(sealed)
    }

    /// Bytes of all records appended.
    pub(super) fn appended(&self) -> u64 {
        self.slots.totals().1
    }
}
