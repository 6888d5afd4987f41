//! Transactions of Foreshore: xids, status, undo, commit, rollback.
//!
//! A [`Txn`] leases resources from the [`TxnManager`] at its start: a session of the log, a slot of the lock manager
//! and memory for undo. It is not tied to a thread. It draws an xid when it first writes.
//!
//! - **Commit** ([`Txn::commit`]): publish that the commit is under way, append its record, set the status, release the
//!   locks. No step after the append can fail. The write to disk comes later, when the ticket is waited for or the
//!   flusher runs.
//! - **Rollback** ([`Txn::rollback`]): undo the changes backwards, from memory, through the [`ResourceManager`], with a
//!   compensation record for each. Then append an end record, set the status, release the locks. [`Txn::rollback_to`]
//!   undoes what came after a [`Savepoint`] in the same way. It keeps the locks, and the transaction continues.
//! - **Visibility**: a tuple header carries an xid. The status window says whether that transaction is live, or gives
//!   its commit number. [`Txn::row_holder`] returns the holder of a row and updates the **watermark**. The watermark is
//!   the newest commit that the transaction has read from. The transaction's own acknowledgement waits until that
//!   commit is durable.
//! - **Snapshots** ([`Snapshot`]): one commit number each. A reader that finds a commit under way gives it a number
//!   above its snapshot and continues, so readers wait for no transaction. A [`View`] says which old versions no reader
//!   needs.
//!
//! **Invariant:** an xid in a page or a log record is below a ceiling that is durable. So no xid is used twice.
//!
//! **Invariant:** after its commit record is appended, a transaction cannot fail.

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
    CheckpointView, Forward, InDoubt, Losers, LosersHold, MAX_PREPARED_NAME, ManagerRef, PrecommitRelease, Prepared,
    RowHolder, Start, TakenOver, Txn, TxnManager, TxnManagerOptions, TxnOptions, TxnStats, Unfinished,
};
pub use parked::{ParkedRollback, Retried, may_wait};
pub use resource::{ResourceManager, TakeOver, UndoContext, compensation_cost};
pub use savepoints::Savepoint;
pub use sessions::RowPosition;
pub use undo::{Before, Fetched, MAX_STRUCTURE, SeveralUndo, SpillFile, UndoEntry, UndoPtr, Undoable};
pub use visibility::{
    CsnMap, EarlierXids, MakeStatusTable, OldestSnapshot, ReadOperation, Snapshot, SnapshotKind, SnapshotLimits,
    SnapshotRef, StatusTable, View, Visibility,
};
pub use xids::{HelpUndo, OldestTransaction, Xids};
