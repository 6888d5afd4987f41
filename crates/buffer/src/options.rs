//! How a pool is built and run.

use crate::replacement::MakeReplacementPolicy;
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{InvalidOption, Result};
use foreshore_sync::primitive::MODEL;
use std::{fmt, str::FromStr, sync::Arc};

/// Fewest frames of a pool: a split, its map page and some room beside. In models the fewer the better.
pub const MIN_FRAMES: usize = if MODEL { 2 } else { 16 };

/// Whether pages go through the doublewrite file, which mends pages that power loss has torn.
///
/// A device may offer to write a page whole or not at all, also when power is lost: the kernel says so of a file
/// (`STATX_WRITE_ATOMIC`, direct I/O only), and a write that asks for it (`RWF_ATOMIC`) is refused where it is not
/// kept. If one is refused all the same, for want of space for example, pages go the way that is left until the
/// database is opened again.
///
/// | name | the device offers it | it does not |
/// |---|---|---|
/// | `auto` | whole writes | doublewrite |
/// | `on` | doublewrite | doublewrite |
/// | `off` | whole writes | plain writes: **a torn page is lost** |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoublewriteKind {
    /// Unless the device writes pages whole.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never. On a device that tears pages, power loss then leaves a database that cannot be opened or has lost rows,
    /// and says so.
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

/// How a pool is built and run.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Frames, each of one page (8 KiB): the hard limit of page memory, committed as it is first used.
    pub frames: usize,
    /// Whether there are background threads: one that keeps free frames ready, and, unless the pool is small, some that
    /// read ahead. If not, the owner calls [`Pool::reclaim_step`](crate::Pool::reclaim_step), or threads with a miss
    /// evict for themselves.
    pub background: bool,
    /// What makes the policy that says which page gives up its frame; `None`: the engine's own.
    pub replacement: Option<Arc<dyn MakeReplacementPolicy>>,
    /// Whether pages go through the doublewrite file.
    pub doublewrite: DoublewriteKind,
    /// Whether a miss brings in the pages beside the one that is wanted while frames are plentiful. Off to compare
    /// policies, which are to see the pages that are asked for and no others.
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
