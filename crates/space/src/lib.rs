//! Superblock, page map, growth and cuts of the data file of Foreshore.
//!
//! The data file starts with two superblock slots (pages 0 and 1). Then every region of [`REGION_PAGES`] pages has a map
//! page with one bit for each of its pages. A page is allocated by the redo of the record that links it into a tree, and
//! freed by that of the record that unlinks it; what [`Space::take`] hands out is volatile, so neither a crash nor a
//! rollback leaks a page.
//!
//! **Invariant:** a page that is used again is initialised by a record whose LSN is above those of all records of its
//! earlier life. Both the record that frees a page and the one that allocates it change its map page.
//!
//! **Invariant:** no lock is held while the length of the file changes, and one thread at a time changes it.
//!
//! **Invariant:** a superblock promises no page that may be cut off.
//!
//! **Invariant:** no page in use is free by a map, also where the map was damaged and is rebuilt.

#![forbid(unsafe_code)]

mod compare;
mod damage;
pub mod format;
mod free;
mod growth;
mod kinds;
mod map;
mod shrink;
mod space;
mod stock;
mod superblock;

pub use compare::{MapReport, UNREACHED};
pub use damage::can_be_lost;
pub use format::{CATALOGUE_ROOT, MAX_LISTED, REGION_PAGES, SuperBlock};
pub use growth::{Growth, SpaceOptions};
pub use kinds::SpaceKind;
pub use map::{is_allocated, map_of, mark_allocated, mark_free};
pub use shrink::Cut;
pub use space::{Space, SpaceStats};
pub use stock::Purpose;
