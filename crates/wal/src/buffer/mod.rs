//! The log buffer: sessions append to it, and a leader copies groups out of it.
//!
//! A log has [`Lanes`], unless [`LogOptions::buffer`](crate::LogOptions::buffer) names the maker of another buffer. The
//! rest of the log only uses the trait [`LogBuffer`].

mod checksummed;
mod circle;
mod contract;
mod lanes;
mod memory;
mod record_ring;
mod staging;

pub use checksummed::Checksummed;
pub use contract::{Drained, LogBuffer, MAX_GROUP, MakeLogBuffer, NewLogBuffer};
pub use lanes::Lanes;
pub use memory::GRAIN;
pub use record_ring::RecordRing;
pub use staging::Staging;
