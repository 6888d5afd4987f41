//! The bytes of one file in memory, shared between images until they differ.

use foreshore_base::limits::BLOCK;
use std::ops::Range;
use std::sync::Arc;

type Block = Arc<[u8; BLOCK]>;

/// A file's bytes. Cloning copies one pointer a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    len: u64,
    /// Blocks by offset / [`BLOCK`]. A missing block has no space allocated and reads as zeros.
    blocks: Vec<Option<Block>>,
}

/// Splits `[offset, offset + len)` at multiples of `unit` bytes. Returns for each piece the number of its unit, the
/// range in that unit, and its distance from `offset`.
pub(crate) fn pieces(offset: u64, len: usize, unit: usize) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (number, within) = ((at / unit as u64) as usize, (at % unit as u64) as usize);
        let n = (unit - within).min(len - done);
        done += n;
        (n != 0).then_some((number, within..within + n, done - n))
    })
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns how many of `len` bytes at `offset` lie inside the file.
    fn inside(&self, offset: u64, len: usize) -> usize {
        usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(len)
    }

    /// Reads up to the end of the file.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = self.inside(offset, buf.len());
        for (block, range, from) in pieces(offset, n, BLOCK) {
            let part = &mut buf[from..from + range.len()];
            match self.blocks.get(block) {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[range]),
                _ => part.fill(0),
            }
        }
        n
    }

    /// Returns all bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("its length is that of memory")];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Overwrites bytes inside the file, and drops bytes past its end.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let n = self.inside(offset, bytes.len());
        for (block, range, from) in pieces(offset, n, BLOCK) {
            if block >= self.blocks.len() {
                self.blocks.resize(block + 1, None);
            }
            let block = self.blocks[block].get_or_insert_with(|| Arc::new([0; BLOCK]));
            Arc::make_mut(block)[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
        }
    }

    /// Copies the blocks of `other` that `which` selects.
    pub(crate) fn refresh(&mut self, other: &Self, mut which: impl FnMut(usize) -> bool) {
        let blocks = self.blocks.len().max(other.blocks.len());
        self.blocks.resize(blocks, None);
        for (number, block) in self.blocks.iter_mut().enumerate() {
            if which(number) {
                *block = other.blocks.get(number).cloned().flatten();
            }
        }
    }

    /// Makes the file at least `len` long.
    pub(crate) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Truncates or grows the file. Truncated bytes read as zeros if the file grows again.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let keep = usize::try_from(len.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
            self.blocks.truncate(keep);
            let tail = (len % BLOCK as u64) as usize;
            if tail != 0
                && let Some(Some(last)) = self.blocks.get_mut(keep - 1)
            {
                Arc::make_mut(last)[tail..].fill(0);
            }
        }
        self.len = len;
    }

    /// Grows the file to cover the range and allocates its space.
    pub(crate) fn allocate(&mut self, offset: u64, len: u64) {
        self.grow(offset + len);
        let zero: Block = Arc::new([0; BLOCK]);
        let len = usize::try_from(len).expect("its length is that of memory");
        for (block, ..) in pieces(offset, len, BLOCK) {
            if block >= self.blocks.len() {
                self.blocks.resize(block + 1, None);
            }
            self.blocks[block].get_or_insert_with(|| Arc::clone(&zero));
        }
    }

    /// Whether the whole range has space allocated.
    pub(crate) fn is_allocated(&self, offset: u64, len: usize) -> bool {
        pieces(offset, len, BLOCK).all(|(block, ..)| matches!(self.blocks.get(block), Some(Some(_))))
    }
}
