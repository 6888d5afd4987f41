//! Lazily committed memory: arrays of atomics and byte arenas that cost nothing until they are touched.

use crate::primitive::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
use rustix::mm::{MapFlags, ProtFlags};
use std::ops::{Index, Range};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{fmt, io};

/// A word of a [`ByteArena`]: std's atomic in every build, because a model checker's cannot be laid over memory.
#[cfg(not(foreshore_sim))]
pub type Word = std::sync::atomic::AtomicU64;

/// A word of a [`ByteArena`]: each access is a scheduling point, so that a copy of a page is interrupted.
#[cfg(foreshore_sim)]
pub type Word = crate::primitive::atomic::AtomicU64;

/// A private anonymous mapping: page-aligned, zero until written, committed page by page on first touch.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory owned by this value; the types below control the accesses to it.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared `Mapping` offers nothing but its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes, rounded up to whole pages; one page for zero.
    fn new(len: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = len.max(1).checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a null hint maps fresh addresses and touches no existing memory.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are those of the mapping, and no borrow of it outlives this value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "unmapping a mapping of our own: {unmapped:?}");
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Atomic integers for which all-zero memory is the value zero.
pub trait ZeroAtomic: sealed::Sealed + Send + Sync + 'static {
    /// The value zero.
    fn zero() -> Self;
}

macro_rules! zero_atomic {
    ($($atomic:ty),+) => {$(
        impl sealed::Sealed for $atomic {}
        impl ZeroAtomic for $atomic {
            fn zero() -> Self {
                Self::new(0)
            }
        }
    )+};
}

zero_atomic!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

/// A zeroed array of atomics whose length is fixed and whose memory is committed on first touch. Page-aligned.
///
/// A read of an untouched element commits nothing on Linux: it maps the shared zero page. Under a model checker it is
/// an ordinary allocation of the checker's atomics.
pub struct LazyArray<T: ZeroAtomic> {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    mapping: Mapping,
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    len: usize,
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    element: std::marker::PhantomData<T>,
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    elements: Box<[T]>,
}

impl<T: ZeroAtomic> LazyArray<T> {
    /// `len` elements, all zero.
    ///
    /// # Errors
    /// When the address range cannot be reserved.
    pub fn new(len: usize) -> io::Result<Self> {
        #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
        {
            let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Self { mapping: Mapping::new(bytes)?, len, element: std::marker::PhantomData })
        }
        #[cfg(any(foreshore_loom, foreshore_shuttle))]
        Ok(Self { elements: (0..len).map(|_| T::zero()).collect() })
    }

    /// All elements.
    pub fn as_slice(&self) -> &[T] {
        #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
        {
            // SAFETY: the mapping holds `len` elements, is aligned to a page and lives as long as `self`; zero bytes
            // and any later value are valid for the atomics that implement `ZeroAtomic`, a sealed trait.
            unsafe { std::slice::from_raw_parts(self.mapping.base.as_ptr().cast::<T>(), self.len) }
        }
        #[cfg(any(foreshore_loom, foreshore_shuttle))]
        &self.elements
    }

    /// Returns element `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.as_slice().get(index)
    }

    /// Returns the number of elements.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks a fixed array")]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }
}

impl<T: ZeroAtomic> Index<usize> for LazyArray<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.as_slice()[index]
    }
}

impl<T: ZeroAtomic> fmt::Debug for LazyArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyArray").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// An array of atomics that is mapped a chunk at a time, so that its maximum length costs no address space in advance.
/// Chunks are added and never removed. An element of a chunk is found by two loads.
///
/// `CHUNK`, the number of elements in a chunk, is a power of two. It is a constant because `get` divides by it.
pub struct ChunkedArray<T: ZeroAtomic, const CHUNK: usize> {
    /// First elements of the chunks; null while a chunk is not mapped.
    starts: Box<[AtomicPtr<T>]>,
    chunks: Box<[OnceLock<LazyArray<T>>]>,
}

impl<T: ZeroAtomic, const CHUNK: usize> ChunkedArray<T, CHUNK> {
    /// Up to `len` elements, all zero, none of which is mapped yet.
    pub fn new(len: usize) -> Self {
        const { assert!(CHUNK.is_power_of_two(), "the length of a chunk is a power of two") };
        let chunks = len.div_ceil(CHUNK);
        Self {
            starts: (0..chunks).map(|_| AtomicPtr::default()).collect(),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns element `index`, if its chunk is mapped.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        // ORDERING: Acquire, pairs with the Release of `map`, so that the elements are seen as they were made.
        let start = self.starts.get(index / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: `map` stores pointers to the first of `CHUNK` elements that live as long as `self` and never move.
        (!start.is_null()).then(|| unsafe { &*start.add(index % CHUNK) })
    }

    /// Maps the chunk of element `index`, if it is not mapped yet. Returns false if the array ends before it.
    ///
    /// # Errors
    /// When the address range cannot be reserved.
    pub fn map(&self, index: usize) -> io::Result<bool> {
        let number = index / CHUNK;
        let Some(chunk) = self.chunks.get(number) else { return Ok(false) };
        if chunk.get().is_none() {
            // Another thread may be first; then its chunk is used.
            let _ = chunk.set(LazyArray::new(CHUNK)?);
        }
        // Checked first: callers map before each entry, and every reader needs the cache lines of the pointers.
        if self.get(index).is_none() {
            let elements = chunk.get().expect("set above").as_slice();
            // ORDERING: Release, pairs with `get`. Each caller stores the same pointer.
            self.starts[number].store(elements.as_ptr().cast_mut(), Ordering::Release);
        }
        Ok(true)
    }

    /// Returns the bytes of the mapped chunks. Untouched ones are not committed.
    pub fn mapped_bytes(&self) -> u64 {
        let mapped = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        (mapped * CHUNK * size_of::<T>()) as u64
    }
}

impl<T: ZeroAtomic, const CHUNK: usize> fmt::Debug for ChunkedArray<T, CHUNK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkedArray").field("mapped_bytes", &self.mapped_bytes()).finish_non_exhaustive()
    }
}

/// Out of line, so that callers need not spill the range.
#[cold]
#[inline(never)]
fn outside(start: usize, end: usize, len: usize) -> ! {
    panic!("{start}..{end} of {len} bytes")
}

/// A page-aligned region of memory, zero at first and committed on first touch, accessed through windows.
///
/// The windows of words are atomic and may overlap in space and time. Those of bytes are plain memory: their callers
/// exclude writers by latches and pins that this type does not know.
#[derive(Debug)]
pub struct ByteArena {
    mapping: Mapping,
    len: usize,
}

impl ByteArena {
    /// A region of `len` bytes.
    ///
    /// # Errors
    /// When the address range cannot be reserved.
    pub fn new(len: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(len)?, len })
    }

    /// Makes a region in large pages, if the system has them. For memory that is used from its start and read at
    /// random, where each access to a small page may first need an address translation.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_large_pages(len: usize) -> io::Result<Self> {
        let arena = Self::new(len)?;
        // Without large pages it is as correct, and slower.
        #[cfg(target_os = "linux")]
        // SAFETY: the mapping is this value's own, and the advice changes no byte of it.
        let _ = unsafe { madvise(arena.mapping.base.as_ptr().cast(), arena.mapping.len, Advice::LinuxHugepage) };
        Ok(arena)
    }

    /// Commits the memory of a range, so that its first use does not wait for that. Contents stay as they are.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn commit(&self, range: Range<usize>) {
        // A system that cannot, or has no memory left, commits on first touch.
        #[cfg(target_os = "linux")]
        // SAFETY: the range is inside the mapping, which is this value's own, and the advice changes no byte of it.
        let _ = unsafe { madvise(self.as_ptr(range.clone()).cast(), range.len(), Advice::LinuxPopulateWrite) };
        #[cfg(not(target_os = "linux"))]
        let _ = self.as_ptr(range);
    }

    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks a fixed region")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of `range`'s first byte, valid for the length of the range and the life of the arena.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    #[inline]
    pub fn as_ptr(&self, range: Range<usize>) -> *mut u8 {
        if range.start > range.end || range.end > self.len {
            outside(range.start, range.end, self.len);
        }
        // SAFETY: the start is at most `len`, which is inside the mapping.
        unsafe { self.mapping.base.as_ptr().add(range.start) }
    }

    /// Returns `len_words` atomic words from byte `offset` on.
    ///
    /// # Panics
    /// When `offset` is not a multiple of 8 or the window is not inside the arena.
    #[inline]
    pub fn words(&self, offset: usize, len_words: usize) -> &[Word] {
        assert!(offset.is_multiple_of(align_of::<Word>()), "offset {offset} is not aligned");
        let end = len_words.checked_mul(size_of::<Word>()).and_then(|len| len.checked_add(offset));
        let start = self.as_ptr(offset..end.expect("a window inside the arena"));
        // SAFETY: `as_ptr` checked the bounds, the base is page-aligned and the offset a multiple of 8, and any bytes
        // are a valid atomic word. Plain accesses that would race with it are excluded by the contracts of the byte
        // windows.
        unsafe { std::slice::from_raw_parts(start.cast::<Word>(), len_words) }
    }

    /// [`ByteArena::words`] for a caller that knows that the window is inside the arena and aligned.
    ///
    /// # Safety
    /// `offset` is a multiple of 8, and `offset + 8 * len_words` at most the length of the arena.
    #[inline]
    pub unsafe fn words_unchecked(&self, offset: usize, len_words: usize) -> &[Word] {
        debug_assert!(offset.is_multiple_of(align_of::<Word>()) && offset + len_words * size_of::<Word>() <= self.len);
        // SAFETY: the caller guarantees what `words` checks; see there for the rest.
        unsafe { std::slice::from_raw_parts(self.mapping.base.as_ptr().add(offset).cast::<Word>(), len_words) }
    }

    /// Prefetches the cache line of byte `offset`. It does nothing outside the arena, or if the processor has no
    /// prefetch.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if offset < self.len {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the address is inside the mapping, and nothing is read that the program sees.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.mapping.base.as_ptr().add(offset).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Prefetches the cache line of byte `offset` to write it: another processor that has it gives it up. Otherwise as
    /// [`prefetch`](Self::prefetch).
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if offset < self.len {
            // SAFETY: the address is inside the mapping, and the instruction changes nothing that the program sees. A
            // processor without it does nothing.
            unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) self.mapping.base.as_ptr().add(offset),
                    options(nostack, preserves_flags, readonly));
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = offset;
    }

    /// Returns the bytes of `range` as plain memory.
    ///
    /// # Safety
    /// During the life of the slice no thread writes to the range, neither through [`ByteArena::words`] nor through a
    /// pointer.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    #[inline]
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let len = range.len();
        // SAFETY: `as_ptr` checks the bounds; the memory is initialised (zero at first); the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.as_ptr(range), len) }
    }

    /// Gives the memory of the whole pages among `len_words` words from byte `offset` on back to the system. They read
    /// as zero afterwards, as if zeros had been stored, each word at its own time. Systems other than Linux keep the
    /// memory, and the zeros are stored.
    ///
    /// # Errors
    /// Those of `madvise`. Some words may be zero then.
    ///
    /// # Panics
    /// As [`ByteArena::words`].
    pub fn release_words(&self, offset: usize, len_words: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let end = offset + size_of_val(self.words(offset, len_words));
        let (start, end) = (offset.next_multiple_of(page), end / page * page);
        if start < end {
            #[cfg(target_os = "linux")]
            // SAFETY: whole pages inside the mapping. Readers of words see atomic stores of zeros, which the contract
            // of `bytes` counts as writes through `words`.
            unsafe {
                madvise(self.as_ptr(start..end).cast(), end - start, Advice::LinuxDontNeed)?
            };
            #[cfg(not(target_os = "linux"))]
            for word in self.words(start, (end - start) / size_of::<Word>()) {
                // ORDERING: Relaxed, the order is that of the advice: none.
                word.store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_array_starts_at_zero_and_keeps_what_is_stored() {
        let array = LazyArray::<AtomicU16>::new(10_000).expect("some memory");
        assert_eq!(array.len(), 10_000);
        assert_eq!(array.as_slice().as_ptr() as usize % rustix::param::page_size(), 0);
        array[9_999].store(7, Ordering::Relaxed);
        assert_eq!(array[9_999].load(Ordering::Relaxed), 7);
        assert_eq!(array.as_slice().iter().filter(|element| element.load(Ordering::Relaxed) == 0).count(), 9_999);
        assert!(array.get(10_000).is_none(), "the rest of the last page is out of reach");
        assert_eq!(LazyArray::<AtomicU8>::new(0).expect("some memory").len(), 0);
    }

    #[test]
    fn a_chunked_array_maps_a_chunk_when_it_is_asked_to() {
        let array = ChunkedArray::<AtomicU32, { 1 << 10 }>::new(1 << 31);
        assert!(array.get(0).is_none() && array.mapped_bytes() == 0);
        assert!(array.map(1023).expect("some memory") && array.map(1 << 30).expect("some memory"));
        array.get(1023).expect("mapped").store(7, Ordering::Relaxed);
        // A second call changes nothing.
        assert!(array.map(0).expect("mapped"));
        let load = |index| array.get(index).map(|element| element.load(Ordering::Relaxed));
        assert_eq!([load(0), load(1023), load(1024), load(1 << 30)], [Some(0), Some(7), None, Some(0)]);
        assert_eq!(array.mapped_bytes(), 2 * 4096);
        assert!(!array.map(1 << 31).expect("no chunk is asked for") && array.get(1 << 31).is_none());
    }

    #[test]
    fn a_large_array_commits_only_what_is_touched() {
        // 512 GiB of addresses: more than any machine that runs tests can commit.
        let array = LazyArray::<AtomicU64>::new(1 << 36).expect("a large address space");
        array[(1 << 36) - 1].store(1, Ordering::Relaxed);
        assert_eq!(array[1 << 35].load(Ordering::Relaxed), 0);
        assert!(LazyArray::<AtomicU64>::new(usize::MAX / 8).is_err());
        assert!(LazyArray::<AtomicU64>::new(usize::MAX).is_err());
    }

    #[test]
    fn words_and_bytes_show_the_same_memory() {
        let arena = ByteArena::new(8192 + 8).expect("some memory");
        assert_eq!(arena.len(), 8200);
        arena.words(8192, 1)[0].store(u64::from_ne_bytes(*b"foreshor"), Ordering::Relaxed);
        // SAFETY: one thread, and no other window of the range is in use.
        assert_eq!(unsafe { arena.bytes(8192..8200) }, b"foreshor");
        // SAFETY: as above, and the pointer is good for eight bytes.
        unsafe { arena.as_ptr(0..8).cast::<[u8; 8]>().write(*b"shorelin") };
        assert_eq!(arena.words(0, 1)[0].load(Ordering::Relaxed).to_ne_bytes(), *b"shorelin");
        assert!(arena.words(8200, 0).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn committed_memory_is_there_before_its_first_use() {
        use std::os::unix::fs::FileExt;
        // One bit of eight bytes says whether a page is in memory: `pagemap` of proc(5).
        let page = rustix::param::page_size();
        let arena = ByteArena::new(64 * page).expect("some memory");
        let pagemap = std::fs::File::open("/proc/self/pagemap").expect("a file of proc(5)");
        let present = || {
            let mut entries = [0; 64 * 8];
            let at = arena.as_ptr(0..1) as u64 / page as u64 * 8;
            pagemap.read_exact_at(&mut entries, at).expect("entries of a mapping of our own");
            (0..64).filter(|no| entries[no * 8 + 7] & 0x80 != 0).count()
        };
        assert_eq!(present(), 0);
        arena.commit(8 * page..24 * page);
        assert_eq!(present(), 16);
        assert_eq!(arena.words(8 * page, 1)[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn released_words_read_as_zero_and_can_be_written_again() {
        let page = rustix::param::page_size();
        let arena = ByteArena::new(3 * page).expect("some memory");
        let words = arena.words(0, 3 * page / 8);
        words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
        // Pages that are released in part are kept.
        arena.release_words(page - 8, page / 8 + 2).expect("pages of our own");
        let sum = || words.iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>();
        assert_eq!(sum(), 2 * page as u64 / 8);
        words[page / 8].store(5, Ordering::Relaxed);
        assert_eq!(sum(), 2 * page as u64 / 8 + 5);
    }

    #[test]
    #[should_panic(expected = "of 4096 bytes")]
    fn a_window_ends_inside_the_arena() {
        ByteArena::new(4096).expect("some memory").words(4088, 2);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn a_window_of_words_is_aligned() {
        ByteArena::new(4096).expect("some memory").words(4, 1);
    }
}
