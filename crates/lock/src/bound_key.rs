//! Keys at the ends of intervals.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes of the longest key that needs no memory of its own.
const INLINE: usize = 22;

/// Bytes that longer keys need besides themselves.
const HEADER: usize = 24;

/// A key at an end of an interval. Copies of a long key share it.
#[derive(Clone)]
pub(crate) enum BoundKey {
    Inline { len: u8, bytes: [u8; INLINE] },
    Shared(Arc<[u8]>),
}

impl BoundKey {
    /// Returns the smallest key above `key`: `key` followed by a zero byte.
    pub(crate) fn above(key: &[u8]) -> Self {
        if key.len() < INLINE {
            return Self::inline(key, key.len() + 1);
        }
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        Self::Shared(next.into())
    }

    /// Returns a key of `len` bytes, which begins with `key` and has zeros behind that.
    fn inline(key: &[u8], len: usize) -> Self {
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        Self::Inline { len: len as u8, bytes }
    }

    /// Returns the bytes of memory that the key has besides this place.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Shared(key) => key.len() + HEADER,
        }
    }
}

impl From<&[u8]> for BoundKey {
    fn from(key: &[u8]) -> Self {
        if key.len() <= INLINE { Self::inline(key, key.len()) } else { Self::Shared(key.into()) }
    }
}

impl Default for BoundKey {
    /// The smallest key, without bytes.
    fn default() -> Self {
        Self::inline(&[], 0)
    }
}

impl Deref for BoundKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Shared(key) => key,
        }
    }
}

impl PartialEq for BoundKey {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for BoundKey {}

impl PartialOrd for BoundKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BoundKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for BoundKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_kept_and_the_next_one_is_above() {
        for len in 0..2 * INLINE {
            let key = vec![7; len];
            let (bound, above) = (BoundKey::from(&key[..]), BoundKey::above(&key));
            assert_eq!(&bound[..], &key[..]);
            assert_eq!(above.strip_prefix(&key[..]), Some(&[0][..]));
            assert!(bound < above && bound == bound.clone());
            assert_eq!((bound.heap_bytes() == 0, above.heap_bytes() == 0), (len <= INLINE, len < INLINE));
        }
        assert_eq!(size_of::<Option<BoundKey>>(), 24);
    }
}
