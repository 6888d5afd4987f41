//! The search for a key in a node.
//!
//! It has two parts. The first reads the heads of the keys, which are in the slots. The second compares the keys with
//! the wanted head, which are in the tuples. A lookup of many keys does other work between the two parts.

use super::{Damage, NodeView};
use crate::format::{SLOT, SLOTS, key_head};
use foreshore_buffer::PageRead;
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes of a tuple that a lookup prefetches.
const TUPLE_AHEAD: usize = 128;

impl<P: PageRead> NodeView<P> {
    /// Compares the first bytes of `key` with those that all keys here share.
    #[inline]
    fn compare_shared(&self, key: &[u8]) -> Result<Ordering, Damage> {
        if self.shared() == 0 {
            return Ok(Ordering::Equal);
        }
        let high = self.high_range()?.unwrap_or_default();
        if high.len() < self.shared() {
            return Err("the keys of the node share more than its high fence has");
        }
        let shared = high.start..high.start + self.shared();
        Ok(self.page.compare(shared, &key[..key.len().min(self.shared())]).reverse())
    }

    /// Returns the entry with that key, or the index where it belongs.
    pub(crate) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Damage> {
        match self.compare_shared(key)? {
            Ordering::Less => Ok(Err(0)),
            Ordering::Greater => Ok(Err(self.len())),
            Ordering::Equal => self.search_covered(key),
        }
    }

    /// Does the same as [`search`](Self::search) for a key that the node covers, without reading the fences. For any
    /// other key the index is meaningless, but an entry that is found has the key.
    #[inline]
    pub(crate) fn search_covered(&self, key: &[u8]) -> Result<Result<usize, usize>, Damage> {
        self.search_from(key, self.search_heads(key))
    }

    /// Returns the first entry whose head is not below that of `key`, which the node covers. This is the first part of
    /// a search: it reads slots, and no key.
    #[inline]
    pub(crate) fn search_heads(&self, key: &[u8]) -> usize {
        let head = key_head(key, self.shared());
        let (mut at, mut count) = (0, self.len());
        // Without branches, because the outcome cannot be predicted.
        while count > 0 {
            let half = count / 2;
            let is_below = ((self.page.word(SLOTS + (at + half) * SLOT) >> 32) as u32) < head;
            at = if is_below { at + half + 1 } else { at };
            count = if is_below { count - half - 1 } else { half };
        }
        at
    }

    /// Returns the result of a search that continues from the entry of [`search_heads`](Self::search_heads).
    #[inline]
    pub(crate) fn search_from(&self, key: &[u8], first: usize) -> Result<Result<usize, usize>, Damage> {
        let head = key_head(key, self.shared());
        // In most cases the first entry has the key, or no entry has it.
        let (mut from, mut to, mut at) = (first, self.len(), first);
        while from < to {
            let slot = self.slot(at)?;
            let order = match slot.head.cmp(&head) {
                Ordering::Equal => self.page.compare(self.key_range(slot)?, key),
                order => order,
            };
            match order {
                Ordering::Less => from = at + 1,
                Ordering::Greater => to = at,
                Ordering::Equal => return Ok(Ok(at)),
            }
            at = from.midpoint(to);
        }
        Ok(Err(from))
    }

    /// Returns approximately the bytes of the row of entry `at`, if there is one: its header, its key and the start of
    /// its value.
    pub(crate) fn tuple_ahead(&self, at: usize) -> Result<Range<usize>, Damage> {
        if at == self.len() {
            return Ok(0..0);
        }
        let start = self.slot(at)?.at;
        Ok(start..start + TUPLE_AHEAD)
    }

    /// Checks that a search for `key` finds entry `at`, which has that key. In a node that is out of order, a scan that
    /// continues after a key could meet the same entries repeatedly.
    pub(crate) fn must_lead_to(&self, key: &[u8], at: usize) -> Result<(), Damage> {
        if self.search(key)? == Ok(at) { Ok(()) } else { Err("keys are out of order") }
    }
}
