//! The order of a checkpoint and the one before it.

use crate::format::CheckpointBody;
use foreshore_base::Lsn;
use foreshore_space::SuperBlock;

/// Asserts that a checkpoint whose record is at `lsn` comes after the one before it, and after all that it counts as
/// ended.
pub(super) fn assert_follows(before: &SuperBlock, lsn: Lsn, body: &CheckpointBody) {
    let (last, ceiling) = (before.checkpoint_lsn, before.xid_ceiling);
    assert!(last < lsn, "a checkpoint at {lsn} comes behind the one at {last}");
    assert!(body.clock.lsn() < lsn, "a checkpoint at {lsn} counts what ended up to {} as over", body.clock);
    assert!(ceiling <= body.ceiling, "the ceiling falls from {ceiling} to {}", body.ceiling);
}
