//! How a pool is built and run.

use crate::replace::ReplacementKind;
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{Error, Result};
use foreshore_sync::primitive::MODEL;

/// Fewest frames of a pool: a split, its map page and some room beside. In models the fewer the better.
pub const MIN_FRAMES: usize = if MODEL { 2 } else { 16 };

/// How a pool is built and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Frames, each of one page (8 KiB): the hard limit of page memory, committed as it is first used.
    pub frames: usize,
    /// Whether there are background threads: one that keeps free frames ready, and, unless the pool is small, some that read
    /// ahead. If not, the owner calls [`Pool::provide_step`](crate::Pool::provide_step), or threads with a miss evict for
    /// themselves.
    pub background: bool,
    /// Which page gives up its frame.
    pub replacement: ReplacementKind,
    /// Whether pages go through the doublewrite file, which mends torn pages. Off only on devices that write a page whole
    /// or not at all.
    pub doublewrite: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { frames: 8192, background: true, replacement: ReplacementKind::default(), doublewrite: true }
    }
}

impl PoolOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let max = MAX_PAGES as usize;
        if (MIN_FRAMES..=max).contains(&self.frames) {
            return Ok(());
        }
        let expected = format!("{MIN_FRAMES} to {max}");
        Err(Error::InvalidOption { name: "frames", value: self.frames.to_string(), expected })
    }
}
