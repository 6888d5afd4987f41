//! The rest of a range, and the rows of it that are at hand.

use crate::node::{Damage, Goal, NodeView};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::PageRead;
use foreshore_lock::Interval;
use std::mem;
use std::ops::{Bound, Range};

/// The end of a range that rows are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The smallest keys come next.
    #[default]
    Front,
    /// The largest.
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

/// Takes the key of a bound, or new memory for one.
pub(super) fn take_key(bound: &mut Bound<Vec<u8>>) -> Vec<u8> {
    match mem::replace(bound, Bound::Unbounded) {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => Vec::new(),
    }
}

/// Gives a bound another key, in the memory of the key before.
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

    /// Returns whether no key can lie in it.
    pub(super) fn is_empty(&self) -> bool {
        let (Bound::Included(upper) | Bound::Excluded(upper)) = &self.upper else { return false };
        let (lower, inside) = match &self.lower {
            Bound::Included(lower) => (&lower[..], true),
            Bound::Excluded(lower) => (&lower[..], false),
            Bound::Unbounded => (&[][..], true),
        };
        if inside && matches!(self.upper, Bound::Included(_)) { lower > &upper[..] } else { lower >= &upper[..] }
    }

    /// Returns whether it ends before `key`.
    pub(super) fn ends_before(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key > &upper[..],
            Bound::Excluded(upper) => key >= &upper[..],
            Bound::Unbounded => false,
        }
    }

    /// Returns whether it has no key before `key`.
    pub(super) fn begins_from(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => &lower[..] >= key,
            Bound::Unbounded => key.is_empty(),
        }
    }

    /// Returns whether `key` lies behind its beginning for a scan from one end.
    fn begins_before(&self, end: End, key: &[u8]) -> bool {
        match (end, &self.lower, &self.upper) {
            (End::Front, Bound::Included(lower), _) => key >= &lower[..],
            (End::Front, Bound::Excluded(lower), _) => key > &lower[..],
            (End::Back, _, Bound::Included(upper)) => key <= &upper[..],
            (End::Back, _, Bound::Excluded(upper)) => key < &upper[..],
            (End::Front, Bound::Unbounded, _) | (End::Back, _, Bound::Unbounded) => true,
        }
    }

    /// Returns whether `key` is its last one for a scan from one end.
    pub(super) fn ends_with(&self, end: End, key: &[u8]) -> bool {
        let last = match end {
            End::Front => &self.upper,
            End::Back => &self.lower,
        };
        matches!(last, Bound::Included(last) if key == &last[..])
    }

    /// Returns the leaf in which it begins or ends.
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

    /// Returns the entries of a leaf that lie in it. `end`: the leaf was found as the one at that end.
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

    /// Returns how a step ends that has read all entries `inside` of a leaf. `memory` takes a key.
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
                // A backward descent ends because it goes to ever smaller keys.
                if self.ends_before(&low) {
                    return Err("the fences are out of order");
                }
                Rest::Leaf(low)
            }
        })
    }

    /// Returns how a step ends at entry `last` of a leaf. `memory` takes its key.
    ///
    /// In a node that is out of order, a scan that continues behind a key could meet the same entries again and again.
    /// So each step must end behind its beginning.
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

    /// Moves on to what a step leaves of the span, and returns whether that is anything. `memory` gets the key that the
    /// span has no more use for.
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

/// How a step ends.
#[derive(Debug)]
pub(super) enum Rest {
    /// Nothing is left.
    Nothing,
    /// At that row.
    Row(Vec<u8>),
    /// At the end of a leaf: the next keys begin from that key, or end before it.
    Leaf(Vec<u8>),
}

/// Rows at hand, in the order of their keys. They are taken from both ends.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Keys and values.
    bytes: Vec<u8>,
    places: Vec<RowPlace>,
    /// Those that have not been taken.
    left: Range<usize>,
}

/// Where a row is: its key, and behind it its value.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    key: u32,
    value: u32,
    end: u32,
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

    /// Returns whether none is left.
    pub(super) const fn is_empty(&self) -> bool {
        self.left.start == self.left.end
    }

    /// Returns how many rows were added, taken or not.
    pub(super) fn len(&self) -> usize {
        self.places.len()
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
        self.places.push(RowPlace { key: key as u32, value: value as u32, end: self.bytes.len() as u32 });
        self.left.end += 1;
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
