//! The search for a key in a node.
//!
//! It has two parts. The first reads the heads of the keys, which are in the slots. The second compares the keys with
//! the wanted head, which are in the tuples. A lookup of many keys does other work between the two parts.
//!
//! The keys of a node without a high fence share no known prefix, so small numbers there have the same head. If several
//! entries have the wanted head, the second part first searches them by the next eight bytes of their keys.

use super::{Damage, NodeView, quarters};
use crate::format::{INNER_HEADER, LEAF_HEADER, SLOT, SLOTS, key_head};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::PageRead;
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes of a key in its head.
const HEAD: usize = 4;

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
        let first = if self.has_head(first, head) && self.has_head(first + 1, head) {
            self.search_tails(key, first)
        } else {
            first
        };
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

    /// Returns whether there is an entry `at`, and its key has that head.
    #[inline]
    fn has_head(&self, at: usize, head: u32) -> bool {
        at < self.len() && (self.page.word(SLOTS + at * SLOT) >> 32) as u32 == head
    }

    /// Returns the first entry from `first` on whose key, as far as its head and the eight bytes after it, is not below
    /// `key`. Entry `first` has the head of `key`. If the page is inconsistent, the result is too.
    fn search_tails(&self, key: &[u8], first: usize) -> usize {
        let (head, skip) = (key_head(key, self.shared()), self.shared() + HEAD);
        let tail = key_tail(key.get(skip..).unwrap_or_default());
        let skip_in_tuple = skip + if self.is_leaf() { LEAF_HEADER } else { INNER_HEADER };
        let (mut at, mut count) = (first, self.len() - first);
        // Without branches, as in `search_heads`.
        while count > 0 {
            let half = count / 2;
            let slot = self.page.word(SLOTS + (at + half) * SLOT);
            let [tuple, key_len, ..] = quarters(slot);
            let own_tail = self.tail_at(tuple + skip_in_tuple, key_len.saturating_sub(skip));
            let is_below = ((slot >> 32) as u32, own_tail) < (head, tail);
            at = if is_below { at + half + 1 } else { at };
            count = if is_below { count - half - 1 } else { half };
        }
        at
    }

    /// Returns up to eight of the `len` bytes at `offset` as a number that compares as they do. Bytes outside the page
    /// are zeros.
    #[inline]
    fn tail_at(&self, offset: usize, len: usize) -> u64 {
        let from = offset.min(PAGE_SIZE - 8);
        let word = self.page.word(from).checked_shr(8 * (offset - from) as u32).unwrap_or(0);
        cut_off(word.swap_bytes(), len)
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

/// Returns up to eight bytes as a number that compares as they do.
#[inline]
fn key_tail(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(tail) => u64::from_be_bytes(*tail),
        None => bytes.iter().zip((0..8).rev()).fold(0, |tail, (&byte, place)| tail | u64::from(byte) << (8 * place)),
    }
}

/// Returns the first `len` bytes of a number, most significant first, and zeros for the rest.
#[inline]
const fn cut_off(number: u64, len: usize) -> u64 {
    if len >= 8 { number } else { number & !(u64::MAX >> (8 * len)) }
}
