//! Memory that direct I/O accepts.

use foreshore_base::limits::BLOCK;
use std::{
    alloc::{self, Layout},
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

/// An owned, zeroed byte buffer whose address is a multiple of [`BLOCK`].
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
}

impl AlignedBuf {
    /// Allocates `len` zero bytes. For direct I/O `len` is a multiple of [`BLOCK`].
    ///
    /// # Panics
    /// If `len` is over `isize::MAX`, like a `Vec`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has at least one byte.
        let ptr = unsafe { alloc::alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else { alloc::handle_alloc_error(layout) };
        Self { ptr, len }
    }

    /// Returns the layout for `len` bytes. It is never empty, so there is always an allocation.
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), BLOCK).expect("a buffer is smaller than the address space")
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` points to at least `len` initialised bytes that this value owns.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes other references.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and freed only here.
        unsafe { alloc::dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
    }
}

// SAFETY: the buffer owns its bytes, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_owned() {
        for len in [0, 1, BLOCK, 3 * BLOCK + 7] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr().addr() % BLOCK, 0);
            assert_eq!(&*buf, vec![0; len].as_slice());
            buf.fill(7);
            let copy = buf.clone();
            drop(buf);
            assert_eq!(&*copy, vec![7; len].as_slice());
        }
    }
}
