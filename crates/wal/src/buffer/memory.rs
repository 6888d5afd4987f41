//! The bytes of a ring, in grains of eight: plain memory, and cells that loom watches.

#[cfg(not(foreshore_loom))]
use crate::checksum::Crc;
#[cfg(not(foreshore_loom))]
use crate::format::ENVELOPE;
#[cfg(not(foreshore_loom))]
use foreshore_sync::pause;
use std::io;

/// Bytes of a grain. Records begin and end on grains.
pub const GRAIN: usize = 8;

#[cfg(not(foreshore_loom))]
#[derive(Debug)]
pub(super) struct Memory(foreshore_sync::ByteArena);

#[cfg(not(foreshore_loom))]
impl Memory {
    /// Allocates `len` zero bytes, which are committed when they are touched.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        foreshore_sync::ByteArena::new(len).map(Self)
    }

    /// # Safety
    /// No other thread accesses the bytes during the call.
    #[inline]
    pub(super) unsafe fn write(&self, at: usize, bytes: &[u8]) {
        let target = self.0.as_ptr(at..at + bytes.len());
        // SAFETY: the arena bounds the range, `bytes` cannot overlap it because no thread holds a reference into the
        // arena, and the caller excludes other accesses.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) }
    }

    /// Writes the bytes of `word` to the grain at `at`.
    ///
    /// # Safety
    /// No other thread accesses the grain during the call.
    #[inline]
    pub(super) unsafe fn put(&self, at: usize, word: u64) {
        debug_assert!(at.is_multiple_of(GRAIN), "a grain begins at a multiple of eight");
        let target = self.0.as_ptr(at..at + GRAIN).cast::<u64>();
        // SAFETY: the arena bounds the grain and begins at a page, so the target is aligned; the caller excludes
        // others.
        unsafe { target.write(word.to_le()) }
    }

    /// Does [`Self::put`] for `words`, one after the other.
    ///
    /// # Safety
    /// Like [`Self::put`], for all their grains.
    #[inline]
    pub(super) unsafe fn put_words(&self, at: usize, words: [u64; 3]) {
        debug_assert!(at.is_multiple_of(GRAIN), "a grain begins at a multiple of eight");
        let target = self.0.as_ptr(at..at + 3 * GRAIN).cast::<[u64; 3]>();
        // SAFETY: the arena bounds the grains and begins at a page, so the target is aligned; the caller excludes
        // others.
        unsafe { target.write(words.map(u64::to_le)) }
    }

    /// Writes the payload `parts` of a record of `len` bytes in one piece, and zeros behind them. Skips its envelope.
    /// Returns the checksum of the parts.
    ///
    /// # Safety
    /// No other thread accesses the `len` bytes during the call, and the parts fit between envelope and end.
    #[inline(always)]
    pub(super) unsafe fn put_record<C: Crc>(&self, how: C, at: usize, len: usize, parts: &[&[u8]]) -> u32 {
        debug_assert!(at.is_multiple_of(GRAIN) && len.is_multiple_of(GRAIN), "a record begins and ends on grains");
        debug_assert!(ENVELOPE + parts.iter().map(|part| part.len()).sum::<usize>() <= len, "the parts fit");
        let start = self.0.as_ptr(at..at + len);
        // SAFETY: the arena bounds the record and begins at a page, so grains are aligned; the caller excludes others
        // and has the parts fit; they cannot overlap the record because no thread holds a reference into the arena.
        unsafe {
            start.cast::<u64>().write(0);
            start.add(len - GRAIN).cast::<u64>().write(0);
            let (mut target, mut crc) = (start.add(ENVELOPE), 0);
            for part in parts {
                crc = how.copy(crc, part, target);
                target = target.add(part.len());
                pause::point("wal: copy");
            }
            crc
        }
    }

    /// Prefetches the cache line of byte `at` to write it.
    #[inline]
    pub(super) fn prefetch(&self, at: usize) {
        self.0.prefetch_to_write(at);
    }

    /// # Safety
    /// No other thread writes the bytes during the call.
    #[inline]
    pub(super) unsafe fn read(&self, at: usize, out: &mut [u8]) {
        let source = self.0.as_ptr(at..at + out.len());
        // SAFETY: the arena bounds the range and is initialised, and the caller excludes writers.
        unsafe { std::ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) }
    }
}

#[cfg(foreshore_loom)]
#[derive(Debug)]
pub(super) struct Memory(Box<[foreshore_sync::primitive::UnsafeCell<[u8; GRAIN]>]>);

#[cfg(foreshore_loom)]
// SAFETY: the callers of `read` and `write` exclude conflicting accesses; loom checks that they do.
unsafe impl Sync for Memory {}

#[cfg(foreshore_loom)]
impl Memory {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        Ok(Self((0..len / GRAIN).map(|_| foreshore_sync::primitive::UnsafeCell::new([0; GRAIN])).collect()))
    }

    /// # Safety
    /// No other thread accesses the bytes during the call.
    pub(super) unsafe fn write(&self, at: usize, bytes: &[u8]) {
        for (i, &byte) in bytes.iter().enumerate() {
            let place = at + i;
            // SAFETY: the caller excludes other accesses.
            self.0[place / GRAIN].with_mut(|cell| unsafe { (*cell)[place % GRAIN] = byte });
        }
    }

    /// # Safety
    /// No other thread accesses the grain during the call.
    pub(super) unsafe fn put(&self, at: usize, word: u64) {
        // SAFETY: the caller excludes other accesses.
        self.0[at / GRAIN].with_mut(|cell| unsafe { *cell = word.to_le_bytes() });
    }

    /// # Safety
    /// No other thread writes the bytes during the call.
    pub(super) unsafe fn read(&self, at: usize, out: &mut [u8]) {
        for (i, byte) in out.iter_mut().enumerate() {
            let place = at + i;
            // SAFETY: the caller excludes writers.
            *byte = self.0[place / GRAIN].with(|cell| unsafe { (*cell)[place % GRAIN] });
        }
    }
}
