//! The choice of a deadlock's victim.
//!
//! The victim is the member of the cycle with the least to undo. Among equals it is the member that closed the cycle,
//! which has waited least, and otherwise the youngest.
//!
//! A transaction that is retried keeps the start of its first attempt, which defines its age. After it has been the
//! victim [`IMMUNE_AFTER`] times, it is immune to younger members. So the oldest transaction that is retried repeatedly
//! completes, then the next oldest.
//!
//! **Invariant:** every cycle has a candidate, because its youngest member is immune to no other member.
//!
//! Every member waits for a lock. So no member is prepared, commits or rolls back, because such transactions wait for
//! no lock.

use foreshore_sync::Nanos;
use std::cmp::Reverse;

/// A transaction that was the victim this many times is immune to younger ones.
pub const IMMUNE_AFTER: u32 = 2;

/// The history that a retried transaction brings from its earlier attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// The time when the first attempt began, by [`Waits::now`](crate::Waits::now); `None` in the first attempt.
    pub first: Option<Nanos>,
    /// The number of attempts that ended as the victim of a deadlock.
    pub losses: u32,
}

/// A waiter in a cycle, as read while the cycle stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// The number of its slot.
    pub(crate) index: u32,
    /// The term of its slot, which identifies its transaction.
    pub(crate) term: u64,
    /// The number of its wait.
    pub(crate) wait_no: u64,
    /// The amount that it would have to undo.
    pub(crate) undo_bytes: u64,
    /// Start of its first attempt.
    pub(crate) first: Nanos,
    /// How often it was the victim.
    pub(crate) losses: u32,
}

impl Member {
    /// Returns the key that orders members by age; a greater key is younger. Slot numbers decide between equal starts.
    const fn age(&self) -> (Nanos, u32) {
        (self.first, self.index)
    }
}

/// Returns the position of the victim in `members`. `closer` is the slot of the member that closed the cycle.
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
            // Two losses protect it from the younger member, however little it has to undo.
            (&[(0, 1, 2), (900, 2, 0)], 1),
            (&[(0, 1, 1), (900, 2, 0)], 0),
            // Two losses do not protect it from an older member.
            (&[(900, 1, 0), (0, 2, 2)], 1),
            // Both have lost often: the older one continues.
            (&[(0, 1, 2), (900, 2, 7)], 1),
            // An immune member continues, whichever of the others is the victim.
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
