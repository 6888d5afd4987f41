//! The choice of a deadlock's victim.
//!
//! The victim is the member of the cycle with the least to undo. Of several it is the one that closed the cycle, which
//! has waited least.
//!
//! A transaction that is run again keeps the start of its first attempt: that is its age. Once it has been the victim
//! [`IMMUNE_AFTER`] times it is immune to younger members. So the oldest transaction that runs again and again gets
//! through, then the next one.
//!
//! **Invariant:** every cycle has a candidate, because its youngest member is immune to none.
//!
//! A member waits. So no member is prepared, commits or rolls back: those wait for no lock.

use foreshore_sync::Nanos;
use std::cmp::Reverse;

/// A transaction that was the victim so often is immune to younger ones.
pub const IMMUNE_AFTER: u32 = 2;

/// What a transaction that is run again brings along from its attempts before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// When the first attempt began, by [`Waits::now`](crate::Waits::now); `None` in the first attempt.
    pub first: Option<Nanos>,
    /// How many attempts ended as the victim of a deadlock.
    pub losses: u32,
}

/// A waiter of a cycle, as it was when the cycle stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its slot.
    pub(crate) index: u32,
    /// Its transaction.
    pub(crate) term: u64,
    /// Its wait, by number.
    pub(crate) wait_no: u64,
    /// What it has to undo.
    pub(crate) undo_bytes: u64,
    /// Start of its first attempt.
    pub(crate) first: Nanos,
    /// How often it was the victim.
    pub(crate) losses: u32,
}

impl Member {
    /// Greater is younger. Slots decide between equal starts.
    const fn age(&self) -> (Nanos, u32) {
        (self.first, self.index)
    }
}

/// Position in `members` of the victim. `closer` is the slot of the member that closed the cycle.
pub(crate) fn choose(members: &[Member], closer: u32) -> usize {
    let youngest = members.iter().map(Member::age).max();
    let is_immune = |member: &Member| member.losses >= IMMUNE_AFTER && Some(member.age()) < youngest;
    let candidates = members.iter().enumerate().filter(|(_, member)| !is_immune(member));
    let cost = |&(_, member): &(usize, &Member)| (member.undo_bytes, member.index != closer, Reverse(member.age()));
    candidates.min_by_key(cost).expect("the youngest member is a candidate").0
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_least_undo_decides_then_the_closer_and_losers_are_immune_to_younger_ones() {
        const CLOSER: u32 = 0;
        // Undo bytes, start and losses by slot; then the victim.
        type Shape = (&'static [(u64, u64, u32)], usize);
        let table: [Shape; 8] = [
            (&[(5, 1, 0), (4, 2, 0)], 1),
            (&[(4, 1, 0), (4, 2, 0)], 0),
            (&[(9, 1, 0), (4, 2, 0), (4, 3, 0)], 2),
            // Two losses protect it from the younger one, however little it has to undo.
            (&[(0, 1, 2), (900, 2, 0)], 1),
            (&[(0, 1, 1), (900, 2, 0)], 0),
            // Not from an older one.
            (&[(900, 1, 0), (0, 2, 2)], 1),
            // Both are: the older one goes on.
            (&[(0, 1, 2), (900, 2, 7)], 1),
            // One that is immune goes on whichever of the others is the victim.
            (&[(9, 3, 0), (1, 2, 5), (4, 1, 0)], 2),
        ];
        for (shape, victim) in table {
            let members: Vec<_> = (0..)
                .zip(shape)
                .map(|(index, &(undo_bytes, first, losses))| Member {
                    index,
                    term: 1,
                    wait_no: 1,
                    undo_bytes,
                    first: Nanos(first),
                    losses,
                })
                .collect();
            assert_eq!(choose(&members, CLOSER), victim, "{shape:?}");
        }
    }
}
