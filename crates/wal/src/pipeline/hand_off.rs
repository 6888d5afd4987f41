//! The wake-up obligations of a thread that releases the lead or completes a group.

use super::contract::Calls;

/// What a thread leads for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeadFor {
    /// A thread that waits for durability, and will itself try to lead again.
    Waiter(Calls),
    /// A session that needs free space in this lane of the buffer.
    Space(usize),
    /// A flusher, which tries again after a pause.
    Flusher,
}

impl LeadFor {
    /// Returns which thread runs the callbacks that this leader's group makes due.
    pub(super) fn calls(self) -> Calls {
        match self {
            Self::Waiter(calls) => calls,
            Self::Space(_) => Calls::Elsewhere,
            Self::Flusher => Calls::Here,
        }
    }
}

/// The threads that are woken when a thread releases the lead or completes a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOff {
    /// Wakes the satisfied waiters, and at most one waiter, one flusher and one session that needs space, to lead. A
    /// flusher runs the due callbacks, unless this thread runs them itself once it holds no lock.
    Full(Calls),
    /// Wakes at most one waiter, one flusher and one session that needs space, to lead.
    Lead,
    /// After a lead without a group, wakes only other kinds of threads. Two of one kind would wake each other, and spin
    /// until the stalled appender continues or the group is due.
    NoGroup {
        lead_for: LeadFor,
        /// Whether a group that could be sealed was postponed. A session that needs space may then lead at once.
        is_postponed: bool,
    },
}

impl HandOff {
    /// Returns whether a thread that waits for durability is woken to lead.
    pub(super) fn wakes_waiter(self) -> bool {
        !matches!(self, Self::NoGroup { lead_for: LeadFor::Waiter(_), .. })
    }

    /// Returns whether a flusher is signalled to lead.
    pub(super) fn wakes_flusher(self) -> bool {
        !matches!(self, Self::NoGroup { lead_for: LeadFor::Waiter(_) | LeadFor::Flusher, .. })
    }

    /// Returns whether a session that needs space is woken to lead. While no group can be sealed, such a session waits
    /// for an append and tries again by itself.
    pub(super) fn wakes_space(self) -> bool {
        !matches!(self, Self::NoGroup { is_postponed: false, .. })
    }
}
