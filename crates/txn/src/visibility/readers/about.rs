//! The limits, the description and the cost of a reader.

use foreshore_sync::Nanos;
use std::time::Duration;

/// The cost at which a snapshot is cancelled even though there is free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// The longest time that it may be in use.
    pub max_age: Duration,
    /// The most bytes that may be kept for it alone, while it is the oldest.
    pub max_bytes: u64,
}

impl SnapshotLimits {
    /// No limits.
    pub const NONE: Self = Self { max_age: Duration::MAX, max_bytes: u64::MAX };
}

/// The description of a reader for the sessions that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) label: &'static str,
    pub(crate) since: Nanos,
    pub(crate) limits: SnapshotLimits,
}

impl About {
    /// Describes a reader without limits.
    pub(crate) const fn new(label: &'static str, since: Nanos) -> Self {
        Self { label, since, limits: SnapshotLimits::NONE }
    }
}

/// The cost of a snapshot when it was cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotCost {
    /// How long it was in use.
    pub(crate) age: Duration,
    /// Bytes of versions that no other reader needed.
    pub(crate) bytes: u64,
}
