//! The ring of the byte-address buffers: positions, whole records, draining.

use super::memory::{GRAIN, Memory};
use super::{Sealed, Staging};
use crate::credit::Credits;
use crate::format::{ENVELOPE, record_size};
use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::io;

/// Plain memory addressed by positions that only grow; a copy that meets the seam is done in two parts.
///
/// The position after a record is its LSN. So stamps are dense in bytes, the order of positions is the order of the log,
/// and "everything up to a position" is a cut.
#[derive(Debug)]
pub struct Ring {
    memory: Memory,
    bytes: u64,
    first: u64,
    /// Everything below has been copied out. Written by the leader only.
    drained: AtomicU64,
}

impl Ring {
    /// A ring of `bytes`, a power of two, whose first record gets an LSN greater than `floor`.
    pub fn new(bytes: usize, floor: Lsn) -> io::Result<Self> {
        assert!(bytes.is_power_of_two() && bytes >= GRAIN, "a ring is a power of two");
        let first = floor.0.next_multiple_of(GRAIN as u64);
        Ok(Self { memory: Memory::new(bytes)?, bytes: bytes as u64, first, drained: AtomicU64::new(first) })
    }

    /// The position of the first record.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The position up to which everything has been copied out.
    pub(super) fn drained(&self) -> u64 {
        // ORDERING: Relaxed, only the leader writes it, and leaders hand over through their lock.
        self.drained.load(Ordering::Relaxed)
    }

    /// Writes the record at `start` and returns its LSN.
    ///
    /// # Safety
    /// The caller alone has drawn `[start, start + record.size())` and holds credit for it.
    pub(super) unsafe fn fill(&self, start: u64, record: &Sealed<'_>) -> Lsn {
        let end = start + record.size() as u64;
        let lsn = Lsn(end);
        let mut at = start;
        let mut put = |bytes: &[u8]| {
            // SAFETY: inside the caller's range. Credit says that the ring's previous contents there were drained: the
            // bytes drawn so far never exceed the credit taken so far, and the taker of each credit happened before
            // the draw of the position that used it.
            unsafe { self.write(at, bytes) };
            at += bytes.len() as u64;
        };
        put(&record.envelope(lsn));
        record.record.parts.iter().for_each(|part| put(part));
        put(&[0; GRAIN][..(end - start) as usize - ENVELOPE - record.payload as usize]);
        assert_eq!(at, end, "a record fills what it drew");
        lsn
    }

    /// Copies whole records of `[drained, upto)` into `staging` and returns the position after the last one.
    ///
    /// # Safety
    /// Every record below `upto` is published to the caller, who alone drains.
    pub(super) unsafe fn drain(&self, upto: u64, credits: &Credits, staging: &mut Staging) -> u64 {
        let from = self.drained();
        assert!(from <= upto && upto - from <= self.bytes, "cut {upto} outside of the ring at {from}");
        // SAFETY: as for this function.
        let to = unsafe { self.boundary(from, upto, staging.room() as u64) };
        if to == from {
            return from;
        }
        let out = staging.extent(0, from, (to - from) as usize);
        let (first, second) = out.split_at_mut(self.until_seam(from, to - from));
        // SAFETY: published, and not overwritten before the credit is given back below.
        unsafe {
            self.memory.read(self.place(from), first);
            self.memory.read(0, second);
        }
        // ORDERING: Relaxed, as in `drained`.
        self.drained.store(to, Ordering::Relaxed);
        credits.give(to - from);
        to
    }

    /// The end of the last whole record that ends at or before both `upto` and `from + room`.
    ///
    /// # Safety
    /// As for `drain`.
    unsafe fn boundary(&self, from: u64, upto: u64, room: u64) -> u64 {
        if upto - from <= room {
            return upto;
        }
        let mut at = from;
        loop {
            let mut len = [0; 4];
            // SAFETY: a record starts at `at`, and its length lies inside one grain.
            unsafe { self.memory.read(self.place(at), &mut len) };
            let next = at + record_size(u32::from_le_bytes(len) as usize) as u64;
            assert!(next <= upto, "record at {at} crosses the cut {upto}");
            if next - from > room {
                assert!(at > from, "a record larger than a group");
                return at;
            }
            at = next;
        }
    }

    /// # Safety
    /// The caller alone accesses `[at, at + bytes.len())`.
    unsafe fn write(&self, at: u64, bytes: &[u8]) {
        let (first, second) = bytes.split_at(self.until_seam(at, bytes.len() as u64));
        // SAFETY: as for this function.
        unsafe {
            self.memory.write(self.place(at), first);
            self.memory.write(0, second);
        }
    }

    fn place(&self, at: u64) -> usize {
        (at & (self.bytes - 1)) as usize
    }

    fn until_seam(&self, at: u64, len: u64) -> usize {
        len.min(self.bytes - (at & (self.bytes - 1))) as usize
    }
}
