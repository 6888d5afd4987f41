//! Changes: as they are entered, as they are undone, and how they are linked.

use super::pointer::UndoPtr;
use foreshore_base::{Csn, Lsn, TableId, Xid};

/// A change that is undone, as the rollback or recovery gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoEntry<'a> {
    /// The LSN of its log record. Zero if the entry is only the lock of a row, in its tuple header.
    pub lsn: Lsn,
    /// Whether the entry is only a lock because the change was undone and the lock kept. The kind and the body are
    /// still those of the change.
    pub is_undone: bool,
    /// The kind of its log record. For a change that is not logged, a kind of the resource manager's own.
    pub kind: u8,
    /// The table of the change.
    pub table: TableId,
    /// The body of its log record.
    pub body: &'a [u8],
    /// The undo pointer that the tuple header gets back. Null at restart, where no reader follows undo pointers.
    pub next: UndoPtr,
    /// The entry itself, if the transaction continues and keeps the row locked. Then the tuple header keeps the xid of
    /// the transaction, and gets this as its undo pointer.
    pub keep: Option<UndoPtr>,
}

/// A change that is entered.
#[derive(Clone, Copy, Debug)]
pub struct Undoable<'a> {
    /// The kind of its log record, as in [`UndoEntry::kind`].
    pub kind: u8,
    /// The table of the change.
    pub table: TableId,
    /// The body of its log record.
    pub body: &'a [u8],
    /// The row before the change; `None` if there was no row.
    pub before: Option<Before<'a>>,
    /// The most bytes of log that structure changes take before a rollback can restore the row, at most
    /// [`MAX_STRUCTURE`]. A row that the change makes smaller may later find its page full.
    pub structure: u64,
}

/// The most log that one undo entry is charged with for structure changes.
pub const MAX_STRUCTURE: u64 = 12 << 10;

/// A row before a change: its header, and its value in three parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before<'a> {
    /// The xid in its header.
    pub xid: Xid,
    /// The flags beside the xid. Only the resource manager interprets them.
    pub flags: u16,
    /// The undo pointer in its header.
    pub undo: UndoPtr,
    /// The entry of the lock that the change replaces; null if it replaces none. [`Txn::before_lock`] returns it.
    ///
    /// [`Txn::before_lock`]: crate::Txn::before_lock
    pub lock: UndoPtr,
    /// The first part of the value.
    pub front: &'a [u8],
    /// The offset of the second part in the body of the change, and its length.
    pub middle: (u16, u16),
    /// The last part.
    pub back: &'a [u8],
}

/// How an entry is linked to the version before the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// From this commit on the row has been as the change finds it, but for states that no reader sees.
    pub(crate) since: Csn,
    /// The entry that this commit made. Null if no reader needs older versions.
    pub(crate) next: UndoPtr,
    /// The entry of the row's last holder, if the version in it is dead. Then `next` is the entry after it. See
    /// [`Arena::clear`].
    ///
    /// [`Arena::clear`]: super::arena::Arena::clear
    pub(crate) passed: UndoPtr,
    /// Whether some reader saw the version in `next` at the last check.
    pub(crate) seen: bool,
    /// The number of changes of the row until its whole chain is pruned, see
    /// [`Arena::clear`](super::arena::Arena::clear).
    pub(crate) countdown: u32,
    /// Whether an old reader sees the version that the change replaces. Such entries are stored apart: they stay for
    /// long, while entries of other changes are soon dropped.
    pub(crate) kept: bool,
}
