//! A write-ahead log: many sessions append, leaders write groups to disk, waiters learn what is durable. Payload is
//! opaque bytes.
//!
//! ```
//! use foreshore_wal::{Dep, Fs, Log, LogOptions, Mem, Record, Session, Uuid};
//! use std::{path::Path, sync::Arc};
//!
//! # fn main() -> foreshore_wal::Result<()> {
//! let fs: Arc<dyn Fs> = Arc::new(Mem::null());
//! let (dir, uuid) = (Path::new("log"), Uuid([7; 16]));
//! let options = LogOptions { segment_bytes: 64 << 10, ring_bytes: 256 << 10, ..LogOptions::default() };
//! Log::create(&fs, dir, uuid, &options)?;
//!
//! let (log, _) = Log::open(&fs, dir, uuid, &options)?;
//! let mut session = log.session()?;
//! session.reserve(Session::cost(5))?; // may wait: take it before any latch
//! let lsn = session.append(Record { tag: 1, flags: 0, parts: &[b"hello"] }, Dep::none()); // never waits or fails
//! log.force(lsn)?; // durable
//! drop(session);
//! log.close()?;
//!
//! let (_log, recovered) = Log::open(&fs, dir, uuid, &options)?;
//! let record = recovered.records(recovered.first_group()).next().expect("one record")?;
//! assert_eq!((record.lsn, &record.payload[..]), (lsn, &b"hello"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! **The path of a record**:
//!
//! 1. [`Session::reserve`] admits it.
//! 2. [`Session::append`] stamps it and copies it into the buffer (`buffer`).
//! 3. A leader seals a group of the buffered records and writes it (`pipeline`).
//! 4. The waiters for its stamp go on.
//!
//! **On disk** the log is a chain of groups in segment files (`format`). Groups are multiples of 4 KiB. They are never
//! rewritten and never share a block, so a torn write harms only unacknowledged records.
//!
//! **Failures.** A failed write or sync of a group poisons the log: it is never retried, and nothing is acknowledged
//! after it. A full disk does not poison the log: reservations are refused while prepared space is short, and succeed
//! again when there is some.

// Kernels are `pub` for the models in `tests/`, which see them under `foreshore_loom` only.
mod archive;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod buffer;
mod checksum;
mod copy;
mod dep;
mod follow;
mod format;
mod group;
mod group_commit;
mod history;
mod log;
mod log_core;
mod log_writer;
mod open;
mod options;
mod pace;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod pipeline;
mod reader;
mod record;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod requests;
mod restore;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod returns;
mod scan;
mod segment;
mod session;
mod session_lanes;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod slots;
mod throttle;
mod ticket;
mod undo_log;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod watch;

/// The kernels, for models in `tests/`.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub mod model {
    pub use crate::buffer::Lanes;
    pub use crate::group_commit::{Decision, Group as GroupCommit, GroupBounds, GroupPolicy, GroupSource, Observation};
    pub use crate::pipeline::{
        Acks, Callback, Calls, Cut, Group, Key, Leader, Led, Order, Pipeline, Progress, WaitTimes,
    };
    pub use crate::requests::SpaceRequests;
    pub use crate::returns::Returns;
    pub use crate::watch::GrowthWatch;
}

/// The interface for log buffers other than lanes.
///
/// [`LogOptions::buffer`] takes a [`MakeLogBuffer`](log_buffer::MakeLogBuffer), whose buffers keep the contract of
/// [`LogBuffer`](log_buffer::LogBuffer). A buffer that draws positions from one ring copies records by
/// [`Checksummed`](log_buffer::Checksummed) and [`RecordRing`](log_buffer::RecordRing).
pub mod log_buffer {
    pub use crate::buffer::{Checksummed, RecordRing, Staging};
    pub use crate::buffer::{Drained, GRAIN, LogBuffer, MAX_GROUP, MakeLogBuffer, NewLogBuffer};
    pub use crate::slots::Slots;
}

pub use archive::{ArchiveOptions, ArchiveStats};
pub use copy::{CopiedLog, CopyTarget};
pub use dep::Dep;
pub use follow::Follower;
pub use foreshore_sync::Nanos;
pub use group_commit::{Decision, Flushes, Group, GroupBounds, GroupPolicy, GroupSource, Observation};
pub use history::HistoryEvent;
pub use log::{Log, LogStats};
pub use options::LogOptions;
pub use pace::{Pace, REQUEST};
pub use pipeline::Waits;
pub use reader::{RecordIter, Recovered};
pub use record::{LoggedRecord, MAX_LARGE, MAX_RECORD, MAX_TAG, Record, flags};
pub use requests::{SpaceRequest, SpaceServer, SpaceWait};
pub use restore::{RestoreSource, RestoreTarget, RestoreUntil, RestoredLog};
pub use session::Session;
pub use throttle::LogLimits;
pub use ticket::CommitTicket;
pub use undo_log::undo_log_cost;

// The types of the interface above, so that a program that uses only the log depends on this crate alone.
pub use foreshore_base::{Csn, Error, GroupNo, Lsn, Result, Uuid};
pub use foreshore_io::{Disk, Fs, Mem, ReadOnly};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
