//! Types that all layers of Foreshore share: ids as newtypes, codecs, checksums, limits and the error type.
//!
//! This layer has no threads, no I/O and no unsafe code.

#![forbid(unsafe_code)]

// Here and not in `foreshore-io`, since this crate is built first.
#[cfg(windows)]
compile_error!("Foreshore needs Linux: it has no code for the files and locks of Windows.");

pub mod codec;
mod crc;
mod damage;
mod error;
mod few;
pub mod hash;
mod ids;
pub mod key;
pub mod limits;
mod place;
mod restore;
mod waits;

pub use crc::{crc32c, crc32c_append};
pub use error::{Error, InvalidOption, Result};
pub use few::Few;
pub use ids::{Csn, GroupNo, Incarnation, Lsn, PageId, TableId, Uuid, Xid};
pub use key::MAX_NAMED_KEY;
pub use place::Place;
pub use restore::{RestoreRefusal, UnknownBase};
pub use waits::{Lockable, MAX_NAMED, TableRef, Waiter};
