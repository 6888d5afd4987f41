//! The state of a row before a change, for its undo entry.

use crate::format::RowHeader;
use foreshore_txn::{Before, Txn, UndoPtr};
use std::ops::Range;

/// Returns a row before a change, with its value unless it is a ghost. The bytes `differs` of the value are in the body
/// of the change, from byte `at` on.
pub(crate) fn before(header: RowHeader, value: &[u8], differs: Range<usize>, at: usize) -> Before<'_> {
    let (len, end) = (value.len(), differs.end);
    assert!(header.is_ghost() || end <= len, "a change reaches to byte {end} of a value of {len}");
    let (front, back) =
        if header.is_ghost() { (&[][..], &[][..]) } else { (&value[..differs.start], &value[differs.end..]) };
    let middle = if header.is_ghost() { 0..0 } else { differs };
    let short = |number: usize| u16::try_from(number).expect("values and records have 16-bit lengths");
    Before {
        xid: header.xid,
        flags: header.flags,
        undo: UndoPtr::from_bits(header.undo),
        lock: UndoPtr::NULL,
        front,
        middle: (short(at), short(middle.len())),
        back,
    }
}

/// Returns the header from before the transaction's first entry for the row, and the lock entry that the change
/// replaces. A lock entry is replaced if the transaction has entered nothing since; the row is then `mine`.
pub(crate) fn before_lock(txn: &Txn, mine: bool, header: RowHeader) -> (RowHeader, UndoPtr) {
    let lock = if mine { txn.before_lock(UndoPtr::from_bits(header.undo)) } else { None };
    lock.map_or((header, UndoPtr::NULL), |Before { xid, flags, undo, lock, .. }| {
        (RowHeader { xid, flags, undo: undo.bits() }, lock)
    })
}
