//! The interface between the pipeline and a log.

use foreshore_base::{GroupNo, Lsn, Result};
use std::time::Duration;

/// Seals groups. The pipeline calls it for one leader at a time.
pub trait Leader: Send {
    /// The memory of one group in flight and its place on disk. It is reused for later groups.
    type Group: Group;

    /// Seals at most one group into `group`. Returns `None` if no group can be sealed.
    ///
    /// # Errors
    /// An error stops the log.
    fn seal(&mut self, group: &mut Self::Group, order: Order) -> Result<Option<Cut>>;
}

/// A sealed group.
pub trait Group: Send {
    /// Writes the group, which is durable when this returns. Runs beside other groups, and without the lead.
    ///
    /// # Errors
    /// An error stops the log.
    fn write(&mut self) -> Result<()>;
}

/// The order to a leader to seal a group.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The group's number, if there is anything to seal.
    pub number: GroupNo,
    /// The cut of the group before.
    pub sealed: Lsn,
    /// The newest group known to be durable together with all before it.
    pub acked: GroupNo,
    /// The lane in which a session needs free space; the cut need not rise. `None`: a waiter waits for more than
    /// `sealed`, and even a group without data is sealed if it raises the cut.
    pub space_in: Option<usize>,
}

/// The cut of a sealed group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The stamp of the cut: when this group and all before it are durable, so is every record up to it. It is not
    /// below that of the group before, and equal to it in the middle of a cut larger than a group.
    pub upto: Lsn,
    /// Whether records were left out that could have been sealed.
    pub more: bool,
    /// Bytes of the records in the group.
    pub bytes: usize,
}

/// How an attempt to lead ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Led {
    /// Another thread leads, the window is full, or the scheduler holds the group back until one in flight completes.
    /// The thread that ends this state hands the lead off.
    Busy,
    /// The group was no longer needed when the caller had the lead, or the log has stopped.
    Unwanted,
    /// No group could be sealed.
    Nothing,
    /// The scheduler waits for more commits, for this time.
    Early(Duration),
    /// The same, and all commits that wait are relaxed.
    Later(Duration),
    /// A group was sealed and written, or the attempt stopped the log.
    Sealed,
}

/// The thread that makes the calls that a group has made due. Callbacks and wakers are code of users, and a group may
/// be completed deep inside the engine, with locks held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// This one, after it has returned from the log.
    Here,
    /// A flusher.
    Elsewhere,
}
