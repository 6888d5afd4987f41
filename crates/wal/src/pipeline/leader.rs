//! What the pipeline asks of a log, and the words in which its parts talk of leading.

use foreshore_base::{GroupNo, Lsn, Result};
use std::time::Duration;

/// What the holder of the lead does. Not shared: the pipeline calls it for one leader at a time.
pub trait Leader: Send {
    /// What one group in flight takes: its memory and its place on disk. Used again for later groups.
    type Group: Group;

    /// Seals at most one group into `group`; `None` if nothing can be cut.
    ///
    /// # Errors
    /// Poison the log.
    fn seal(&mut self, group: &mut Self::Group, order: Order) -> Result<Option<Cut>>;
}

/// A sealed group.
pub trait Group: Send {
    /// Writes it; durable when it returns. Beside other groups, and without the lead.
    ///
    /// # Errors
    /// Poison the log.
    fn write(&mut self) -> Result<()>;
}

/// What a leader is to seal.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The group's number, if there is anything to seal.
    pub number: GroupNo,
    /// The cut of the group before.
    pub sealed: Lsn,
    /// The newest group known to be durable together with all before it.
    pub acked: GroupNo,
    /// The lane in which a session wants room, and nothing else. Without it a waiter wants more than `sealed`, and a group
    /// without data is sealed where that raises the cut.
    pub room: Option<usize>,
}

/// What was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// When this group and all before it are durable, every record up to here is. Not below the cut of the group before;
    /// equal to it in the middle of a cut larger than a group.
    pub upto: Lsn,
    /// There is more to cut.
    pub more: bool,
    /// Bytes of the records in the group.
    pub bytes: usize,
}

/// How an attempt to lead ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Led {
    /// Another thread leads, as many groups as may be are in flight, or the scheduler holds the group back until one of those
    /// completes. The thread that ends that hands off.
    Busy,
    /// The caller's wish was fulfilled before it had the lead, or the log is poisoned.
    Unwanted,
    /// Nothing could be cut.
    Nothing,
    /// The scheduler waits for more commits, for so long.
    Early(Duration),
    /// A group was sealed and written, or the attempt poisoned the log.
    Sealed,
}

/// The kind of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A thread that waits for durability, and that keeps the duty to lead itself.
    Waiter(Calls),
    /// A session that wants space in that lane of the buffer.
    Space(usize),
    /// A flusher, which tries again after a pause.
    Flusher,
}

/// Which thread calls the callbacks and wakers that a group has made due. They are the code of users, and a group may be completed deep
/// inside the engine, with locks held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// This one, after it has returned from the log.
    Here,
    /// A flusher.
    Elsewhere,
}

/// Which threads the end of a lead or of a group wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOff {
    /// The satisfied waiters and one thread that may lead: a waiter, a flusher, or a thread that wants space. Due callbacks are
    /// left to a flusher, unless the thread calls them itself once it holds nothing.
    Full(Calls),
    /// One thread that may lead.
    Lead,
    /// After a lead without a group, only the threads that would take the duty to try again off the caller. A leader that
    /// woke another one of its own kind, or itself, would spin until the stopped appender goes on or the time of the group
    /// comes.
    NoGroup {
        caller: Caller,
        /// Whether something could have been cut, so that a thread that wants space may lead at once.
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

    /// Whether a thread that wants space is woken to lead. While nothing can be cut such a thread looks again by itself: it
    /// waits for an append.
    pub(super) fn wakes_space(self) -> bool {
        !matches!(self, Self::NoGroup { is_early: false, .. })
    }
}
