//! The ring of the byte-address buffers: positions, whole records, draining.

use super::credit::Credits;
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, rmw};
use foreshore_wal::log_buffer::{Checksummed, GRAIN, RecordRing, Staging};
use std::io;

/// A buffer whose LSN of a record is the position behind it. So stamps are dense in bytes, the order of positions is
/// the order of the log, and "everything up to a position" is a cut.
pub(super) trait RingBuffer: Send + Sync {
    /// The ring that records are copied into.
    fn ring(&self) -> &Ring;

    /// Appends a record that the session in `slot` holds credit for.
    fn insert(&self, slot: usize, record: &Checksummed<'_>) -> Lsn;

    /// Returns the position behind everything drawn.
    fn tail(&self) -> u64;

    /// Returns a position up to which every record has been copied in; may be below an earlier one. For the leader.
    fn published(&self) -> u64;
}

/// Plain memory addressed by positions that only grow.
#[derive(Debug)]
pub struct Ring {
    memory: RecordRing,
    first: u64,
    /// Everything below has been copied out. Written by the leader only.
    drained: AtomicU64,
    /// The greatest stamp of a commit.
    commits: CachePadded<AtomicU64>,
    credits: Credits,
}

impl Ring {
    /// Makes a ring of `bytes`, a power of two, whose first record gets an LSN greater than `floor`.
    pub fn new(bytes: usize, floor: Lsn) -> io::Result<Self> {
        let first = floor.0.next_multiple_of(GRAIN as u64);
        let (memory, credits) = (RecordRing::new(bytes)?, Credits::new(bytes as u64));
        let commits = CachePadded::new(AtomicU64::new(floor.0));
        Ok(Self { memory, first, drained: AtomicU64::new(first), commits, credits })
    }

    /// Returns the bytes of the ring.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Returns the position of the first record.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Takes credit for `bytes` if they are free.
    pub(super) fn take_credit(&self, bytes: u64) -> bool {
        self.credits.take(bytes)
    }

    /// Returns credit that was not used.
    pub(super) fn give_credit(&self, bytes: u64) {
        self.credits.give(bytes);
    }

    /// Returns the greatest stamp of a commit.
    pub(super) fn last_commit(&self) -> Lsn {
        // ORDERING: Acquire, pairs with `note_commit`.
        Lsn(self.commits.load(Ordering::Acquire))
    }

    /// Takes note of a commit.
    #[inline]
    pub(super) fn note_commit(&self, lsn: Lsn) {
        rmw::contended(1);
        // ORDERING: AcqRel, pairs with `last_commit`. Positions are drawn in an order that carries what came before
        // each draw, so a value covers all commits below it, those too that have not raised the clock yet.
        self.commits.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Returns the position up to which everything has been copied out.
    pub(super) fn drained(&self) -> u64 {
        // ORDERING: Relaxed, only the leader writes it, and leaders hand over through their lock.
        self.drained.load(Ordering::Relaxed)
    }

    /// Writes the record at `start` and returns its LSN.
    ///
    /// # Safety
    /// The caller alone has drawn `[start, start + record.size())` and holds credit for it.
    #[inline]
    pub(super) unsafe fn fill(&self, start: u64, record: &Checksummed<'_>) -> Lsn {
        let lsn = Lsn(start + record.size() as u64);
        debug_assert!(start >= self.first, "a record at {start} in a ring that begins at {}", self.first);
        // SAFETY: inside the caller's range. Credit says that the ring's previous contents there were drained: the
        // bytes drawn so far never exceed the credit taken so far, and the taker of each credit happened before
        // the draw of the position that used it.
        unsafe { self.memory.put(start, record, lsn) };
        lsn
    }

    /// Copies whole records of `[drained, upto)` into `staging`, releases their credit, and returns the position after
    /// the last one.
    ///
    /// # Safety
    /// Every record below `upto` is published to the caller, the only thread that drains.
    pub(super) unsafe fn drain(&self, upto: u64, staging: &mut Staging) -> u64 {
        let from = self.drained();
        // SAFETY: published, and not overwritten before the credit is given back below.
        let to = unsafe { self.memory.drain(from, upto, staging) };
        assert!(to > from || from == upto || staging.data_len() > 0, "a record larger than a group");
        if to > from {
            // ORDERING: Relaxed, as in `drained`.
            self.drained.store(to, Ordering::Relaxed);
            self.credits.give(to - from);
        }
        to
    }
}
