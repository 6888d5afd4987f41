//! What a run follows from, and what it was like.

use std::time::Duration;

/// What a run follows from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything else.
    pub seed: u64,
    /// Scheduling points of a time slice on average.
    pub mean_slice: u32,
    /// One decision in so many lets time jump to a deadline although tasks are ready; none if zero.
    pub jump_one_in: u32,
    /// Whether tasks differ in how often they are chosen, by factors up to 64.
    pub uneven: bool,
    /// How long a run goes on without [`progress`](super::progress), jumps of [`Plan::jump_one_in`] not counted.
    pub patience: Duration,
    /// Decisions at most.
    pub most_decisions: u64,
    /// Whether a report of a stop shows the stacks of all tasks.
    pub stacks: bool,
}

/// What a run that ended was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A sum over all decisions: equal for runs that were the same.
    pub trace: u64,
    /// Decisions.
    pub decisions: u64,
    /// The time that has passed in the run.
    pub time: Duration,
}
