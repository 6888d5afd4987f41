//! Replacement: which page gives up its frame.
//!
//! The engine's own policy is `s3c`: S3-FIFO on the words of the frames, see `replacement/s3c.rs`.
//! [`PoolOptions::replacement`] plugs in another one.
//!
//! A policy that is content with a count of uses finds it in the word of the frame ([`ReplacementPolicy::use_cap`]);
//! any other hears of each use. No policy hears of pages in the scan ring.
//!
//! [`PoolOptions::replacement`]: crate::PoolOptions::replacement

mod ghosts;
mod list;
mod policy;
mod replay;
mod s3c;

pub(crate) use ghosts::Ghosts;
pub(crate) use s3c::S3c;

pub use crate::frame::{FrameNo, MAX_USES};
pub use list::{Links, List};
pub use policy::{Frames, MakeReplacementPolicy, ReplacementPolicy};
#[doc(hidden)]
pub use replay::Replay;

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
