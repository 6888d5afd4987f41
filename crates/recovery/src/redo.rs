//! Redo of the changes in the log: collected by page while the log is read, and applied to each page at once.

mod bucket;
mod changes;
mod collected;
mod drain;
mod page;
mod pending;

pub(crate) use changes::WaitingRecord;
pub(crate) use drain::EagerRedo;
pub use drain::OpenRedo;
pub(crate) use page::{Redoer, without_clr};
pub(crate) use pending::PendingRedo;

#[cfg(test)]
mod tests;
