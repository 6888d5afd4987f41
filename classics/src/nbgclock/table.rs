//! The page table: a word for each page id that says where the page is.

use foreshore_base::PageId;
use foreshore_base::limits::MAX_PAGES;
use foreshore_sync::ChunkedArray;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::io;

/// Entries; few in models, where each one is an object of the checker.
const ENTRIES: u64 = if MODEL { 8 } else { MAX_PAGES };
/// Entries of a chunk: 4 MiB.
const CHUNK: usize = if MODEL { 8 } else { 1 << 19 };

/// Where a page is: its frame, and the frame's turn when it entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the frame.
    pub no: u32,
    /// See [`Frame::turn`](super::frame::Frame::turn).
    pub turn: u32,
}

impl Entry {
    /// Returns the entry as a word: 0 for none, else frame + 1 in the upper half and the turn in the lower.
    fn word(self) -> u64 {
        u64::from(self.no + 1) << 32 | u64::from(self.turn)
    }
}

/// The entries of all pages, in chunks that are mapped with their first page.
#[derive(Debug)]
pub struct PageTable {
    entries: ChunkedArray<AtomicU64, CHUNK>,
}

impl PageTable {
    /// An empty table.
    pub fn new() -> Self {
        Self { entries: ChunkedArray::new(ENTRIES as usize) }
    }

    /// Returns whether a page of this id can be in the table.
    pub fn in_range(pid: PageId) -> bool {
        pid.0 != 0 && pid.0 < ENTRIES
    }

    /// Maps the chunk of a page, which is in range, before it is entered.
    ///
    /// # Errors
    /// When there is no memory for another chunk.
    pub fn make_room(&self, pid: PageId) -> io::Result<()> {
        self.entries.map(pid.0 as usize).map(drop)
    }

    /// Returns the entry of a page.
    #[inline]
    pub fn get(&self, pid: PageId) -> Option<Entry> {
        // ORDERING: Acquire, pairs with `insert`: the frame has the page by then, or had it.
        let word = self.entries.get(pid.0 as usize)?.load(Ordering::Acquire);
        let no = ((word >> 32) as u32).checked_sub(1)?;
        Some(Entry { no, turn: word as u32 })
    }

    /// Enters a page; returns false if it has an entry already.
    pub fn insert(&self, pid: PageId, entry: Entry) -> bool {
        let own = self.entries.get(pid.0 as usize).expect("room is made before a page is entered");
        // ORDERING: Release, pairs with `get`.
        own.compare_exchange(0, entry.word(), Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Removes the entry of a page that has left its frame, unless another thread has.
    pub fn remove(&self, pid: PageId, entry: Entry) {
        let Some(own) = self.entries.get(pid.0 as usize) else { return };
        // ORDERING: Relaxed, a removal publishes nothing.
        let _ = own.compare_exchange(entry.word(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
