//! Transactions of Foreshore: xids, status, undo, commit, rollback.
//!
//! A [`Txn`] leases what it needs from the [`TxnManager`] at its start: a session of the log, a slot of the lock
//! manager and memory for undo. It is not tied to a thread. It draws an xid when it first writes.
//!
//! - **Commit** ([`Txn::commit`]): show that the commit is under way, append its record, set the status, release
//!   the locks. Nothing between the second and the last of these can fail. The disk comes later, in the ticket.
//! - **Rollback** ([`Txn::rollback`]): undo backwards through the [`ResourceManager`], from memory, with a compensation
//!   record for each change; then an end record, the status, the locks. [`Txn::rollback_to`] undoes what came after a
//!   [`Savepoint`] in the same way, keeps the locks, and the transaction goes on.
//! - **Visibility**: a tuple header carries an xid, the status window tells whether that transaction is live, and its
//!   commit number otherwise. [`Txn::row_holder`] returns the holder of a row and collects the **watermark**: the
//!   newest commit that the transaction has read from, whose durability its own acknowledgement waits for.
//! - **Snapshots** ([`Snapshot`]): one commit number each. A reader that finds a commit under way gives it a number
//!   above its snapshot and goes on: readers wait for no transaction. A [`View`] tells which old versions no reader
//!   needs.
//!
//! **Invariant:** an xid in a page or a log record lies below a ceiling that is durable, so no xid is used twice.
//!
//! **Invariant:** from the append of its commit record on, a transaction cannot fail.

#![forbid(unsafe_code)]

pub mod format;
mod halt;
mod isolation;
mod logged;
mod manager;
mod parked;
mod resource;
mod savepoints;
mod sessions;
mod undo;
mod visibility;
mod waits;
mod xids;

pub use isolation::{Isolation, Seen};
pub use logged::{LoggedChange, PrepareBody};
pub use manager::{
    CheckpointView, Forward, InDoubt, MAX_PREPARED_NAME, ManagerRef, PrecommitRelease, Prepared, RowHolder, Start,
    TakenOver, Txn, TxnManager, TxnManagerOptions, TxnOptions, TxnStats, Unfinished,
};
pub use parked::{ParkedRollback, may_wait};
pub use resource::{ResourceManager, TakeOver, UndoContext};
pub use savepoints::Savepoint;
pub use sessions::RowPosition;
pub use undo::{Before, Fetched, MAX_STRUCTURE, SpillFile, UndoEntry, UndoPtr, Undoable};
pub use visibility::{
    CsnMap, MakeStatusTable, OldestSnapshot, ReadOperation, Snapshot, SnapshotKind, SnapshotLimits, SnapshotRef,
    StatusTable, View, Visibility,
};
pub use xids::{OldestTransaction, Xids};
