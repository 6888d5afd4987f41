//! The page table: from page id to frame, direct-mapped.
//!
//! The table has one word a page id, in chunks of 2^20 words. A chunk is mapped with its first page, and the system
//! commits its memory on first touch. A look-up is two loads, without hash, probe or lock.
//!
//! Contract of an entry (`u32`): 0 = the page is in no frame, else frame index + 1.
//!
//! 1. 0 -> `f + 1`: by compare-and-swap, by the thread that holds the exclusive latch of frame `f` and has stored the
//!    page id in it. The winner reads the page. All others find the frame and park on its latch, so a miss costs one
//!    read.
//! 2. `f + 1` -> 0: by a thread that holds the exclusive latch of frame `f`. No other may change a non-zero entry.
//! 3. An entry is a hint, since the frame may have got another page after the load. It counts once the page id is
//!    compared under the latch of the frame, or under an optimistic version that later validates.

use crate::frame::FrameNo;
use foreshore_base::PageId;
use foreshore_base::limits::MAX_PAGES;
use foreshore_sync::ChunkedArray;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering};
use std::io;

/// The number of entries. Models have few, because each entry is an object of the checker.
const ENTRIES: u64 = if MODEL { 64 } else { MAX_PAGES };

/// Entries of a chunk: 4 MiB.
const CHUNK: usize = if MODEL { 64 } else { 1 << 20 };

/// A number that no frame has.
const NOWHERE: FrameNo = FrameNo::MAX;

/// The page table of a pool.
#[derive(Debug)]
pub struct PageTable {
    entries: ChunkedArray<AtomicU32, CHUNK>,
}

impl PageTable {
    /// Returns a table without pages.
    pub fn new() -> Self {
        Self { entries: ChunkedArray::new(ENTRIES as usize) }
    }

    /// Returns whether `pid` can be in the table at all. Ids come from pages, so they are checked before they are
    /// entered.
    pub const fn in_range(pid: PageId) -> bool {
        pid.0 != 0 && pid.0 < ENTRIES
    }

    /// Maps the chunk of `pid`, which is in range, before it is entered.
    ///
    /// # Errors
    /// When there is no memory for another chunk.
    pub fn prepare(&self, pid: PageId) -> io::Result<()> {
        self.entries.map(pid.0 as usize).map(drop)
    }

    /// Returns the bytes of the chunks.
    pub fn bytes(&self) -> u64 {
        self.entries.mapped_bytes()
    }

    fn entry(&self, pid: PageId) -> &AtomicU32 {
        self.entries.get(pid.0 as usize).expect("the chunk is mapped before a page is entered")
    }

    /// Returns the frame that probably holds `pid`; none holds one out of range.
    pub fn get(&self, pid: PageId) -> Option<FrameNo> {
        let no = self.hint(pid);
        (no != NOWHERE).then_some(no)
    }

    /// Looks up like [`PageTable::get`], but returns [`NOWHERE`] for none, which the look-up of the frame refuses
    /// anyway.
    #[inline]
    pub fn hint(&self, pid: PageId) -> FrameNo {
        let Some(entry) = self.entries.get(pid.0 as usize) else { return NOWHERE };
        // ORDERING: Acquire, pairs with the Release of `insert`, so that the page id in the frame is seen.
        entry.load(Ordering::Acquire).wrapping_sub(1)
    }

    /// Enters `pid` at `frame`. Returns false if it is in a frame already.
    pub fn insert(&self, pid: PageId, frame: FrameNo) -> bool {
        if mutant("table: insert without a look") {
            // ORDERING: as below.
            self.entry(pid).store(frame + 1, Ordering::Release);
            return true;
        }
        // ORDERING: Release publishes the page id stored in the frame, pairs with `get`.
        self.entry(pid).compare_exchange(0, frame + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Removes `pid` from `frame`, whose exclusive latch the caller holds.
    pub fn remove(&self, pid: PageId, frame: FrameNo) {
        // ORDERING: Release, pairs with `get`: a thread that sees the page gone may load it again, after all writes to
        // it.
        let was = self.entry(pid).swap(0, Ordering::Release);
        assert_eq!(was, frame + 1, "page {pid} leaves frame {frame}");
    }
}
