//! Nb-GCLOCK: a buffer pool without locks, by Yui, Miyazaki, Uemura and Yamana, "Nb-GCLOCK: A Non-blocking Buffer Management
//! based on the Generalized CLOCK" (ICDE 2010).
//!
//! Every guard pins its page, and pin and use are counted by one compare-and-swap of the word of the frame. A page without pins
//! whose uses the hand has counted down leaves by another. Several threads may read the same missing page, and the first to be
//! done has loaded it for all. No thread waits for another, but where every page is fixed: one that meets the half-done work of
//! another does it itself.
//!
//! What differs from the authors' code: uses are capped in the same exchange, the hand is shared and moves by eight frames at a
//! time, and each frame counts the pages it has had, so that what a thread read long ago about a page is not taken for news
//! when the page comes back to the same frame. A frame that a thread has emptied for a page that another one brings in first
//! stays without a page until the hand comes by. Pages are read and never written: the pool exists for the experiments of the
//! paper, which write none.

#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod frame;
mod pool;
#[cfg_attr(not(any(foreshore_loom, foreshore_shuttle)), allow(unreachable_pub))]
mod table;

pub use pool::{Guard, Pool, PoolStats};

/// The kernels, for models in `tests/`.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub mod model {
    pub use super::frame::Frame;
    pub use super::table::{Entry, PageTable};
}
