//! The word that sessions draw from.

use foreshore_wal::log_buffer::GRAIN;

// The word.
//
//   63                        28  27  26                        0
//  +----------------------------+---+---------------------------+
//  |            group           | F |       drawn, in grains    |
//  +----------------------------+---+---------------------------+
//
// group: number of the current group; comes around after 2^36, in place g % size of the table.
// F: the group is frozen, no thread draws from it any more.
// drawn: where the next record starts behind the start of the group.
//
// Any thread may change the word, by an exchange of the whole:
// 1. drawn grows by a record while F is clear: the session is a member of the group.
// 2. F is set while drawn > 0: the end of the group is fixed, and the word stands still until
// 3. the next number, F clear, drawn = 0: after the next group has been opened.
// A group is smaller than a limit of at most 1 MiB and one record, a quarter of a ring of 1 GiB: drawn has room for
// it. That leaves so many numbers that 2^36 groups do not pass between two steps of a thread, and the number may come
// around.
const FROZEN: u64 = 1 << 27;
const GROUP: u64 = 1 << 28;
const DRAWN: u64 = FROZEN - 1;
const NUMBERS: u64 = 1 << 36;

/// A value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    /// Nothing drawn from the group of this number.
    pub(super) fn empty(group: u64) -> Self {
        Self((group % NUMBERS) * GROUP)
    }

    /// Returns the number of the current group.
    #[inline]
    pub(super) fn group(self) -> u64 {
        self.0 / GROUP
    }

    /// Returns the bytes drawn from it.
    #[inline]
    pub(super) fn drawn(self) -> u64 {
        (self.0 & DRAWN) * GRAIN as u64
    }

    #[inline]
    pub(super) fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Step 1: a record of `bytes`, a multiple of the grain.
    #[inline]
    pub(super) fn joined(self, bytes: u64) -> Self {
        debug_assert!(!self.is_frozen() && self.drawn() + bytes <= DRAWN * GRAIN as u64, "{bytes} into {self:?}");
        Self(self.0 + bytes / GRAIN as u64)
    }

    /// Step 2.
    pub(super) fn frozen(self) -> Self {
        debug_assert!(self.drawn() > 0, "an empty group is not closed");
        Self(self.0 | FROZEN)
    }

    /// Step 3.
    pub(super) fn next(self) -> Self {
        debug_assert!(self.is_frozen(), "{self:?} is not frozen");
        Self::empty(self.group() + 1)
    }
}

/// Returns how many numbers `group` is after `other`.
pub(super) fn distance(group: u64, other: u64) -> u64 {
    other.wrapping_sub(group) % NUMBERS
}

/// Returns the number after `group`.
pub(super) fn after(group: u64) -> u64 {
    (group + 1) % NUMBERS
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let full = Draw::empty(NUMBERS - 1).joined(1 << 29).joined((1 << 29) - 8);
        assert_eq!((full.group(), full.drawn(), full.is_frozen()), (NUMBERS - 1, (1 << 30) - 8, false));
        let frozen = full.frozen();
        assert_eq!((frozen.group(), frozen.drawn(), frozen.is_frozen()), (NUMBERS - 1, (1 << 30) - 8, true));
        assert_eq!(frozen.next(), Draw::empty(0), "numbers come around");
    }

    #[test]
    fn distances_hold_where_numbers_come_around() {
        assert_eq!(distance(NUMBERS - 2, 3), 5);
        assert_eq!((after(NUMBERS - 1), after(6)), (0, 7));
    }
}
