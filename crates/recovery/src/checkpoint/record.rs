//! The record of a checkpoint, and its place behind the one before it.

use crate::format::CheckpointBody;
use foreshore_base::{Lsn, Result, TableId, Xid};
use foreshore_buffer::format::{ChangeRecord, MAX_CHANGE_PAGES, change_header_len};
use foreshore_space::SuperBlock;
use foreshore_txn::format::CHECKPOINT;
use foreshore_wal::{Dep, Record, Session};

/// Appends the record of a checkpoint, and returns its LSN.
pub(super) fn append(session: &mut Session, body: &CheckpointBody) -> Result<Lsn> {
    let mut header = [0; change_header_len(MAX_CHANGE_PAGES)];
    let len = ChangeRecord::new(CHECKPOINT, 0, 0, TableId::ZERO, &[]).encode_header(&mut header);
    let bytes = body.encode();
    let record = Record { tag: Xid::ZERO.0, flags: 0, parts: &[&header[..len], &bytes] };
    session.reserve_rollback(Session::cost(record.payload_len()))?;
    Ok(session.append(record, Dep::none().checkpoint(body.clock)))
}

/// Asserts that a checkpoint whose record is at `lsn` comes after the one before it, and after all that it counts as
/// ended.
pub(super) fn assert_follows(before: &SuperBlock, lsn: Lsn, body: &CheckpointBody) {
    let (last, ceiling) = (before.checkpoint_lsn, before.xid_ceiling);
    assert!(last < lsn, "a checkpoint at {lsn} comes behind the one at {last}");
    assert!(body.clock.lsn() < lsn, "a checkpoint at {lsn} counts what ended up to {} as over", body.clock);
    assert!(ceiling <= body.ceiling, "the ceiling falls from {ceiling} to {}", body.ceiling);
}
