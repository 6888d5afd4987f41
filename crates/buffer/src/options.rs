//! Options of a pool.

use crate::replacement::MakeReplacementPolicy;
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{InvalidOption, Result};
use foreshore_sync::primitive::MODEL;
use std::{fmt, str::FromStr, sync::Arc};

/// The fewest frames of a pool: for a split, its map page and some others. Models use fewer.
pub const MIN_FRAMES: usize = if MODEL { 2 } else { 16 };

/// Whether pages go through the doublewrite file, which restores pages that a power loss has torn.
///
/// A device may offer whole writes: after a power loss such a write is there whole or not at all. The kernel reports
/// this for a file (`STATX_WRITE_ATOMIC`, direct I/O only), and `RWF_ATOMIC` requests it. If such a write is refused
/// later, for example on a full disk, the pool uses its other way of writing until the database is opened again.
///
/// | name | the device offers it | it does not |
/// |---|---|---|
/// | `auto` | whole writes | doublewrite |
/// | `on` | doublewrite | doublewrite |
/// | `off` | whole writes | plain writes: **a torn page is lost** |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DoublewriteKind {
    /// Uses the doublewrite file unless the device writes pages whole.
    #[default]
    Auto,
    /// Always uses the doublewrite file.
    On,
    /// Never uses the doublewrite file. On a device that tears pages, a power loss may then leave a database that does
    /// not open or has lost rows. Both are reported.
    Off,
}

impl fmt::Display for DoublewriteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

impl FromStr for DoublewriteKind {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        match name {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => {
                let expected = "auto, on or off".to_owned();
                Err(InvalidOption { name: "doublewrite", value: name.to_owned(), expected })
            }
        }
    }
}

/// Options of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Frames, each of one page (8 KiB): the hard limit of page memory. Memory is committed on first use.
    pub frames: usize,
    /// Whether there are background threads: one that keeps free frames ready, and, unless the pool is small, some that
    /// read ahead. Without them the owner calls [`Pool::reclaim_step`](crate::Pool::reclaim_step), or threads with a
    /// miss evict themselves.
    pub background: bool,
    /// The maker of the replacement policy; `None` for the engine's own policy.
    pub replacement: Option<Arc<dyn MakeReplacementPolicy>>,
    /// Whether pages go through the doublewrite file.
    pub doublewrite: DoublewriteKind,
    /// Whether a miss also loads the neighbours of its page while frames are plentiful. Off for comparisons of
    /// policies, which must see the requested pages only.
    pub read_around: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            frames: 8192,
            background: true,
            replacement: None,
            doublewrite: DoublewriteKind::default(),
            read_around: true,
        }
    }
}

impl PoolOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let max = MAX_PAGES as usize;
        if (MIN_FRAMES..=max).contains(&self.frames) {
            return Ok(());
        }
        let expected = format!("{MIN_FRAMES} to {max}");
        Err(InvalidOption { name: "frames", value: self.frames.to_string(), expected }.into())
    }
}
