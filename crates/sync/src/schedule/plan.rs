//! The plan of a run, and its summary.

use std::time::Duration;

/// All inputs of a run.
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
    /// How long a run continues without [`progress`](super::progress), jumps of [`Plan::jump_one_in`] not counted.
    pub patience: Duration,
    /// Most decisions of a run.
    pub most_decisions: u64,
    /// Whether the report of a stop shows the stacks of all tasks.
    pub stacks: bool,
}

/// Summary of a completed run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A checksum over all decisions: equal for equal runs.
    pub trace: u64,
    /// Decisions.
    pub decisions: u64,
    /// The time that passed in the run.
    pub time: Duration,
}
