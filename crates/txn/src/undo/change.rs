//! Changes as they are entered, and as they are undone.

use super::pointer::UndoPtr;
use foreshore_base::{Csn, Lsn, TableId, Xid};

/// A change that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoEntry<'a> {
    /// LSN of its record. Zero for what is only the lock of a row, in its tuple header.
    pub lsn: Lsn,
    /// Whether it is only a lock because the change is undone and the lock was kept: the kind and the body are still
    /// those of the change.
    pub is_undone: bool,
    /// The kind of its record, or one of the resource manager's own for what is not logged.
    pub kind: u8,
    /// The table changed.
    pub table: TableId,
    /// The body of its record.
    pub body: &'a [u8],
    /// The undo pointer that the tuple header gets back. Null at restart, where no reader follows one.
    pub next: UndoPtr,
    /// The entry itself, if the transaction goes on and keeps the row locked: the tuple header then keeps its xid, and
    /// this as its undo pointer.
    pub keep: Option<UndoPtr>,
}

/// A change as it is entered.
#[derive(Clone, Copy, Debug)]
pub struct Undoable<'a> {
    /// See [`UndoEntry`].
    pub kind: u8,
    /// See [`UndoEntry`].
    pub table: TableId,
    /// See [`UndoEntry`].
    pub body: &'a [u8],
    /// The row before, if there was one.
    pub before: Option<Before<'a>>,
    /// Bytes of log that changes of structure may take before the row can come back, at most [`MAX_STRUCTURE`]: a row
    /// that is made smaller may find its page full.
    pub structure: u64,
}

/// The most log that one undo entry is charged with for changes of structure.
pub const MAX_STRUCTURE: u64 = 12 << 10;

/// A row before a change: its header, and its value in three parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before<'a> {
    /// The xid in its header.
    pub xid: Xid,
    /// The flags beside the xid. They mean what the resource manager means by them.
    pub flags: u16,
    /// The undo pointer in its header.
    pub undo: UndoPtr,
    /// The entry of the lock whose place the change takes; null if it takes none. See
    /// [`Txn::before_lock`](crate::Txn::before_lock).
    pub lock: UndoPtr,
    /// The first part of the value.
    pub front: &'a [u8],
    /// Where the second part is in the body of the change, and its length.
    pub middle: (u16, u16),
    /// The last part.
    pub back: &'a [u8],
}

/// How an entry is linked to the version before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Since which commit the row has been as it is, or has been something that no reader sees.
    pub(crate) since: Csn,
    /// The entry of that commit.
    pub(crate) next: UndoPtr,
    /// The entry of the row's last holder, if the version in it is dead: `next` is what is behind it. See
    /// [`Arena::clear`].
    ///
    /// [`Arena::clear`]: super::arena::Arena::clear
    pub(crate) passed: UndoPtr,
    /// Whether some reader sees what is in `next`.
    pub(crate) seen: bool,
    /// See [`Arena::clear`](super::arena::Arena::clear).
    pub(crate) countdown: u32,
    /// Whether an old reader sees what the change replaces. Such entries lie apart: they stay, while those that were
    /// made beside them go soon.
    pub(crate) kept: bool,
}
