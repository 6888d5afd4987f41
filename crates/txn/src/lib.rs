//! Transactions of Foreshore: xids, status, undo, commit, rollback.
//!
//! A [`Txn`] leases what it needs from the [`TxnManager`] at its start: a session of the log, a slot of the lock manager and
//! memory for undo. It is not tied to a thread. It draws an xid when it first writes.
//!
//! - **Commit** ([`Txn::commit`]): show that the commit is under way, append its record, set the status, release
//!   the locks. Nothing between the second and the last of these can fail. The disk comes later, in the ticket.
//! - **Rollback** ([`Txn::rollback`]): undo backwards through the [`ResourceManager`], from memory, with a compensation record
//!   for each change; then an end record, the status, the locks. [`Txn::rollback_to`] takes back what came after a
//!   [`Savepoint`] in the same way, keeps the locks, and the transaction goes on.
//! - **Visibility**: a tuple header carries an xid, the status window tells whether that transaction is live, and its commit
//!   number otherwise. [`Txn::row_holder`] answers who holds a row and collects the **watermark**: the newest commit that
//!   the transaction has read from, whose durability its own acknowledgement waits for.
//! - **Snapshots** ([`Snapshot`]): one commit number each. A reader that finds a commit under way gives it a number above its
//!   snapshot and goes on: readers wait for nobody. A [`View`] tells which old versions no reader needs.
//!
//! **Invariant:** an xid in a page or a log record lies below a ceiling that is durable, so no xid is used twice.
//!
//! **Invariant:** from the append of its commit record on, a transaction cannot fail.

#![forbid(unsafe_code)]

mod begin;
mod ceiling;
mod deadline;
mod enter;
mod finish;
pub mod format;
mod forward;
mod grown;
mod kept;
mod last_row;
mod leases;
mod line;
mod linger;
mod lock;
mod manager;
mod parked;
mod past;
mod pinned;
mod pins;
mod prepared;
mod read;
mod readers;
mod resource;
mod room;
mod savepoint;
mod slot;
mod snapshot;
mod stats;
mod status;
mod status_table;
mod txn;
mod undo;
mod view;
mod xid;

pub use forward::Forward;
pub use last_row::RowPosition;
pub use manager::{CheckpointView, PrecommitRelease, Start, TxnManager, TxnManagerOptions};
pub use parked::{ParkedRollback, Unfinished, may_wait};
pub use past::Visibility;
pub use prepared::{InDoubt, LoggedChange, MAX_PREPARED_NAME, PrepareBody, Prepared, TakeOver, TakenOver};
pub use read::{Isolation, Seen};
pub use readers::SnapshotLimits;
pub use resource::{ResourceManager, UndoContext};
pub use savepoint::Savepoint;
pub use slot::OldestTransaction;
pub use snapshot::{OldestSnapshot, ReadOperation, Snapshot, SnapshotKind};
pub use stats::TxnStats;
pub use status_table::{CsnMap, MakeStatusTable, StatusTable};
pub use txn::{RowHolder, Txn, TxnOptions};
pub use undo::{Before, Fetched, MAX_STRUCTURE, SpillFile, UndoEntry, UndoPtr, Undoable};
pub use view::View;
