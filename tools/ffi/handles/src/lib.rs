//! Handles of Foreshore without lifetimes, shared by the bindings to C and to Python.
//!
//! A program in another language holds a transaction, its tables and its scans as separate objects, ends them in any
//! order, and may touch them from several threads. These handles allow that:
//!
//! - A handle of a transaction that has ended returns [`Status::Ended`].
//! - One operation of a transaction runs at a time. A second thread gets [`Status::InUse`].
//! - A process that was forked from the one that opened the database gets [`Status::Forked`], and drops nothing of it.
//!
//! A [`Queue`] collects completed commits behind one file descriptor, with one wake-up for many of them.

mod bounds;
mod cursor;
mod database;
mod index;
mod index_def;
mod label;
mod load;
mod open;
mod options;
mod queue;
mod run;
mod stats;
mod status;
mod system;
mod table;
mod ticket;
mod transaction;
mod value;

pub use bounds::{Bounds, Direction};
pub use cursor::Cursor;
pub use database::{Database, Open};
pub use index::{Index, Row};
pub use index_def::{IndexDef, IndexTypes, bytes_key};
pub use label::label;
pub use open::OnDrop;
pub use options::{with_device, with_doublewrite, with_group_window};
pub use queue::{Done, Queue};
pub use stats::stats_json;
pub use status::{Fault, Result, Status, caught};
pub use table::Table;
pub use ticket::Ticket;
pub use transaction::Transaction;
pub use value::ValueReader;

#[cfg(test)]
mod tests;
