//! The changes that have been read from the log and are not handed over to the threads that redo them.
//!
//! A record is only put behind the others of its bucket of pages. The thread that needs the index by page makes it
//! later. The pages of one bucket fit in the processor's cache, and those of all do not. So the log is partitioned as
//! the input of a radix join is (Manegold, Boncz, Kersten, "Optimizing main-memory join on modern hardware", 2002).

use super::changes::{WaitingRecord, WaitingRecords};
use foreshore_base::PageId;
use foreshore_buffer::ChangeRecord;

/// Parts of the map of pages. Each has a lock, and is drained by one thread.
pub(super) const BUCKETS: usize = 256;
/// Adjacent pages of one bucket. One read brings several of them into memory.
const RUN: u64 = 64;

/// Memory that the index takes for a change of a page with many. For a page with one it takes more.
const CHANGE_BYTES: u64 = 16;

/// Returns the number of the bucket of a page, by Fibonacci hashing (Knuth, vol. 3, section 6.4).
pub(super) const fn bucket_of(pid: PageId) -> usize {
    let hash = (pid.0 / RUN).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (hash as usize * BUCKETS) >> 32
}

/// The changes, by bucket.
pub(crate) struct Collected {
    buckets: Vec<WaitingRecords>,
    bytes: u64,
}

impl Collected {
    pub(crate) fn new() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| WaitingRecords::default()).collect(), bytes: 0 }
    }

    /// Adds the changes of a record, behind those of earlier ones.
    pub(crate) fn add(&mut self, record: &WaitingRecord<'_>, change: &ChangeRecord<'_>) {
        let pages = change.pages();
        self.bytes += CHANGE_BYTES * pages.len() as u64;
        for (index, &pid) in pages.iter().enumerate() {
            let bucket = bucket_of(pid);
            if !pages[..index].iter().any(|&other| bucket_of(other) == bucket) {
                self.bytes += self.buckets[bucket].add(record).1;
            }
        }
    }

    /// Returns the memory that the changes take, with an index of them.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the records of each bucket that has some.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (usize, WaitingRecords)> {
        let buckets = std::mem::replace(self, Self::new()).buckets;
        buckets.into_iter().enumerate().filter(|(_, records)| records.bytes() > 0)
    }
}
