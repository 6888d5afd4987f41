//! The keys of a scan: the requested ones, and those that it has not read.

use super::span::{End, Rest, Span, set_key, take_key};
use std::mem;
use std::ops::Bound;

/// The keys of a scan.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The range that remains if the rows at hand are dropped: the keys between the last rows returned before these
    /// were read.
    from: Span,
    /// The keys that are not read yet, between the rows at hand.
    unread: Span,
    /// Whether any key is unread.
    has_unread: bool,
    /// Memory for the next key.
    spare: Vec<u8>,
}

impl Keys {
    /// Sets the bounds of the next scan. `bounds` makes them in two empty vectors.
    pub(super) fn set(&mut self, bounds: impl FnOnce([Vec<u8>; 2]) -> [Bound<Vec<u8>>; 2]) {
        let memory = [&mut self.from.lower, &mut self.from.upper].map(|bound| {
            let mut key = take_key(bound);
            key.clear();
            key
        });
        [self.from.lower, self.from.upper] = bounds(memory);
    }

    /// Makes all keys unread, except those of returned rows.
    pub(super) fn read_again(&mut self) {
        self.unread.copy(&self.from);
        self.has_unread = !self.unread.is_empty();
    }

    /// Leaves no key unread.
    pub(super) fn end(&mut self) {
        self.has_unread = false;
    }

    /// Notes that all rows up to `key` were returned from one end.
    pub(super) fn set_returned(&mut self, end: End, key: &[u8]) {
        set_key(self.from.bound(end), Bound::Excluded, key);
    }

    /// Returns the unread keys, or `None` if there are none.
    pub(super) fn unread(&self) -> Option<&Span> {
        self.has_unread.then_some(&self.unread)
    }

    /// Takes the unread keys for one step, which ends with [`put_back`](Self::put_back).
    pub(super) fn take_unread(&mut self) -> Option<Span> {
        self.has_unread.then(|| {
            self.has_unread = false;
            mem::take(&mut self.unread)
        })
    }

    /// Puts back the keys that a step has taken.
    pub(super) fn put_back(&mut self, unread: Span) {
        assert!(!self.has_unread, "a step ends that has taken no keys");
        (self.unread, self.has_unread) = (unread, true);
    }

    /// Shrinks the unread keys to those that a step leaves.
    pub(super) fn pass(&mut self, end: End, step: Rest) {
        assert!(self.has_unread, "a step has read keys, and none were unread");
        self.has_unread = self.unread.rest(end, step, &mut self.spare);
    }

    /// Returns a copy of `key`, in the memory for the key at which a step ends.
    pub(super) fn spare_copy(&mut self, key: &[u8]) -> Vec<u8> {
        let mut copy = mem::take(&mut self.spare);
        copy.clear();
        copy.extend_from_slice(key);
        copy
    }

    /// Returns memory for the key at which a step ends.
    pub(super) fn spare(&mut self) -> &mut Vec<u8> {
        &mut self.spare
    }
}
