//! Checkpoint and restart of Foreshore.
//!
//! A [`Checkpointer`] regularly records where redo would begin. At the next start [`replay`] reads the log from there
//! and repeats history, at once or page by page when they are read ([`OpenRedo`]), and [`undo`] undoes the uncommitted
//! transactions. Trees are reached only through
//! [`ResourceManager`](foreshore_txn::ResourceManager).
//!
//! **Invariant:** what the log no longer holds, no page and no transaction needs.
//!
//! **Invariant:** a superblock names a checkpoint that is durable, and with it every commit that it calls finished.

#![forbid(unsafe_code)]

mod analysis;
mod budget;
mod checkpoint;
mod format;
mod pace;
mod read_ahead;
mod redo;
mod repair;
mod restart;
mod stats;
mod stretch;
mod trace;
mod undo;
mod undo_beside;
mod unended;
mod xid_set;

pub use budget::RestartBudget;
pub use checkpoint::{CheckpointParts, CheckpointStats, Checkpointer, MAX_ACTIVE, RetainedLog};
pub use redo::OpenRedo;
pub use repair::{PageProgress, PageRepair, RepairBase, check_restart};
pub use restart::{RedoOptions, Replayed, replay};
pub use stats::{RecoveryStats, UndoStats};
pub use undo::undo;
pub use undo_beside::OpenUndo;
pub use unended::{UndoOptions, Unended};
