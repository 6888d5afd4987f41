//! What a pool tells of its work.

use std::fmt;

/// How pages are written home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageWrites {
    /// Through the doublewrite file.
    #[default]
    Doublewrite,
    /// Each whole or not at all, as the device offers it.
    Whole,
    /// As they are: power loss may tear them.
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

/// What a pool has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Frames in the pool.
    pub frames: u64,
    /// Frames that hold no page.
    pub frames_free: u64,
    /// Pages in frames that differ from their home on disk.
    pub pages_dirty: u64,
    /// Fixes of a page that no frame held, and reads ahead of scans. Several threads that meet the same missing page
    /// count several times; pages that come in with one that is missing do not.
    pub misses: u64,
    /// Pages read from the data file, several at a time or one.
    pub pages_read: u64,
    /// Pages brought in ahead of need, for scans or beside a page that was missing.
    pub pages_ahead: u64,
    /// Page images written, at home and to the doublewrite file.
    pub pages_written: u64,
    /// Pages that gave up their frame.
    pub evictions: u64,
    /// Times that a thread with a miss had to evict for itself because no frame stood ready.
    pub evictions_inline: u64,
    /// Batches written home.
    pub batches: u64,
    /// Batches that went through the doublewrite file first.
    pub doublewrite_batches: u64,
    /// Syncs of the data file.
    pub data_syncs: u64,
    /// Whether the device offers to write a page whole or not at all.
    pub whole_writes: bool,
    /// How pages are written home now.
    pub page_writes: PageWrites,
    /// Bytes mapped for the page table: 4 MiB for each 8 GiB of the data file of which a page has been in memory. At
    /// most as much is in memory.
    pub page_table_bytes: u64,
}
