//! Records in circular memory.

use super::memory::{GRAIN, Memory};
use super::staging::Staging;
use crate::checksum::Crc;
use crate::format::{ENVELOPE, record_size};
use foreshore_sync::pause;

/// Bytes of a cache line, and of the lines that the next short record may lie in.
#[cfg(not(foreshore_loom))]
const LINE: usize = 64;
#[cfg(not(foreshore_loom))]
const NEXT: u64 = 4 * LINE as u64;

/// A window of memory used as a circle: positions only grow, and a copy across the seam is done in two parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circle<'a> {
    memory: &'a Memory,
    base: usize,
    bytes: u64,
}

impl<'a> Circle<'a> {
    /// Creates the window of `bytes`, a power of two, from `base` on.
    #[inline]
    pub(super) fn new(memory: &'a Memory, base: usize, bytes: u64) -> Self {
        debug_assert!(bytes.is_power_of_two() && bytes >= GRAIN as u64, "a circle is a power of two");
        Self { memory, base, bytes }
    }

    /// Writes the payload `parts` and the padding of a record of `size` bytes at `start`, behind the place of its
    /// envelope. Returns the checksum of the payload.
    ///
    /// # Safety
    /// The caller alone accesses `[start, start + size)`, and the parts fit in.
    #[inline(always)]
    pub(super) unsafe fn put_payload<C: Crc>(self, how: C, start: u64, size: usize, parts: &[&[u8]]) -> u32 {
        #[cfg(not(foreshore_loom))]
        if self.until_seam(start, size as u64) == size {
            // SAFETY: as for this function.
            return unsafe { self.memory.put_record(how, self.place(start), size, parts) };
        }
        // SAFETY: as for this function.
        unsafe { self.put_across(start, size, parts) };
        parts.iter().fold(0, |crc, part| how.bytes(crc, part))
    }

    /// Does [`Self::put_payload`] for a record that may cross the seam.
    ///
    /// # Safety
    /// Like [`Self::put_payload`].
    #[cold]
    unsafe fn put_across(self, start: u64, size: usize, parts: &[&[u8]]) {
        // SAFETY: for all of this, the range is the caller's.
        unsafe {
            // The first write of the record touches the envelope's page, too. A page fault belongs here, before a stamp
            // that others would wait for is drawn.
            self.memory.put(self.place(start), 0);
            self.memory.put(self.place(start + size as u64 - GRAIN as u64), 0);
            let mut at = start + ENVELOPE as u64;
            for part in parts {
                self.write(at, part);
                at += part.len() as u64;
                pause::point("wal: copy");
            }
        }
    }

    /// Writes the words of an envelope at `start`.
    ///
    /// # Safety
    /// The caller alone accesses them.
    #[inline(always)]
    pub(super) unsafe fn put_envelope(self, start: u64, words: [u64; 3]) {
        // SAFETY: as for this function.
        unsafe {
            #[cfg(not(foreshore_loom))]
            if self.until_seam(start, ENVELOPE as u64) == ENVELOPE {
                return self.memory.put_words(self.place(start), words);
            }
            for (i, word) in words.into_iter().enumerate() {
                self.memory.put(self.place(start + (i * GRAIN) as u64), word);
            }
        }
    }

    /// Prefetches the cache lines of the next short record, which begins at `start`, to write it. The leader has them:
    /// it has read them. Without this the next locked instruction waits until it gives them up.
    #[inline(always)]
    pub(super) fn prefetch(self, start: u64) {
        #[cfg(not(foreshore_loom))]
        (0..NEXT).step_by(LINE).for_each(|at| self.memory.prefetch(self.place(start + at)));
        #[cfg(foreshore_loom)]
        let _ = start;
    }

    /// Copies whole records of `[from, upto)`, as many as fit, into an extent of `lane` and returns the position behind
    /// the last one.
    ///
    /// # Safety
    /// The records of the range are published to the caller and not overwritten during the call.
    pub(super) unsafe fn drain(self, lane: u16, from: u64, upto: u64, staging: &mut Staging) -> u64 {
        assert!(from <= upto && upto - from <= self.bytes, "cut {upto} outside of the ring at {from}");
        // SAFETY: as for this function.
        let to = unsafe { self.boundary(from, upto, staging.free() as u64) };
        assert!(from <= to && to <= upto, "the ring is copied from {from} to {to}, the cut is at {upto}");
        if to > from {
            let out = staging.extent(lane, from, (to - from) as usize);
            let (first, second) = out.split_at_mut(self.until_seam(from, to - from));
            // SAFETY: as for this function.
            unsafe {
                self.memory.read(self.place(from), first);
                self.memory.read(self.base, second);
            }
        }
        to
    }

    /// Returns the end of the last whole record that ends at or before both `upto` and `from + free`.
    ///
    /// # Safety
    /// As for `drain`.
    unsafe fn boundary(self, from: u64, upto: u64, free: u64) -> u64 {
        if upto - from <= free {
            return upto;
        }
        let mut at = from;
        loop {
            let mut len = [0; 4];
            // SAFETY: a record starts at `at`, and its length lies inside one grain.
            unsafe { self.memory.read(self.place(at), &mut len) };
            let next = at + record_size(u32::from_le_bytes(len) as usize) as u64;
            assert!(next <= upto, "record at {at} crosses the cut {upto}");
            if next - from > free {
                return at;
            }
            at = next;
        }
    }

    /// # Safety
    /// The caller alone accesses `[at, at + bytes.len())`.
    #[inline]
    unsafe fn write(self, at: u64, bytes: &[u8]) {
        let seam = self.until_seam(at, bytes.len() as u64);
        // SAFETY: as for this function.
        unsafe {
            if seam == bytes.len() {
                self.memory.write(self.place(at), bytes);
            } else {
                let (first, second) = bytes.split_at(seam);
                self.memory.write(self.place(at), first);
                self.memory.write(self.base, second);
            }
        }
    }

    #[inline]
    fn place(self, at: u64) -> usize {
        self.base + (at & (self.bytes - 1)) as usize
    }

    #[inline]
    fn until_seam(self, at: u64, len: u64) -> usize {
        len.min(self.bytes - (at & (self.bytes - 1))) as usize
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::super::Checksummed;
    use super::*;
    use crate::checksum::Detected;
    use crate::format::{EXTENT, GROUP_HEADER};
    use crate::record::Record;
    use foreshore_base::{Lsn, crc32c};

    /// Puts a record at `start`, and checks it, its checksum, and the grains around it.
    fn is_whole<C: Crc>(how: C, circle: Circle<'_>, start: u64, parts: &[&[u8]]) {
        let record = Checksummed::new(&Record { tag: 7, flags: 1, parts });
        let words = record.envelope(Detected, Lsn(9));
        let mut expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        expected.extend(parts.concat());
        let what = format!("{:?} bytes from {start}", parts.iter().map(|part| part.len()).collect::<Vec<_>>());
        expected.resize(record.size(), 0);
        let (end, grain) = (start + record.size() as u64, GRAIN as u64);
        let mut staging = Staging::new(8192);
        staging.expect_extents(1);
        let mut around = [[0; GRAIN]; 2];
        // SAFETY: no other thread knows the memory.
        unsafe {
            // What stood there before must not shine through, and what stands around stays.
            (start - grain..end + grain).step_by(GRAIN).for_each(|at| circle.memory.put(circle.place(at), u64::MAX));
            let crc = circle.put_payload(how, start, record.size(), parts);
            assert_eq!(crc, crc32c(&parts.concat()), "{what}");
            circle.put_envelope(start, words);
            assert_eq!(circle.drain(0, start, end, &mut staging), end);
            circle.memory.read(circle.place(start - grain), &mut around[0]);
            circle.memory.read(circle.place(end), &mut around[1]);
        }
        assert_eq!(around, [[0xff; GRAIN]; 2], "written beside {what}");
        assert_eq!(staging.bytes(8192)[GROUP_HEADER + EXTENT..][..expected.len()], expected, "{what}");
    }

    #[test]
    fn a_record_is_the_same_bytes_wherever_the_seam_cuts_it() {
        let (base, bytes) = (64, 8192);
        let memory = Memory::new(base + bytes as usize + 64).unwrap();
        let circle = Circle::new(&memory, base, bytes);
        let payload: Vec<u8> = (0..4096u32).map(|i| (i * 31 + i / 7) as u8 | 1).collect();
        for len in (0..=520).chain((521..=4096).step_by(325)) {
            let (first, second) = payload[..len].split_at(len / 3);
            let parts: [&[u8]; 3] = [first, &[], second];
            // Each seam in the record, in front of it, and none.
            for seam in (0..=record_size(len) + 2 * GRAIN).step_by(GRAIN) {
                let start = 2 * bytes - seam as u64;
                is_whole(Detected, circle, start, &parts);
                #[cfg(target_arch = "x86_64")]
                if let Some(how) = crate::checksum::Instructions::get() {
                    is_whole(how, circle, start, &parts);
                }
            }
        }
        let mut outside = [[0; GRAIN]; 2];
        // SAFETY: no other thread knows the memory.
        unsafe {
            memory.read(base - GRAIN, &mut outside[0]);
            memory.read(base + bytes as usize, &mut outside[1]);
        }
        assert_eq!(outside, [[0; GRAIN]; 2], "written outside of the circle");
    }
}
