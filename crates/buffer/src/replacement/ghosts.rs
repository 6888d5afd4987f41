//! Ghosts: the ids of recently evicted pages, lock-free and in 16 bytes a page. Each has a mark for its user.

use foreshore_base::PageId;
use foreshore_sync::LazyArray;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;

/// Entries of a set: two cache lines.
const WAYS: usize = 16;

// An entry, from the highest bit: 31 bits of fingerprint, never 0; 1 bit of mark; 32 bits of the serial number of the
// eviction, which wraps. 0 means no entry.
//
// All entries are hints. An overwritten entry, or a fingerprint that two pages share, costs a read at most. A look-up
// compares sixteen fingerprints of 31 bits, so one page in 2^27 is taken for another.

/// The mark of an entry.
const MARK: u64 = 1 << 32;
/// The lowest bit of the fingerprint.
const FINGERPRINT: u32 = 33;

/// The last `span` evicted pages.
#[derive(Debug)]
pub(crate) struct Ghosts {
    entries: LazyArray<AtomicU64>,
    /// Sets, a power of two.
    sets: usize,
    span: u32,
    departures: AtomicU32,
}

impl Ghosts {
    pub(crate) fn new(span: usize) -> io::Result<Self> {
        // At least twice the span, so that few sets overflow.
        let sets = (2 * span).div_ceil(WAYS).next_power_of_two();
        let span = u32::try_from(span).expect("fewer frames than that");
        Ok(Self { entries: LazyArray::new(sets * WAYS)?, sets, span, departures: AtomicU32::new(0) })
    }

    fn set(&self, pid: PageId) -> (&[AtomicU64], u64) {
        // The finalizer of MurmurHash3.
        let mut hash = pid.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        let first = (hash as usize & (self.sets - 1)) * WAYS;
        (&self.entries.as_slice()[first..first + WAYS], (hash >> FINGERPRINT).max(1))
    }

    fn age(&self, entry: u64, now: u32) -> u32 {
        if entry == 0 { u32::MAX } else { now.wrapping_sub(entry as u32) }
    }

    /// Notes the eviction of `pid`.
    pub(crate) fn add(&self, pid: PageId, mark: bool) {
        // ORDERING: Relaxed, hints; here and below.
        let now = self.departures.fetch_add(1, Ordering::Relaxed);
        let (set, fingerprint) = self.set(pid);
        let eldest = set.iter().max_by_key(|entry| self.age(entry.load(Ordering::Relaxed), now));
        eldest
            .expect("a set")
            .store(fingerprint << FINGERPRINT | if mark { MARK } else { 0 } | u64::from(now), Ordering::Relaxed);
    }

    /// Removes `pid` and returns its mark, if it is one of the last evicted pages.
    pub(crate) fn take(&self, pid: PageId) -> Option<bool> {
        // ORDERING: as in `add`.
        let now = self.departures.load(Ordering::Relaxed);
        let (set, fingerprint) = self.set(pid);
        let found = set.iter().find(|entry| entry.load(Ordering::Relaxed) >> FINGERPRINT == fingerprint);
        // ORDERING: as in `add`.
        let entry = found.map_or(0, |entry| entry.swap(0, Ordering::Relaxed));
        // Another thread may have taken the entry in between, or replaced it; a replaced entry is lost.
        (entry >> FINGERPRINT == fingerprint && self.age(entry, now) <= self.span).then_some(entry & MARK != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_departures_are_known_once() {
        let ghosts = Ghosts::new(1000).expect("memory");
        (1..=10_000).for_each(|pid| ghosts.add(PageId(pid), pid.is_multiple_of(3)));
        let found =
            |pid: &u64| ghosts.take(PageId(*pid)).inspect(|&mark| assert_eq!(mark, pid.is_multiple_of(3))).is_some();
        let known = (1..=10_000).filter(found).collect::<Vec<_>>();
        assert!(known.iter().all(|&pid| pid > 9_000 - 1), "long gone: {}", known[0]);
        assert!(known.len() >= 990, "{} of the last 1000", known.len());
        assert!((1..=10_000).all(|pid| ghosts.take(PageId(pid)).is_none()), "taken twice");
    }

    #[test]
    fn the_count_of_departures_may_wrap() {
        let ghosts = Ghosts::new(100).expect("memory");
        ghosts.departures.store(u32::MAX - 10, Ordering::Relaxed);
        (1..=50).for_each(|pid| ghosts.add(PageId(pid), true));
        assert!((1..=50).all(|pid| ghosts.take(PageId(pid)) == Some(true)));
    }
}
