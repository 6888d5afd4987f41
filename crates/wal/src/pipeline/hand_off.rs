//! Which threads are woken by a thread that releases the lead, completes a group, or stops waiting.

use super::contract::Calls;

/// The kind of thread that takes the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeadFor {
    /// A thread that waits for durability. The value says which thread makes the calls that its group makes due.
    Waiter(Calls),
    /// A session that needs free space in this lane of the buffer.
    Space(usize),
    /// A flusher, which leads for commits without a waiting thread.
    Flusher,
}

impl LeadFor {
    /// Returns which thread makes the calls (callbacks and wakers) that this leader's group makes due.
    pub(super) fn calls(self) -> Calls {
        match self {
            Self::Waiter(calls) => calls,
            Self::Space(_) => Calls::Elsewhere,
            Self::Flusher => Calls::Here,
        }
    }
}

/// The threads that are woken. At most one thread of each kind is woken to lead: a waiter, a flusher, and a session
/// that needs space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOff {
    /// After a completed group: wakes the satisfied waiters, and one thread of each kind to lead. If the log has
    /// stopped: wakes all waiters and all sessions that need space. A flusher makes the due calls, unless this thread
    /// makes them itself once it holds no lock.
    Full(Calls),
    /// Wakes one thread of each kind to lead.
    Lead,
    /// After a lead that sealed no group, wakes fewer threads to lead:
    ///
    /// | leader | wakes |
    /// |---|---|
    /// | waiter | a session that needs space, if the group was postponed |
    /// | session that needs space | a waiter and a flusher |
    /// | flusher | a waiter; a session that needs space, if the group was postponed |
    ///
    /// Otherwise threads would wake each other and spin, until a stalled appender continues or the group is due. All of
    /// them try again by themselves after a pause.
    NoGroup {
        lead_for: LeadFor,
        /// Whether the scheduler postponed the group. A session that needs space does not depend on the scheduler, so
        /// it may then lead at once.
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

    /// Returns whether a session that needs space is woken to lead. If the leader found nothing to seal, it is not
    /// woken. It tries again by itself after a pause.
    pub(super) fn wakes_space(self) -> bool {
        !matches!(self, Self::NoGroup { is_postponed: false, .. })
    }
}
