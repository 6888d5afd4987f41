//! Statistics of a pool.

use std::fmt;

/// The way in which pages are written home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageWrites {
    /// Through the doublewrite file.
    #[default]
    Doublewrite,
    /// Each page whole or not at all, by the device.
    Whole,
    /// Without protection: a power loss may tear them.
    Plain,
}

impl fmt::Display for PageWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Doublewrite => "doublewrite",
            Self::Whole => "whole",
            Self::Plain => "plain",
        })
    }
}

/// Statistics of the stamps of pages, by which lost writes are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StampStats {
    /// Whether the open has made the file of stamps anew: of a new or restored database, or because it was missing or
    /// its header was damaged. A write that was lost before is then not noticed.
    pub is_new: bool,
    /// Writes of pages that got no stamp for want of memory. If such a write was lost, that may not be noticed.
    pub dropped: u64,
    /// Operations on the file of stamps that failed. Nothing else fails for that, but fewer lost writes are noticed.
    pub failures: u64,
}

/// Statistics of a pool since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Frames in the pool.
    pub frames: u64,
    /// Frames that hold no page.
    pub frames_free: u64,
    /// Pages in frames that differ from their home on disk.
    pub pages_dirty: u64,
    /// Fixes of a page that was in no frame, and read-aheads. Several threads that miss the same page count several
    /// times; neighbours that are loaded with a missing page do not count.
    pub misses: u64,
    /// Pages read from the data file.
    pub pages_read: u64,
    /// Pages loaded ahead of need: for scans, or as neighbours of a missing page.
    pub pages_ahead: u64,
    /// Page images written, at home and to the doublewrite file.
    pub pages_written: u64,
    /// Pages that were evicted.
    pub evictions: u64,
    /// Times that a thread with a miss had to evict because no frame was free.
    pub evictions_inline: u64,
    /// Batches written home.
    pub batches: u64,
    /// Batches that went through the doublewrite file first.
    pub doublewrite_batches: u64,
    /// Syncs of the data file.
    pub data_syncs: u64,
    /// The stamps of pages.
    pub stamps: StampStats,
    /// Whether the device offers to write a page whole or not at all.
    pub whole_writes: bool,
    /// How pages are written home now.
    pub page_writes: PageWrites,
    /// Bytes mapped for the page table: 4 MiB for each 8 GiB of the data file of which a page has been in memory. The
    /// memory in use is at most that.
    pub page_table_bytes: u64,
}
