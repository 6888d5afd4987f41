//! The B+-trees of Foreshore: the rows of each table, in key order.
//!
//! A table is a tree of pages. Rows are in the leaves and separators above them. Every node lies between two fences.
//! The page of the root never changes. Descents read nodes without latches unless writers disturb them too often.
//! Latches are taken from the root downwards and from left to right: at most two of nodes at a time, or four to move a
//! node. Then come those of map pages. No thread waits for the disk under a latch. Splits and merges have two steps.
//! Between the steps the tree has the same intermediate state in both cases: the parent does not know the right sibling
//! of a node.
//!
//! - [`Trees`]: all trees of a database, and the redo and undo of their records.
//! - [`Tree`]: the rows of one table, by key, in serializable transactions.
//! - [`Cursor`]: a scan in key order.
//!
//! **Invariant:** a node whose high fence is below what its parent says is marked incomplete. An operation that moves
//! right over such a node finishes its split. Snapshot readers do not, because they hold no lock of the table and
//! change nothing.
//!
//! **Invariant:** bytes read without a latch count only after the version of their page has validated. The same holds
//! for damage found in them.
//!
//! **Invariant:** what a record does to a page depends only on the record and the page. Normal operation changes pages
//! by the same function as redo.

#![forbid(unsafe_code)]

mod access;
mod apply;
mod before;
mod census;
mod chain;
mod chain_record;
mod claims;
mod content;
mod contention;
mod create;
mod cursor;
mod cut;
mod damage;
mod descend;
mod drop;
mod end;
pub mod format;
mod intent;
mod last_leaf;
mod leaf_list;
mod load;
mod load_record;
mod locking;
mod lookup;
mod many;
mod merge;
mod neighbours;
mod node;
mod overflow;
mod pack;
mod purge;
mod queue;
mod record;
mod recover;
mod redistribute;
mod relocate;
mod row;
mod rows_record;
mod salvage;
mod sample;
mod sound;
mod split;
mod stage;
mod take_over;
mod tree;
mod verify;
mod write;

pub use census::Census;
pub use content::{ChainContent, ChainPart, Entries, NodeContent, StoredRow};
pub use cursor::{Cursor, End, RemovedFirst};
pub use load::Loader;
pub use many::Batch;
pub use merge::Merged;
pub use overflow::{ChainRef, FarValues, FreedChains, OpenValue, ValueWriter};
pub use pack::PackedLeaf;
pub use purge::PurgedLeaf;
pub use queue::{QueuedLeaf, QueuedRange};
pub use record::TreeKind;
pub use relocate::{MovedNodes, NodePlace};
pub use tree::{Tree, TreeStats, Trees};
pub use verify::TreeReport;
