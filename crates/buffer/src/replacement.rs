//! Replacement: the choice of the page to evict.
//!
//! The engine's own policy is `s3c`: S3-FIFO on the words of the frames (`replacement/s3c.rs`).
//! [`PoolOptions::replacement`] plugs in another one.
//!
//! A policy that only needs a count of uses reads it from the word of the frame ([`ReplacementPolicy::use_cap`]). Any
//! other policy is called for each use. No policy is called for pages in the scan ring.
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
