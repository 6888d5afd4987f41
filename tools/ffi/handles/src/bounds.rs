//! Bounds and directions of scans.

use std::ops::Bound;

/// The bounds of a scan.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Where it begins.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends.
    pub upper: Bound<Vec<u8>>,
}

impl Bounds {
    /// Returns the bounds of all keys.
    #[must_use]
    pub const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Returns the bounds of the keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let upper = match prefix.iter().rposition(|&byte| byte != 0xFF) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut end = prefix[..=last].to_vec();
                end[last] += 1;
                Bound::Excluded(end)
            }
        };
        Self { lower: Bound::Included(prefix.to_vec()), upper }
    }

    pub(crate) fn borrowed(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice))
    }

    /// Returns whether no key can lie between the bounds. The engine takes such bounds, too.
    #[must_use]
    pub fn are_empty(&self) -> bool {
        match self.borrowed() {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
            _ => false,
        }
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key on.
    Forward,
    /// From the largest key on.
    Backward,
}
