//! B+-trees of Foreshore.
//!
//! A table is a tree of pages: rows in the leaves, separators above, every node between two fences. The page of the root
//! never changes. Ways down read nodes without latches, as long as others do not write there all the time. Latches are taken
//! from the root downwards and from left to right, at most two of nodes at a time, then the map page; nobody waits for the
//! disk under a latch. Splits and merges have two steps each, between which the tree is the same: a node whose right sibling the
//! parent does not know.
//!
//! - [`Trees`]: all trees of a database; redo and undo of their records.
//! - [`Tree`]: the rows of one table, by key, in serializable transactions.
//! - [`Cursor`]: a scan in key order.
//!
//! **Invariant:** a node whose high fence lies below what its parent says is marked incomplete. An operation that goes
//! right over such a node finishes its split, but for readers by a snapshot, which hold no lock of the table and change
//! nothing.
//!
//! **Invariant:** what was read without a latch counts, damage included, only after the version of its page has been validated.
//!
//! **Invariant:** what a record does to a page is a function of the record and of the page alone, and the running engine
//! changes pages by the same function as redo.

#![forbid(unsafe_code)]

mod apply;
mod before;
mod create;
mod cursor;
mod damage;
mod descend;
mod drop;
mod end;
pub mod format;
mod level;
mod locking;
mod lookup;
mod many;
mod merge;
mod node;
mod purge;
mod queue;
mod record;
mod recover;
mod row;
mod sound;
mod split;
mod take_over;
mod tree;
mod verify;
mod write;

pub use cursor::Cursor;
pub use many::Batch;
pub use merge::Merged;
pub use purge::PurgedLeaf;
pub use queue::{QueuedLeaf, QueuedRange};
pub use record::TreeKind;
pub use tree::{Tree, TreeStats, Trees};
pub use verify::TreeReport;
