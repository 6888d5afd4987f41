//! Nb-GCLOCK: a lock-free buffer pool, by Yui, Miyazaki, Uemura and Yamana, "Nb-GCLOCK: A Non-blocking Buffer
//! Management based on the Generalized CLOCK" (ICDE 2010).
//!
//! Every guard pins its page; one compare-and-swap of the frame's word counts both pin and use. Another one evicts a
//! page without pins whose uses the hand has counted down. Several threads may read the same missing page, and the
//! first to finish has loaded it for all. No thread waits for another, except if every page is fixed: a thread that
//! meets the half-done work of another completes it.
//!
//! Differences from the authors' code: uses are capped in the same exchange, and the hand is shared and moves by eight
//! frames at a time. Each frame counts the pages it has had, so that a stale entry is not taken for a new one when the
//! page returns to the same frame. If a thread has emptied a frame for a page that another one brings in first, the
//! frame stays without a page until the hand passes. Pages are read and never written, as in the experiments of the
//! paper.
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
