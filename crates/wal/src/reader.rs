//! Reading groups and records back.

mod assemble;
mod merge;
mod recovered;

pub(crate) use merge::{Merge, Read};
pub use recovered::{RecordIter, Recovered};

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
