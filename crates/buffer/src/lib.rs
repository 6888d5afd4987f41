//! The buffer pool of Foreshore: frames, guards, replacement, write-back.
//!
//! A page is **fixed** by one of the guards of [`Pool`]: shared, exclusive or optimistic. Fixing a page in memory costs one
//! load of the page table and one latch, or, optimistic, two loads of its version; a miss costs one read however many
//! threads meet it. [`change()`] logs a change and is the only
//! place that does. Dirty pages go home in batches, behind the log (the write-ahead rule is one function of the cleaner) and
//! through the doublewrite file, and no latch is held over a read or write of anything but the pages being read.
//!
//! While frames are plentiful a miss brings in the pages beside the one that is wanted, with the same read, so that a pool
//! warms up soon. Pages that will be wanted soon are read by background threads ([`Pool::prefetch`]), which nobody waits for.
//! Pages that are [`Wanted`] once, as a scan wants them, take turns in a small part of the frames and push out no others.
//!
//! What upper layers keep to: every page that a structure change latches is resident before its first latch
//! ([`Pool::pin`]), and log space is reserved before it too. Then nobody waits for the disk with a latch held.

pub mod format;
pub mod replacement;

mod ahead;
mod around;
mod change;
mod cleaner;
mod doublewrite;
mod evict;
mod fix;
mod flush;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod frame;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod free;
mod guard;
mod load;
mod memory;
mod optimistic;
mod options;
mod page;
mod passing;
mod pinned;
mod pool;
mod quarantine;
mod stats;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod table;
mod words;
mod write_back;

/// The kernels, for models in `tests/`.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub mod model {
    pub use crate::frame::{Frame, FrameNo, Kept};
    pub use crate::free::FreeList;
    pub use crate::table::PageTable;
}

pub use ahead::Scan;
pub use change::{Change, MAX_BODY_PARTS, change, change_cost};
pub use format::{ChangeRecord, PageType};
pub use guard::{ExclusiveGuard, PagePosition, SharedGuard};
pub use optimistic::OptimisticGuard;
pub use options::{DoublewriteKind, MIN_FRAMES, PoolOptions};
pub use page::{PageMut, PageRead};
pub use passing::Wanted;
pub use pinned::Pinned;
pub use pool::Pool;
pub use quarantine::why_quarantined;
pub use stats::{PageWrites, PoolStats};
