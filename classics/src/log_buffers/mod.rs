//! The log buffers of the papers, for comparison with the engine's own, which is a lane for each session.
//!
//! Each draws positions from one ring and implements [`LogBuffer`](foreshore_wal::log_buffer::LogBuffer). A log gets
//! one by [`LogOptions::buffer`](foreshore_wal::LogOptions::buffer):
//!
//! ```
//! use foreshore_classics::log_buffers::BufferKind;
//! use foreshore_wal::{Dep, Log, LogOptions, Record, Session};
//!
//! # fn main() -> foreshore_wal::Result<()> {
//! let log = Log::discarding(&LogOptions { buffer: BufferKind::Laser.maker(), ..LogOptions::default() })?;
//! let mut session = log.session()?;
//! session.reserve(Session::cost(5))?;
//! let lsn = session.append(Record { tag: 1, flags: 0, parts: &[b"hello"] }, Dep::none());
//! assert_eq!(lsn.0 as usize, Session::cost(5), "a stamp is the position behind its record");
//! # drop(session);
//! # log.close()
//! # }
//! ```
//!
//! [`BufferKind`] has the table of what differs.

mod adapter;
mod aether;
mod choice;
mod credit;
mod faa;
mod laser;
mod names;
mod ring;

pub use aether::{CArray, Decoupled, Delegated, Hybrid, Locked, McsLock, Mutex8, Shape};
pub use choice::{BufferKind, BufferOptions};
pub use faa::Faa;
pub use laser::Laser;
pub use names::WaitKind;
pub use ring::Ring;

use ring::RingBuffer;
