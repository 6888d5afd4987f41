//! The wake-up obligations of a thread that releases the lead or completes a group.

use super::contract::Calls;

/// The purpose of a thread that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A thread that waits for durability, and that keeps the duty to lead itself.
    Waiter(Calls),
    /// A session that needs free space in this lane of the buffer.
    Space(usize),
    /// A flusher, which tries again after a pause.
    Flusher,
}

impl Caller {
    /// Returns the thread that makes the calls that the group of this leader makes due.
    pub(super) fn calls(self) -> Calls {
        match self {
            Self::Waiter(calls) => calls,
            Self::Space(_) => Calls::Elsewhere,
            Self::Flusher => Calls::Here,
        }
    }
}

/// The threads that are woken at the end of a lead or of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOff {
    /// Wakes the satisfied waiters and one thread that may lead: a waiter, a flusher, or a session that needs space. A
    /// flusher makes the due calls, unless this thread makes them itself once it holds no lock.
    Full(Calls),
    /// Wakes one thread that may lead.
    Lead,
    /// After a lead without a group, wakes only threads that take over the caller's duty to try again. A leader that
    /// woke another one of its own kind, or itself, would spin until the stopped appender continues or the group is
    /// due.
    NoGroup {
        caller: Caller,
        /// Whether a group could have been sealed, so that a session that needs space may lead at once.
        is_early: bool,
    },
}

impl HandOff {
    /// Whether a thread that waits for durability is woken to lead.
    pub(super) fn wakes_waiter(self) -> bool {
        !matches!(self, Self::NoGroup { caller: Caller::Waiter(_), .. })
    }

    /// Whether a flusher is signalled to lead.
    pub(super) fn wakes_flusher(self) -> bool {
        !matches!(self, Self::NoGroup { caller: Caller::Waiter(_) | Caller::Flusher, .. })
    }

    /// Whether a session that needs space is woken to lead. While no group can be sealed, such a session waits for an
    /// append and tries again by itself.
    pub(super) fn wakes_space(self) -> bool {
        !matches!(self, Self::NoGroup { is_early: false, .. })
    }
}
