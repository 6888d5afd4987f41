//! B+-trees of Foreshore.
//!
//! A table is a tree of pages: rows in the leaves, separators above, every node between two fences. The page of the
//! root never changes. Descents read nodes without latches unless writers disturb them too often. Latches are taken
//! from the root downwards and from left to right: at most two of nodes at a time, then that of the map page. No
//! thread waits for the disk under a latch. Splits and merges have two steps each. Between them the tree has the same
//! intermediate state: a node whose right sibling the parent does not know.
//!
//! - [`Trees`]: all trees of a database; redo and undo of their records.
//! - [`Tree`]: the rows of one table, by key, in serializable transactions.
//! - [`Cursor`]: a scan in key order.
//!
//! **Invariant:** a node whose high fence lies below what its parent says is marked incomplete. An operation that
//! moves right over such a node finishes its split. Snapshot readers do not: they hold no lock of the table and change
//! nothing.
//!
//! **Invariant:** bytes read without a latch count, as damage too, only once the version of their page is validated.
//!
//! **Invariant:** what a record does to a page depends only on the record and the page. Normal operation changes pages
//! by the same function as redo.

#![forbid(unsafe_code)]

mod access;
mod apply;
mod before;
mod census;
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
mod stage;
mod take_over;
mod tree;
mod verify;
mod write;

pub use census::Census;
pub use cursor::{Cursor, End};
pub use many::Batch;
pub use merge::Merged;
pub use purge::PurgedLeaf;
pub use queue::{QueuedLeaf, QueuedRange};
pub use record::TreeKind;
pub use tree::{Tree, TreeStats, Trees};
pub use verify::TreeReport;
