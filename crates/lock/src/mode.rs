//! Modes of table locks, after Gray's multiple granularity locking.

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
    /// Has the table alone.
    Exclusive,
}

use TableMode::{Exclusive as X, IntentExclusive as IX, IntentShared as IS, Shared as S, SharedIntentExclusive as SIX};

/// Row by the mode held, column by the mode asked for.
const COMPATIBLE: [[bool; 5]; 5] = [
    // IS     IX     S      SIX    X
    [true, true, true, true, false],
    [true, true, false, false, false],
    [true, false, true, false, false],
    [true, false, false, false, false],
    [false, false, false, false, false],
];

/// The weakest mode that allows what both allow.
const SUPREMUM: [[TableMode; 5]; 5] = [
    // IS IX   S    SIX  X
    [IS, IX, S, SIX, X],
    [IX, IX, SIX, SIX, X],
    [S, SIX, S, SIX, X],
    [SIX, SIX, SIX, SIX, X],
    [X, X, X, X, X],
];

impl TableMode {
    /// Every mode, in the order of its number.
    pub(crate) const ALL: [Self; 5] = [IS, IX, S, SIX, X];

    /// Whether two transactions may hold the two modes at once.
    #[must_use]
    pub const fn is_compatible(self, other: Self) -> bool {
        COMPATIBLE[self as usize][other as usize]
    }

    /// The weakest mode that allows what both allow.
    #[must_use]
    pub const fn supremum(self, other: Self) -> Self {
        SUPREMUM[self as usize][other as usize]
    }

    /// Whether this mode allows all that `other` allows.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.supremum(other) == self
    }

    /// Whether it is an intent: it is compatible with every other intent.
    pub(crate) const fn is_intent(self) -> bool {
        matches!(self, IS | IX)
    }

    /// Whether rows may be changed under it, so that its release leaves a tag.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, IX | SIX | X)
    }

    /// Whether it reads the whole table, so that its grant takes the tag.
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
