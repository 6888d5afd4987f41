//! Modes of table locks: Gray's multiple granularity locking.

/// How a transaction uses a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TableMode {
    /// Reads some rows, each under its own shared lock.
    IntentShared,
    /// Writes some rows, each under its own exclusive lock.
    IntentExclusive,
    /// Reads the whole table, or relies on a row being absent.
    Shared,
    /// Reads the whole table and writes some rows.
    SharedIntentExclusive,
    /// Excludes all other transactions from the table.
    Exclusive,
}

use TableMode::{Exclusive as X, IntentExclusive as IX, IntentShared as IS, Shared as S, SharedIntentExclusive as SIX};

/// Compatibility of two modes: the row is the mode held, the column the mode requested.
const COMPATIBLE: [[bool; 5]; 5] = [
    // IS     IX     S      SIX    X
    [true, true, true, true, false],
    [true, true, false, false, false],
    [true, false, true, false, false],
    [true, false, false, false, false],
    [false, false, false, false, false],
];

/// The supremum of two modes: the weakest mode that permits what both permit.
const SUPREMUM: [[TableMode; 5]; 5] = [
    // IS IX   S    SIX  X
    [IS, IX, S, SIX, X],
    [IX, IX, SIX, SIX, X],
    [S, SIX, S, SIX, X],
    [SIX, SIX, SIX, SIX, X],
    [X, X, X, X, X],
];

impl TableMode {
    /// All modes, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [IS, IX, S, SIX, X];

    /// Returns whether two transactions may hold the two modes at once.
    #[must_use]
    pub const fn is_compatible(self, other: Self) -> bool {
        COMPATIBLE[self as usize][other as usize]
    }

    /// Returns the weakest mode that permits what both permit.
    #[must_use]
    pub const fn supremum(self, other: Self) -> Self {
        SUPREMUM[self as usize][other as usize]
    }

    /// Returns whether this mode permits all that `other` permits.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.supremum(other) == self
    }

    /// Returns whether the mode is an intent. Intents are compatible with each other.
    pub(crate) const fn is_intent(self) -> bool {
        matches!(self, IS | IX)
    }

    /// Returns whether rows may be changed under the mode. If so, its release leaves a tag.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, IX | SIX | X)
    }

    /// Returns whether the mode reads the whole table. If so, its grant returns the tag.
    pub(crate) const fn reads_all(self) -> bool {
        matches!(self, S | SIX | X)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_form_a_lattice_in_which_a_stronger_mode_has_fewer_friends() {
        for a in TableMode::ALL {
            assert!(a.covers(a) && X.covers(a) && a.covers(IS));
            for b in TableMode::ALL {
                assert_eq!(a.is_compatible(b), b.is_compatible(a));
                assert_eq!(a.supremum(b), b.supremum(a));
                assert!(a.supremum(b).covers(a));
                for c in TableMode::ALL {
                    assert_eq!(a.supremum(b).supremum(c), a.supremum(b.supremum(c)));
                    if a.supremum(b).is_compatible(c) {
                        assert!(a.is_compatible(c) && b.is_compatible(c));
                    }
                }
            }
        }
        assert_eq!(IX.supremum(S), SIX);
        assert!(IX.is_compatible(IX) && !IX.is_compatible(S) && SIX.is_compatible(IS));
    }
}
