//! The buffer pool of Foreshore: frames, guards, replacement, write-back.
//!
//! A page is **fixed** by one of the guards of [`Pool`]: shared, exclusive or optimistic. A fix of a page in memory
//! costs one load of the page table and one latch. An optimistic fix costs two loads of the version instead of the
//! latch. A miss costs one read, even if several threads need the page.
//!
//! [`change()`] is the only place that logs a change. Dirty pages go home in batches, after the log and through the
//! doublewrite file. No latch is held during a read or write, except that of the page being read.
//!
//! Each part has one job and uses only those above it in this table:
//!
//! | part | job |
//! |---|---|
//! | `format`, `page`, `words` | the bytes of a page, on disk and in memory |
//! | `frame`, `table`, `free`, [`replacement`] | the state of a frame, the page table, the free list, victims |
//! | `memory`, `optimistic`, `guard`, `pinned` | frames with their bytes, and the guards of their pages |
//! | `scan_ring`, `replacer` | victims of scans first, then those of the policy |
//! | `residency` | which page is in which frame; fixes pages in memory |
//! | `stamps` | notices pages that the medium has not written |
//! | `page_redo` | changes of the log that wait for their pages after a restart |
//! | `home`, `rounds`, `pass`, `flush_order`, `cleaner` | writes dirty pages home, for frames and for checkpoints |
//! | `reclaimer` | keeps frames free |
//! | `read_ahead`, `loader` | reads pages into frames, with their neighbours and ahead of need |
//! | `pool` | the parts together, and their threads |
//! | `repair` | replaces the homes of damaged pages while no pool is open |
//!
//! **The duty of upper layers:** before the first latch of a structure change, all its pages are resident
//! ([`Pool::pin`]) and its log space is reserved. Then no thread waits for the disk while it holds a latch.
//!
//! **Invariant:** a page goes home only when the log that describes it is durable. One function of `home` enforces it.

pub mod format;
pub mod replacement;

mod change;
mod cleaner;
mod copy;
mod doublewrite;
mod flush_order;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod frame;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod free;
mod guard;
mod home;
mod loader;
mod memory;
mod optimistic;
mod options;
mod page;
mod page_redo;
mod pass;
mod pinned;
mod pool;
mod position;
mod quarantine;
mod read_ahead;
mod reclaimer;
mod repair;
mod replacer;
mod residency;
mod rounds;
mod scan_ring;
mod stamps;
mod stats;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod table;
mod words;

/// The kernels, for models in `tests/`.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub mod model {
    pub use crate::frame::{Frame, FrameNo, Kept};
    pub use crate::free::FreeList;
    pub use crate::table::PageTable;
}

pub use change::{Change, MAX_BODY_PARTS, change, change_cost};
pub use format::{ChangeRecord, PageType};
pub use guard::{ExclusiveGuard, SharedGuard};
pub use optimistic::OptimisticGuard;
pub use options::{DoublewriteKind, MIN_FRAMES, PoolOptions};
pub use page::{PageKind, PageMut, PageRead};
pub use page_redo::{IfDamaged, PageRedo};
pub use pinned::Pinned;
pub use pool::Pool;
pub use position::PagePosition;
pub use quarantine::why_quarantined;
pub use read_ahead::Scan;
pub use scan_ring::AccessPattern;
pub use stamps::{FoundStamps, Stamps};
pub use stats::{PageWrites, PoolStats, StampStats};
