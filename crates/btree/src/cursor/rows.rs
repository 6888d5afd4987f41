//! Rows at hand: those that a step has read and the scan has not returned.

use super::span::End;
use crate::format::OVERFLOW;
use crate::node::{NodeView, Place};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::PageRead;
use std::ops::Range;

/// The rows of a leaf are copied in one piece if that copies at most so many times their bytes.
const SPREAD: usize = 2;

/// Rows at hand, in the order of their keys. They are taken from both ends.
///
/// A row is added by its position in the leaf, and its bytes are copied to the same offset here. So the rows of a step
/// are copied at once if they lie close together. Older versions lie behind all offsets of a leaf.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The bytes of a leaf, as far as they were copied, and keys and values of older versions.
    bytes: Vec<u8>,
    places: Vec<RowPlace>,
    /// The places that have not been taken.
    left: Range<usize>,
}

/// The position of a row: of its key, and of its value behind the key.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    key: u32,
    value: u32,
    end: u32,
    /// Whether a stub is in place of the value.
    is_stub: bool,
}

impl RowPlace {
    const fn key(self) -> Range<usize> {
        self.key as usize..self.value as usize
    }

    const fn value(self) -> Range<usize> {
        self.value as usize..self.end as usize
    }

    const fn row(self) -> Range<usize> {
        self.key as usize..self.end as usize
    }

    /// Returns whether the row is the newest version, which the leaf has.
    const fn is_in_leaf(self) -> bool {
        self.end as usize <= PAGE_SIZE
    }
}

impl Rows {
    /// Drops all rows. The memory is kept.
    pub(super) fn clear(&mut self) {
        self.bytes.truncate(PAGE_SIZE);
        self.places.clear();
        self.left = 0..0;
    }

    /// Returns whether no row is left.
    pub(super) const fn is_empty(&self) -> bool {
        self.left.start == self.left.end
    }

    /// Returns how many rows were added, taken or not.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns how many rows were taken.
    pub(super) fn taken(&self) -> usize {
        self.places.len() - self.left.len()
    }

    /// Adds a row of the leaf at the end. [`copy`](Self::copy) copies it.
    #[inline]
    pub(super) fn add(&mut self, Place { header, key, value }: &Place) {
        debug_assert!(key.end == value.start && value.end <= PAGE_SIZE, "a row at {key:?} and {value:?}");
        self.push((key.start, value.start, value.end), header.flags);
    }

    /// Adds a row of a leaf at the end, with the flags and the value of an older version.
    pub(super) fn add_older<P: PageRead>(
        &mut self,
        leaf: &NodeView<P>,
        row_key: Range<usize>,
        (flags, row_value): (u16, &[u8]),
    ) {
        // The first row of a cursor finds no memory.
        self.bytes.resize(self.bytes.len().max(PAGE_SIZE), 0);
        let key = self.bytes.len();
        leaf.append_to(row_key, &mut self.bytes);
        let value = self.bytes.len();
        self.bytes.extend_from_slice(row_value);
        self.push((key, value, self.bytes.len()), flags);
    }

    #[inline]
    fn push(&mut self, (key, value, end): (usize, usize, usize), flags: u16) {
        let is_stub = flags & OVERFLOW != 0;
        self.places.push(RowPlace { key: key as u32, value: value as u32, end: end as u32, is_stub });
        self.left.end += 1;
    }

    /// Returns the stub of the next row from one end, if it has one.
    #[inline]
    pub(super) fn next_stub(&self, end: End) -> Option<&[u8]> {
        let next = if end == End::Front { self.left.start } else { self.left.end.checked_sub(1)? };
        let place = self.places.get(next).filter(|place| place.is_stub && !self.is_empty())?;
        Some(&self.bytes[place.value()])
    }

    /// Copies the rows that were added since [`clear`](Self::clear).
    pub(super) fn copy<P: PageRead>(&mut self, leaf: &NodeView<P>) {
        if self.places.is_empty() {
            return;
        }
        self.bytes.resize(self.bytes.len().max(PAGE_SIZE), 0);
        let (mut hull, mut taken) = (PAGE_SIZE..0, 0);
        let in_leaf = self.places.iter().filter(|place| place.is_in_leaf()).map(|place| place.row());
        for Range { start, end } in in_leaf.clone() {
            hull = hull.start.min(start)..hull.end.max(end);
            taken += end - start;
        }
        if hull.len() <= SPREAD * taken {
            leaf.copy_to(hull.clone(), &mut self.bytes[hull]);
        } else {
            in_leaf.for_each(|row| leaf.copy_to(row.clone(), &mut self.bytes[row]));
        }
    }

    /// Frees memory beyond `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.clear();
        self.bytes.shrink_to(bytes);
        self.places.shrink_to(bytes / size_of::<RowPlace>());
    }

    /// Reverses rows that were added from the largest key down.
    pub(super) fn reverse(&mut self) {
        self.places.reverse();
    }

    /// Takes the next row from one end.
    #[inline]
    pub(super) fn take(&mut self, end: End) -> Option<(&[u8], &[u8])> {
        let at = match end {
            End::Front => self.left.next(),
            End::Back => self.left.next_back(),
        };
        let place = self.places[at?];
        Some((&self.bytes[place.key()], &self.bytes[place.value()]))
    }

    /// Returns the key that was taken last from one end.
    pub(super) fn last(&self, end: End) -> Option<&[u8]> {
        let at = match end {
            End::Front => self.left.start.checked_sub(1)?,
            End::Back => self.left.end,
        };
        self.places.get(at).map(|place| &self.bytes[place.key()])
    }
}
