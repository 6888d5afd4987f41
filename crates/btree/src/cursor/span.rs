//! The unread part of a range, and the rows at hand.

use crate::node::{Damage, Goal, NodeView};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::PageRead;
use foreshore_lock::Interval;
use std::mem;
use std::ops::{Bound, Range};

/// The end of a range from which rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The smallest keys come next.
    #[default]
    Front,
    /// The largest keys come next.
    Back,
}

/// The keys between two bounds.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) lower: Bound<Vec<u8>>,
    pub(super) upper: Bound<Vec<u8>>,
}

impl Default for Span {
    /// All keys.
    fn default() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }
}

/// Takes the memory of a bound's key.
pub(super) fn take_key(bound: &mut Bound<Vec<u8>>) -> Vec<u8> {
    match mem::replace(bound, Bound::Unbounded) {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => Vec::new(),
    }
}

/// Replaces the key of a bound, in the same memory.
pub(super) fn set_key(bound: &mut Bound<Vec<u8>>, as_bound: fn(Vec<u8>) -> Bound<Vec<u8>>, key: &[u8]) {
    let mut bytes = take_key(bound);
    bytes.clear();
    bytes.extend_from_slice(key);
    *bound = as_bound(bytes);
}

impl Span {
    /// Becomes a copy of `other`, in its own memory.
    pub(super) fn copy(&mut self, other: &Self) {
        for (to, from) in [(&mut self.lower, &other.lower), (&mut self.upper, &other.upper)] {
            match from {
                Bound::Included(key) => set_key(to, Bound::Included, key),
                Bound::Excluded(key) => set_key(to, Bound::Excluded, key),
                Bound::Unbounded => *to = Bound::Unbounded,
            }
        }
    }

    /// Returns whether no key can lie in the span.
    pub(super) fn is_empty(&self) -> bool {
        let (Bound::Included(upper) | Bound::Excluded(upper)) = &self.upper else { return false };
        let (lower, inside) = match &self.lower {
            Bound::Included(lower) => (&lower[..], true),
            Bound::Excluded(lower) => (&lower[..], false),
            Bound::Unbounded => (&[][..], true),
        };
        if inside && matches!(self.upper, Bound::Included(_)) { lower > &upper[..] } else { lower >= &upper[..] }
    }

    /// Returns whether the span ends before `key`.
    pub(super) fn ends_before(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key > &upper[..],
            Bound::Excluded(upper) => key >= &upper[..],
            Bound::Unbounded => false,
        }
    }

    /// Returns whether the span has no key before `key`.
    pub(super) fn begins_from(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => &lower[..] >= key,
            Bound::Unbounded => key.is_empty(),
        }
    }

    /// Returns whether a scan from one end meets `key` at or behind its first key.
    fn begins_before(&self, end: End, key: &[u8]) -> bool {
        match (end, &self.lower, &self.upper) {
            (End::Front, Bound::Included(lower), _) => key >= &lower[..],
            (End::Front, Bound::Excluded(lower), _) => key > &lower[..],
            (End::Back, _, Bound::Included(upper)) => key <= &upper[..],
            (End::Back, _, Bound::Excluded(upper)) => key < &upper[..],
            (End::Front, Bound::Unbounded, _) | (End::Back, _, Bound::Unbounded) => true,
        }
    }

    /// Returns whether `key` is the last key of the span for a scan from one end.
    pub(super) fn ends_with(&self, end: End, key: &[u8]) -> bool {
        let last = match end {
            End::Front => &self.upper,
            End::Back => &self.lower,
        };
        matches!(last, Bound::Included(last) if key == &last[..])
    }

    /// Returns the goal of the descent to the leaf in which the span begins or ends.
    pub(super) fn goal(&self, end: End) -> Goal<'_> {
        match (end, &self.lower, &self.upper) {
            (End::Front, Bound::Included(key) | Bound::Excluded(key), _) | (End::Back, _, Bound::Included(key)) => {
                Goal::At(key)
            }
            (End::Front, Bound::Unbounded, _) => Goal::At(&[]),
            (End::Back, _, Bound::Excluded(key)) => Goal::Before(key),
            (End::Back, _, Bound::Unbounded) => Goal::End,
        }
    }

    /// Returns the entries of a leaf that lie in the span. The leaf is the one in which the span begins at `end`.
    pub(super) fn entries<P: PageRead>(&self, node: &NodeView<P>, end: End) -> Result<Range<usize>, Damage> {
        // The leaf at the front covers the lower bound.
        let search = |key: &[u8]| if end == End::Front { node.search_covered(key) } else { node.search(key) };
        let first = match &self.lower {
            Bound::Included(key) => search(key)?.unwrap_or_else(|at| at),
            Bound::Excluded(key) => search(key)?.map_or_else(|at| at, |at| at + 1),
            Bound::Unbounded => 0,
        };
        let behind = match &self.upper {
            Bound::Included(key) => node.search(key)?.map_or_else(|at| at, |at| at + 1),
            Bound::Excluded(key) => node.search(key)?.unwrap_or_else(|at| at),
            Bound::Unbounded => node.len(),
        };
        if first <= behind { Ok(first..behind) } else { Err("keys are out of order") }
    }

    /// Returns the end of a step that has read all entries `inside` of a leaf. `memory` becomes its key.
    pub(super) fn rest_of<P: PageRead>(
        &self,
        node: &NodeView<P>,
        inside: &Range<usize>,
        end: End,
        memory: &mut Vec<u8>,
    ) -> Result<Rest, Damage> {
        Ok(match end {
            End::Front if inside.end < node.len() => Rest::Nothing,
            End::Front if !node.has_high() => Rest::Nothing,
            End::Front => Rest::Leaf(node.copy_high(mem::take(memory))?),
            End::Back if inside.start > 0 => Rest::Nothing,
            End::Back => {
                let low = node.copy_low(mem::take(memory))?;
                // A backward scan terminates only because its keys get smaller.
                if self.ends_before(&low) {
                    return Err("the fences are out of order");
                }
                Rest::Leaf(low)
            }
        })
    }

    /// Returns the end of a step at entry `last` of a leaf. `memory` becomes its key.
    ///
    /// A scan in a node that is out of order could meet the same entries repeatedly. So each step must end at or behind
    /// the first key of the span.
    pub(super) fn rest_behind<P: PageRead>(
        &self,
        node: &NodeView<P>,
        last: usize,
        end: End,
        memory: &mut Vec<u8>,
    ) -> Result<Rest, Damage> {
        let key = node.copy_key(last, mem::take(memory))?;
        if self.begins_before(end, &key) { Ok(Rest::Row(key)) } else { Err("keys are out of order") }
    }

    /// Shrinks the span to the part that a step leaves, and returns whether any is left. `memory` gets the memory of
    /// the old bound.
    pub(super) fn rest(&mut self, end: End, step: Rest, memory: &mut Vec<u8>) -> bool {
        let bound = match (step, end) {
            (Rest::Nothing, _) => return false,
            (Rest::Leaf(fence), End::Front) => Bound::Included(fence),
            (Rest::Leaf(key), End::Back) | (Rest::Row(key), _) => Bound::Excluded(key),
        };
        let before = self.bound(end);
        *memory = take_key(before);
        *before = bound;
        !self.is_empty()
    }

    /// Returns the keys passed by a step that ends with `rest`.
    pub(super) fn passed(&self, end: End, rest: &Rest) -> Interval {
        let (mut lower, mut upper) = (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice));
        match (end, rest) {
            (_, Rest::Nothing) => {}
            (End::Front, Rest::Row(key)) => upper = Bound::Included(key),
            (End::Back, Rest::Row(key)) => lower = Bound::Included(key),
            (End::Front, Rest::Leaf(fence)) if self.ends_before(fence) => {}
            (End::Front, Rest::Leaf(fence)) => upper = Bound::Excluded(fence),
            (End::Back, Rest::Leaf(fence)) if self.begins_from(fence) => {}
            (End::Back, Rest::Leaf(fence)) => lower = Bound::Included(fence),
        }
        Interval::between(lower, upper)
    }

    pub(super) fn bound(&mut self, end: End) -> &mut Bound<Vec<u8>> {
        match end {
            End::Front => &mut self.lower,
            End::Back => &mut self.upper,
        }
    }
}

/// The end of a step.
#[derive(Debug)]
pub(super) enum Rest {
    /// No key of the span is left.
    Nothing,
    /// The step ended at this row.
    Row(Vec<u8>),
    /// The step ended at the end of a leaf. The remaining keys begin at this key, or for a backward scan end before it.
    Leaf(Vec<u8>),
}

/// Rows at hand, in the order of their keys. They are taken from both ends.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Keys and values.
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
}

impl Rows {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.left = 0..0;
    }

    /// Returns whether no row is left.
    pub(super) const fn is_empty(&self) -> bool {
        self.left.start == self.left.end
    }

    /// Returns the key of the first row.
    pub(super) fn first_key(&self) -> &[u8] {
        &self.bytes[self.places[0].key()]
    }

    /// Returns how many rows were added, taken or not.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns how many rows were taken.
    pub(super) fn taken(&self) -> usize {
        self.places.len() - self.left.len()
    }

    /// Reserves memory for `count` rows in all, of about `len` bytes each.
    pub(super) fn make_room(&mut self, count: usize, len: usize) {
        self.places.reserve(count);
        self.bytes.reserve((count * len).min(PAGE_SIZE));
    }

    /// Adds a row of a leaf at the end.
    #[inline]
    pub(super) fn push<P: PageRead>(&mut self, leaf: &NodeView<P>, row_key: Range<usize>, row_value: Range<usize>) {
        let key = self.bytes.len();
        let value = key + row_key.len();
        // Key and value are adjacent in the leaf.
        leaf.append_to(row_key.start..row_value.end, &mut self.bytes);
        self.add(key, value);
    }

    /// Adds a row of a leaf in place of all others.
    pub(super) fn push_alone<P: PageRead>(&mut self, leaf: &NodeView<P>, key: Range<usize>, value: Range<usize>) {
        self.clear();
        self.push(leaf, key, value);
    }

    /// Adds a row of a leaf at the end, with an older value.
    pub(super) fn push_older<P: PageRead>(&mut self, leaf: &NodeView<P>, row_key: Range<usize>, row_value: &[u8]) {
        let key = self.bytes.len();
        leaf.append_to(row_key, &mut self.bytes);
        let value = self.bytes.len();
        self.bytes.extend_from_slice(row_value);
        self.add(key, value);
    }

    /// Adds the row whose key and value were just put behind the others.
    #[inline]
    fn add(&mut self, key: usize, value: usize) {
        let (key, value, end) = (key as u32, value as u32, self.bytes.len() as u32);
        self.places.push(RowPlace { key, value, end, is_stub: false });
        self.left.end += 1;
    }

    /// Notes that the row that was added last has a stub in place of its value.
    pub(super) fn mark_large(&mut self) {
        let last = self.places.last_mut().expect("a row was added");
        assert!(!last.is_stub, "a row is marked twice: {last:?}");
        last.is_stub = true;
    }

    /// Returns the stub of the next row from one end, if it has one.
    #[inline]
    pub(super) fn next_stub(&self, end: End) -> Option<&[u8]> {
        let next = if end == End::Front { self.left.start } else { self.left.end.checked_sub(1)? };
        let place = self.places.get(next).filter(|place| place.is_stub && !self.is_empty())?;
        Some(&self.bytes[place.value()])
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

/// Returns the key of the last row taken from one end.
pub(super) fn last_taken<'r>(front: &'r Rows, back: &'r Rows, end: End) -> Option<&'r [u8]> {
    let (near, far) = match end {
        End::Front => (front, back),
        End::Back => (back, front),
    };
    far.last(end).or_else(|| near.last(end))
}
