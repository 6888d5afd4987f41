//! Ghosts: which pages left memory of late, without a lock and in 16 bytes a page. Each has a mark, by which its
//! user says one more thing of it.

use foreshore_base::PageId;
use foreshore_sync::LazyArray;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;

/// Entries of a set: two cache lines.
const WAYS: usize = 16;

// An entry, from the top: fingerprint of the page, 31 bits, never 0; the mark; the serial number of its departure, 32
// bits, which wraps. 0: none.
//
// Everything here is a hint. An entry that is overwritten or a fingerprint that two pages share costs a read at most:
// sixteen fingerprints of 31 bits are looked at, so one page in 2^27 is taken for another.

/// The mark of an entry.
const MARK: u64 = 1 << 32;
/// Its fingerprint begins there.
const FINGERPRINT: u32 = 33;

/// The last pages that left, as many as `span`.
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

    /// Notes that `pid` left.
    pub(crate) fn add(&self, pid: PageId, mark: bool) {
        // ORDERING: Relaxed, hints; here and below.
        let now = self.departures.fetch_add(1, Ordering::Relaxed);
        let (set, fingerprint) = self.set(pid);
        let eldest = set.iter().max_by_key(|entry| self.age(entry.load(Ordering::Relaxed), now));
        eldest
            .expect("a set")
            .store(fingerprint << FINGERPRINT | if mark { MARK } else { 0 } | u64::from(now), Ordering::Relaxed);
    }

    /// The mark of `pid` if it is one of the last that left; it is not afterwards.
    pub(crate) fn take(&self, pid: PageId) -> Option<bool> {
        // ORDERING: as in `add`.
        let now = self.departures.load(Ordering::Relaxed);
        let (set, fingerprint) = self.set(pid);
        let found = set.iter().find(|entry| entry.load(Ordering::Relaxed) >> FINGERPRINT == fingerprint);
        // ORDERING: as in `add`.
        let entry = found.map_or(0, |entry| entry.swap(0, Ordering::Relaxed));
        // A thread that came by in between has taken it, or put another in its place, which is lost with it.
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
