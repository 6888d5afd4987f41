//! The two bits of a transaction.

/// It has committed. Zero is a transaction that has not ended.
pub(super) const COMMITTED: u8 = 1;
/// It was rolled back.
pub(super) const ABORTED: u8 = 2;
