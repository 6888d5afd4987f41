//! The readers of groups and records.

mod assemble;
mod groups;
mod merge;
mod parts;
mod recovered;

pub(crate) use groups::{Chain, GroupReader};
pub(crate) use merge::{Merge, Read};
pub(crate) use parts::visit;
pub use recovered::{RecordIter, Recovered};

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
