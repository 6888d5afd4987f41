//! The bytes of a page as relaxed atomic words.
//!
//! The holder of the exclusive latch writes a frame while optimistic readers may read it. Both sides use relaxed
//! accesses of words, so there is no data race. The latch version tells a reader whether its reads are consistent.
//! Holders of a latch may also read plainly, because no thread stores then.

use foreshore_base::limits::PAGE_SIZE;
use foreshore_sync::Word;
use foreshore_sync::primitive::atomic::Ordering;
use std::mem::MaybeUninit;
use std::ops::Range;

const WORD_BYTES: usize = 8;
/// Words in a page.
pub(crate) const PAGE_WORDS: usize = PAGE_SIZE / WORD_BYTES;
/// The words of a page.
pub(crate) type PageWords = [Word; PAGE_WORDS];
/// Bytes moved at a time when the ranges of a move overlap.
const CHUNK: usize = 256;

/// Lets shuttle switch threads. Words are std's atomics in every build, so shuttle does not see their accesses.
#[inline]
fn step() {
    #[cfg(foreshore_shuttle)]
    {
        use foreshore_sync::primitive::atomic::AtomicBool;
        // ORDERING: none, the access only makes the step visible.
        AtomicBool::new(false).load(Ordering::Relaxed);
    }
}

/// Copies the bytes from `offset` on to `out`. The copy may be torn unless a latch is held or the version validates.
pub(crate) fn load(words: &PageWords, offset: usize, out: &mut [u8]) {
    let out: *mut [u8] = out;
    // SAFETY: bytes have the layout of those that may be absent, and the copy makes none absent.
    copy(words, offset, unsafe { &mut *(out as *mut [MaybeUninit<u8>]) });
}

/// Appends the bytes of `range` to `out`. The copy may be torn, as in [`load`].
pub(crate) fn append(words: &PageWords, range: Range<usize>, out: &mut Vec<u8>) {
    let len = range.len();
    out.reserve(len);
    copy(words, range.start, &mut out.spare_capacity_mut()[..len]);
    // SAFETY: the copy has stored `len` bytes behind the end.
    unsafe { out.set_len(out.len() + len) };
}

/// Stores the bytes from `offset` on in all of `out`.
#[inline(always)]
fn copy(words: &PageWords, offset: usize, out: &mut [MaybeUninit<u8>]) {
    let is_inside = out.len() <= PAGE_SIZE && offset <= PAGE_SIZE - out.len();
    assert!(is_inside, "read of {} bytes at {offset}", out.len());
    step();
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    let mut at = offset;
    for block in blocks {
        // SAFETY: the block lies in the page, as asserted, and has space for as many bytes.
        unsafe { block.as_mut_ptr().cast::<[u8; BLOCK]>().write(unaligned::block(words, at)) };
        at += BLOCK;
    }
    let (chunks, tail) = rest.as_chunks_mut::<WORD_BYTES>();
    for chunk in chunks {
        // SAFETY: as above.
        unsafe { chunk.as_mut_ptr().cast::<[u8; WORD_BYTES]>().write(unaligned::word(words, at).to_le_bytes()) };
        at += WORD_BYTES;
    }
    if !tail.is_empty() {
        // The last word of the page, if the eight bytes would leave it.
        let from = at.min(PAGE_SIZE - WORD_BYTES);
        // SAFETY: eight bytes from there lie in the page.
        let word = unsafe { unaligned::word(words, from) } >> (8 * (at - from));
        tail.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| _ = to.write(from));
    }
}

/// Returns the eight bytes from `offset` on, little-endian; zero if they are not all in the page. The value may be
/// torn, as in [`load`].
#[inline]
pub(crate) fn load_u64(words: &PageWords, offset: usize) -> u64 {
    step();
    // SAFETY: they lie in the page.
    if offset <= PAGE_SIZE - WORD_BYTES { unsafe { unaligned::word(words, offset) } } else { 0 }
}

/// The bytes that a copy reads at a time.
const BLOCK: usize = 16;

/// Reads and writes at any offset of a page.
///
/// Rust has atomic accesses of aligned words only, and a value at another offset lies in two of them. The processor
/// reads or writes it by one instruction, which stands for a relaxed access of each byte. The value may be torn, as by
/// two loads: no caller trusts it before it has validated the latch version.
#[cfg(all(target_arch = "x86_64", not(any(miri, foreshore_loom, foreshore_shuttle))))]
mod unaligned {
    use super::{BLOCK, Word};
    use std::arch::asm;
    use std::arch::x86_64::__m128i;

    /// Returns the eight bytes from `offset` on, little-endian.
    ///
    /// # Safety
    /// They lie in `words`.
    #[inline(always)]
    pub(super) unsafe fn word(words: &[Word], offset: usize) -> u64 {
        let value;
        // ORDERING: relaxed, as the loads of all architectures; see the head of the file.
        // SAFETY: the caller says that the bytes are there. The instruction only reads.
        unsafe {
            asm!("mov {}, [{}]", out(reg) value, in(reg) words.as_ptr().cast::<u8>().add(offset),
                options(readonly, nostack, preserves_flags));
        }
        value
    }

    /// Stores the eight bytes from `offset` on.
    ///
    /// # Safety
    /// They lie in `words`.
    #[inline(always)]
    pub(super) unsafe fn put_word(words: &[Word], offset: usize, bytes: [u8; 8]) {
        // ORDERING: relaxed, as the stores of all architectures; see the head of the file.
        // SAFETY: the caller says that the bytes are there. Words may be changed behind a shared reference.
        unsafe {
            asm!("mov [{}], {}", in(reg) words.as_ptr().cast::<u8>().add(offset), in(reg) u64::from_le_bytes(bytes),
                options(nostack, preserves_flags));
        }
    }

    /// Returns the sixteen bytes from `offset` on.
    ///
    /// # Safety
    /// They lie in `words`.
    #[inline(always)]
    pub(super) unsafe fn block(words: &[Word], offset: usize) -> [u8; BLOCK] {
        let value: __m128i;
        // ORDERING: as in `word`.
        // SAFETY: as in `word`. A register of sixteen bytes is an array of them.
        unsafe {
            asm!("movdqu {}, [{}]", out(xmm_reg) value, in(reg) words.as_ptr().cast::<u8>().add(offset),
                options(readonly, nostack, preserves_flags));
            std::mem::transmute(value)
        }
    }
}

/// Reads and writes at any offset of a page, by aligned words.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, foreshore_loom, foreshore_shuttle)))))]
mod unaligned {
    use super::{BLOCK, PageWords, WORD_BYTES, Word};
    use foreshore_sync::primitive::atomic::Ordering;

    pub(super) unsafe fn word(words: &[Word], offset: usize) -> u64 {
        // ORDERING: relaxed; the latch version orders this access, see the head of the file.
        let load = |index: usize| u64::from_le(words[index].load(Ordering::Relaxed));
        let (index, skip) = (offset / WORD_BYTES, offset % WORD_BYTES * 8);
        if skip == 0 { load(index) } else { load(index) >> skip | load(index + 1) << (u64::BITS as usize - skip) }
    }

    pub(super) unsafe fn put_word(words: &PageWords, offset: usize, bytes: [u8; 8]) {
        super::patch_at(words, offset, u64::MAX, u64::from_le_bytes(bytes));
    }

    pub(super) unsafe fn block(words: &[Word], offset: usize) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        for (chunk, at) in block.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip([offset, offset + WORD_BYTES]) {
            // SAFETY: of the caller.
            *chunk = unsafe { word(words, at) }.to_le_bytes();
        }
        block
    }
}

/// Compares the bytes of `range` with `bytes`, as slices compare. The result may be torn, as in [`load`].
pub(crate) fn compare(words: &PageWords, range: Range<usize>, bytes: &[u8]) -> std::cmp::Ordering {
    let (chunks, tail) = bytes[..bytes.len().min(range.len())].as_chunks::<WORD_BYTES>();
    let mut at = range.start;
    for chunk in chunks {
        let order = load_u64(words, at).swap_bytes().cmp(&u64::from_be_bytes(*chunk));
        if order.is_ne() {
            return order;
        }
        at += WORD_BYTES;
    }
    if tail.is_empty() {
        return range.len().cmp(&bytes.len());
    }
    let mut mine = [0; WORD_BYTES];
    load(words, at, &mut mine[..tail.len()]);
    mine[..tail.len()].cmp(tail).then(range.len().cmp(&bytes.len()))
}

/// Whether `len` bytes at `offset` lie in a page. The sum of the two may wrap.
const fn fits(offset: usize, len: usize) -> bool {
    len <= PAGE_SIZE && offset <= PAGE_SIZE - len
}

/// Writes `bytes` at `offset`. The caller holds the exclusive latch of the page.
#[inline]
pub(crate) fn store(words: &PageWords, offset: usize, bytes: &[u8]) {
    assert!(fits(offset, bytes.len()), "write of {} bytes at {offset}", bytes.len());
    step();
    let (chunks, tail) = bytes.as_chunks::<WORD_BYTES>();
    let mut at = offset;
    for chunk in chunks {
        // SAFETY: the chunk lies in the page, as asserted.
        unsafe { unaligned::put_word(words, at, *chunk) };
        at += WORD_BYTES;
    }
    if tail.is_empty() {
        return;
    }
    if let Some(last) = bytes.last_chunk() {
        // SAFETY: as above. It overlaps the chunk before, and loads no word that was just stored in part.
        unsafe { unaligned::put_word(words, offset + bytes.len() - WORD_BYTES, *last) };
    } else {
        let bits = tail.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        patch_at(words, at, !(u64::MAX << (8 * tail.len())), bits);
    }
}

/// Changes the bytes of `mask` of the eight from `offset` on. Whole words are stored: a load of one right after then
/// gets it from the processor's store buffer.
#[inline]
fn patch_at(words: &PageWords, offset: usize, mask: u64, bits: u64) {
    let (index, skip) = (offset / WORD_BYTES, offset % WORD_BYTES * 8);
    patch(&words[index], mask << skip, bits << skip);
    // Shifted twice, for one shift by all bits is none.
    let above = |bits: u64| bits >> 1 >> (u64::BITS as usize - 1 - skip);
    if above(mask) != 0 {
        patch(&words[index + 1], above(mask), above(bits));
    }
}

/// Changes the bits `mask` of a word. The caller is the only writer, so load and store need not be one.
#[inline]
fn patch(word: &Word, mask: u64, bits: u64) {
    // ORDERING: relaxed, only the holder of the exclusive latch stores; readers validate the latch version.
    let before = u64::from_le(word.load(Ordering::Relaxed));
    // ORDERING: as above.
    word.store((before & !mask | bits).to_le(), Ordering::Relaxed);
}

/// Moves the bytes of `src` to `dst`, overlapping or not. The caller holds the exclusive latch of the page.
pub(crate) fn shift(words: &PageWords, src: Range<usize>, dst: usize) {
    assert!(src.start <= src.end && src.end <= PAGE_SIZE, "move of {src:?}");
    assert!(fits(dst, src.len()), "move of {src:?} to {dst}");
    let mut chunk = [0; CHUNK];
    let mut done = 0;
    while done < src.len() {
        let len = CHUNK.min(src.len() - done);
        // Towards the end of the page the last chunk goes first, so that no source byte is overwritten unread.
        let at = if dst > src.start { src.len() - done - len } else { done };
        load(words, src.start + at, &mut chunk[..len]);
        store(words, dst + at, &chunk[..len]);
        done += len;
    }
}

/// Sets every byte of `range`. The caller holds the exclusive latch of the page.
pub(crate) fn fill(words: &PageWords, range: Range<usize>, byte: u8) {
    assert!(range.start <= range.end && range.end <= PAGE_SIZE, "fill of {range:?}");
    let chunk = [byte; CHUNK];
    let mut at = range.start;
    while at < range.end {
        let len = CHUNK.min(range.end - at);
        store(words, at, &chunk[..len]);
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> (Box<PageWords>, Vec<u8>) {
        let bytes: Vec<u8> = (0..PAGE_SIZE).map(|i| (i * 7 + i / 256) as u8).collect();
        let words = Box::new([const { Word::new(0) }; PAGE_WORDS]);
        store(&words, 0, &bytes);
        (words, bytes)
    }

    fn all(words: &PageWords) -> Vec<u8> {
        let mut out = vec![0; PAGE_SIZE];
        load(words, 0, &mut out);
        out
    }

    /// Offsets and lengths around word and chunk borders, where off-by-one errors live.
    const EDGES: [usize; 12] = [0, 1, 7, 8, 9, 15, 16, 255, 256, 257, 1000, 2049];

    #[test]
    fn loads_and_stores_agree_with_slices_at_every_alignment() {
        for offset in EDGES {
            for len in EDGES {
                let (words, mut bytes) = page();
                let mut out = vec![0; len];
                load(&words, offset, &mut out);
                assert_eq!(out, bytes[offset..offset + len], "load {offset}+{len}");
                let mut appended = vec![7];
                append(&words, offset..offset + len, &mut appended);
                assert_eq!((appended[0], &appended[1..]), (7, &bytes[offset..offset + len]), "append {offset}+{len}");
                let new: Vec<u8> = (0..len).map(|i| !(i as u8)).collect();
                store(&words, offset, &new);
                bytes[offset..offset + len].copy_from_slice(&new);
                assert_eq!(all(&words), bytes, "store {offset}+{len}");
            }
        }
    }

    #[test]
    fn words_at_every_alignment_are_those_of_the_slice_and_zero_outside() {
        let (words, bytes) = page();
        for offset in (0..40).chain(PAGE_SIZE - 20..=PAGE_SIZE - 8) {
            let expected = u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
            assert_eq!(load_u64(&words, offset), expected, "at {offset}");
        }
        for offset in [PAGE_SIZE - 7, PAGE_SIZE, usize::MAX, PAGE_SIZE + 1, 2 * PAGE_SIZE] {
            assert_eq!(load_u64(&words, offset), 0, "at {offset}");
        }
    }

    #[test]
    fn comparisons_agree_with_slices_at_every_alignment_and_length() {
        let (words, bytes) = page();
        for offset in [0, 1, 5, 8, 4093, PAGE_SIZE - 20] {
            for len in 0..20 {
                let range = offset..offset + len;
                let mine = &bytes[range.clone()];
                for other_len in 0..20 {
                    let same = &bytes[offset..offset + other_len];
                    assert_eq!(compare(&words, range.clone(), same), mine.cmp(same), "{range:?} {other_len}");
                    for at in 0..other_len {
                        let mut other = same.to_vec();
                        other[at] = other[at].wrapping_add(128);
                        assert_eq!(compare(&words, range.clone(), &other), mine.cmp(&other[..]), "{range:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn moves_and_fills_agree_with_slices_when_ranges_overlap() {
        for src in EDGES {
            for dst in EDGES {
                for len in EDGES {
                    let (words, mut bytes) = page();
                    shift(&words, src..src + len, dst);
                    bytes.copy_within(src..src + len, dst);
                    assert!(all(&words) == bytes, "move {src}+{len} to {dst}");
                }
            }
            let (words, mut bytes) = page();
            fill(&words, src..src + 700, 0xa5);
            bytes[src..src + 700].fill(0xa5);
            assert!(all(&words) == bytes, "fill {src}");
        }
    }

    #[test]
    #[should_panic(expected = "write of 8 bytes at 18446744073709551612")]
    fn a_store_at_an_offset_that_wraps_panics() {
        store(&page().0, usize::MAX - 3, &[0; 8]);
    }

    #[test]
    fn stores_that_end_with_the_page_write_its_last_byte() {
        for len in 1..40 {
            let (words, mut bytes) = page();
            let new: Vec<u8> = (0..len).map(|i| !(i as u8)).collect();
            store(&words, PAGE_SIZE - len, &new);
            bytes[PAGE_SIZE - len..].copy_from_slice(&new);
            assert_eq!(all(&words), bytes, "{len} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "write of 8 bytes at 8185")]
    fn a_store_over_the_end_of_the_page_panics() {
        store(&page().0, PAGE_SIZE - 7, &[0; 8]);
    }
}
