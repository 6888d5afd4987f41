//! What the workers of a row share: the flow of rows through `queue`, and the numbers of records.

use crate::{spec::Spec, ycsb::Numbers};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Rows that producers may be ahead of consumers.
const AHEAD: i64 = 1_000;

/// What the workers of a row share.
pub(crate) struct Shared {
    /// Only for `queue`.
    flow: Flow,
    /// Only for `ycsb-a` to `ycsb-f`.
    numbers: Numbers,
}

impl Shared {
    pub(crate) const fn new(spec: &Spec) -> Self {
        Self { flow: Flow::new(spec.backlog), numbers: Numbers::new(spec.scale) }
    }

    pub(super) const fn flow(&self) -> &Flow {
        &self.flow
    }

    pub(super) const fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

/// How far the producers of `queue` are, and the consumers.
pub(super) struct Flow {
    /// The next key.
    next: AtomicU64,
    /// Committed rows above the backlog that no consumer has reserved.
    free: AtomicI64,
}

impl Flow {
    const fn new(backlog: u64) -> Self {
        Self { next: AtomicU64::new(backlog), free: AtomicI64::new(0) }
    }

    /// Draws the key of the next row.
    pub(super) fn draw(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn may_push(&self) -> bool {
        self.free.load(Ordering::Relaxed) < AHEAD
    }

    /// Reserves one row above the backlog.
    pub(super) fn reserve(&self) -> bool {
        let less = |free: i64| (free > 0).then_some(free - 1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    pub(super) fn give(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}
