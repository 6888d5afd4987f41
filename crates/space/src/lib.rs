//! Superblock, page map and file growth of Foreshore.
//!
//! The data file starts with two superblock slots (pages 0 and 1). Then every region of [`REGION_PAGES`] pages has a map
//! page with one bit for each of its pages. A page is allocated by the redo of the record that links it into a tree; what
//! [`Space::take`] hands out is volatile, so neither a crash nor a rollback leaks a page.

#![forbid(unsafe_code)]

pub mod format;
mod kinds;
mod map;
mod space;
mod superblock;

pub use format::{CATALOGUE_ROOT, REGION_PAGES, SuperBlock};
pub use kinds::SpaceKind;
pub use map::{is_allocated, mark_allocated, mark_free};
pub use space::{MapReport, Purpose, Space, SpaceStats};
