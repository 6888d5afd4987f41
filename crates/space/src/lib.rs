//! Superblock, page map, growth and truncation of the data file of Foreshore.
//!
//! The data file starts with two superblock slots (pages 0 and 1). Then every region of [`REGION_PAGES`] pages has a
//! map page with one bit for each of its pages. The redo of the record that links a page into a tree allocates it, and
//! that of the record that unlinks it frees it. What [`Space::take`] hands out is volatile, so neither a crash nor a
//! rollback leaks a page.
//!
//! **Invariant:** a page that is reused is initialised by a record whose LSN is above those of all earlier records of
//! that page. Both the record that frees a page and the one that allocates it change its map page.
//!
//! **Invariant:** no lock is held while the length of the file changes, and one thread at a time changes it.
//!
//! **Invariant:** no superblock counts a page that may be truncated.
//!
//! **Invariant:** no map has a page in use as free, even if the map was damaged and rebuilt.

#![forbid(unsafe_code)]

mod compare;
mod damage;
pub mod format;
mod free;
mod growth;
mod kinds;
mod map;
mod purpose;
mod shrink;
mod space;
mod stock;
mod superblock;

pub use compare::{MapReport, UNREACHED};
pub use damage::can_be_lost;
pub use format::{BackupMark, CATALOGUE_ROOT, CHAINS_ROOT, MAX_LISTED, REGION_PAGES, SuperBlock};
pub use growth::{Growth, SpaceOptions};
pub use kinds::SpaceKind;
pub use map::{is_allocated, map_of, mark_allocated, mark_free};
pub use purpose::{Purpose, Spare};
pub use shrink::Truncation;
pub use space::{Space, SpaceStats};
