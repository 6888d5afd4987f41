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
    /// Sets the bounds of the next scan. `encode` appends the bytes of a key.
    pub(super) fn set<K>(&mut self, (lower, upper): (Bound<K>, Bound<K>), mut encode: impl FnMut(K, &mut Vec<u8>)) {
        for (bound, to) in [(lower, &mut self.from.lower), (upper, &mut self.from.upper)] {
            *to = bound.map(|key| {
                let mut bytes = take_key(to);
                bytes.clear();
                encode(key, &mut bytes);
                bytes
            });
        }
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

    /// Returns memory for the key at which a step ends.
    pub(super) fn spare(&mut self) -> &mut Vec<u8> {
        &mut self.spare
    }
}
