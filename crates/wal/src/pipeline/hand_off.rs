//! The wake-up obligations of a thread that gives up the lead or completes a group.

use super::contract::Calls;

/// The purpose of a thread that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A thread that waits for durability, and that keeps the duty to lead itself.
    Waiter(Calls),
    /// A session that wants free space in this lane of the buffer.
    Space(usize),
    /// A flusher, which tries again after a pause.
    Flusher,
}

impl Caller {
    /// The thread that calls what the group of this leader makes due.
    pub(super) fn calls(self) -> Calls {
        match self {
            Self::Waiter(calls) => calls,
            Self::Space(_) => Calls::Elsewhere,
            Self::Flusher => Calls::Here,
        }
    }
}

/// Which threads the end of a lead or of a group wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOff {
    /// The satisfied waiters and one thread that may lead: a waiter, a flusher, or a thread that wants space. Due
    /// callbacks are left to a flusher, unless this thread calls them itself once it holds nothing.
    Full(Calls),
    /// One thread that may lead.
    Lead,
    /// After a lead without a group, only the threads that would take the duty to try again off the caller. A leader
    /// that woke another one of its own kind, or itself, would spin until the stopped appender goes on or the group is
    /// due.
    NoGroup {
        caller: Caller,
        /// Whether a group could have been sealed, so that a thread that wants space may lead at once.
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

    /// Whether a thread that wants space is woken to lead. While no group can be sealed such a thread tries again by
    /// itself: it waits for an append.
    pub(super) fn wakes_space(self) -> bool {
        !matches!(self, Self::NoGroup { is_early: false, .. })
    }
}
