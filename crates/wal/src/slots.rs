//! The slots that sessions lease. A slot has words that its session writes and every thread may read.

use foreshore_base::{Error, Lsn, Result};
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};

/// The words of one session. Only the session that leases the slot stores into it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The greatest LSN that the session requested from the flusher.
    requested: AtomicU64,
    /// Greatest LSN of a commit of the session that no thread waits for at all.
    last_relaxed: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds that the session has spent in reserving and appending, if measured.
    append_nanos: AtomicU64,
    /// Whether its transaction holds log space for its rollback: 0 or 1.
    holds: AtomicU64,
}

/// All slots. Their number is fixed; scans go up to the highest one ever leased.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    /// Slots below this index may have been used.
    used: AtomicUsize,
    /// The free indexes, descending: the lowest is leased next.
    free: Mutex<Vec<usize>>,
}

impl Slots {
    /// Creates `count` free slots.
    pub fn new(count: usize) -> Self {
        let slot = |_| CachePadded::new(Slot::default());
        let free = Mutex::new(LockRank::Leaf, (0..count).rev().collect());
        Self { slots: (0..count).map(slot).collect(), used: AtomicUsize::new(0), free }
    }

    /// Leases the lowest free slot.
    pub fn lease(&self) -> Result<usize> {
        let mut free = self.free.lock();
        let index = free.pop().ok_or(Error::TooManyTransactions { max: self.slots.len(), oldest: "" })?;
        debug_assert!(!free.contains(&index), "slot {index} is leased and free");
        // ORDERING: Relaxed. Each store of the session is published later: by its draw of a position, or by a store
        // into the slot and a fence. A cut of `lanes` may miss this slot. Then the cut has raised the floor before the
        // session's first append reads the floor, because that append fences first.
        self.used.fetch_max(index + 1, Ordering::Relaxed);
        Ok(index)
    }

    /// Releases a slot.
    pub(crate) fn release(&self, index: usize) {
        let mut free = self.free.lock();
        let at = free.partition_point(|&other| other > index);
        assert!(index < self.slots.len() && free.get(at) != Some(&index), "slot {index} is released twice");
        free.insert(at, index);
    }

    /// Returns the slot at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Returns the number of slots.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the index below which slots may have been used.
    pub fn used_len(&self) -> usize {
        // ORDERING: Relaxed, the caller has acquired what it searches for: see `lease`.
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the slots that may have been used.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Slot> {
        self.slots[..self.used_len()].iter().map(|slot| &**slot)
    }

    /// Whether any session has requested more than `lsn` from the flusher. Under load one of the first slots decides.
    /// The caller has issued a `SeqCst` fence.
    pub(crate) fn wants_beyond(&self, lsn: Lsn) -> bool {
        // ORDERING: Acquire, pairs with `Slot::request_flush`; otherwise the fences on both sides order it: see
        // `Pipeline::flush_soon`.
        self.used().any(|slot| slot.requested.load(Ordering::Acquire) > lsn.0)
    }

    /// Whether any session has a relaxed commit above `lsn`. The caller has issued a `SeqCst` fence.
    pub(crate) fn has_relaxed_beyond(&self, lsn: Lsn) -> bool {
        // ORDERING: as in `wants_beyond`.
        self.used().any(|slot| slot.last_relaxed.load(Ordering::Acquire) > lsn.0)
    }

    /// Returns the count of records appended since the log was opened, and their bytes with envelopes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        // ORDERING: Relaxed, counters.
        self.used().fold((0, 0), |(records, bytes), slot| {
            (records + slot.records.load(Ordering::Relaxed), bytes + slot.bytes.load(Ordering::Relaxed))
        })
    }

    /// Returns the count of records appended by other sessions than the one with this slot.
    pub(crate) fn records_of_others(&self, index: usize) -> u64 {
        // ORDERING: Relaxed, a counter. Read first: both only grow.
        let own = self.get(index).records.load(Ordering::Relaxed);
        self.totals().0 - own
    }

    /// Returns the nanoseconds that all sessions have spent in reserving and appending, if measured.
    pub(crate) fn append_nanos(&self) -> u64 {
        // ORDERING: Relaxed, counters.
        self.used().map(|slot| slot.append_nanos.load(Ordering::Relaxed)).sum()
    }
}

impl Slot {
    /// Counts nanoseconds spent in reserving and appending.
    pub(crate) fn count_append(&self, nanos: u64) {
        // ORDERING: Relaxed, a counter with one writer.
        self.append_nanos.store(self.append_nanos.load(Ordering::Relaxed) + nanos, Ordering::Relaxed);
    }

    /// Notes whether the transaction holds log space for its rollback.
    pub(crate) fn note_holds(&self, holds: bool) {
        // ORDERING: Relaxed, a hint: a wait that depends on it checks again.
        self.holds.store(u64::from(holds), Ordering::Relaxed);
    }

    /// Whether the transaction holds log space for its rollback.
    pub(crate) fn holds_space(&self) -> bool {
        // ORDERING: Relaxed, as in `note_holds`.
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// Counts a record of `size` bytes.
    #[inline]
    pub(crate) fn count_record(&self, size: usize) {
        // ORDERING: Relaxed, counters with one writer.
        self.records.store(self.records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + size as u64, Ordering::Relaxed);
    }

    /// Requests a flush of `lsn`. The caller then fences and checks for a leader.
    pub(crate) fn request_flush(&self, lsn: Lsn) {
        raise(&self.requested, lsn);
    }

    /// Notes the relaxed commit at `lsn`. The caller fences and checks for a leader after.
    pub(crate) fn note_relaxed(&self, lsn: Lsn) {
        raise(&self.last_relaxed, lsn);
    }
}

/// Raises a word of the caller's own session.
fn raise(word: &AtomicU64, lsn: Lsn) {
    // ORDERING: Relaxed load of the session's own value; Release, the commit record is appended before it is seen.
    if word.load(Ordering::Relaxed) < lsn.0 {
        word.store(lsn.0, Ordering::Release);
    }
}
