//! The state of a run, and the choice of the next task.

use super::gate::Gate;
use super::plan::{Plan, Summary};
use std::sync::Arc;
use std::time::Duration;

/// Time that a decision takes, in nanoseconds.
const DECISION: u64 = 1_000;
/// The longest jump of time, in nanoseconds, while the only ready task yields. On a machine such a yield returns at
/// once. A longer jump would end timed waits for what that task is about to do.
const MAX_YIELD: u64 = 1_000_000;
/// What a task waits for. The addresses are those of the primitives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Lock(usize),
    Signal(usize),
    End(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    Waiting { on: On, until: Option<u64> },
    Ended,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) status: Status,
    /// Whether the last wait ended by timeout.
    pub(super) timed_out: bool,
    pub(super) weight: u64,
    pub(super) gate: Arc<Gate>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) random: u64,
    pub(super) tasks: Vec<Task>,
    pub(super) now: u64,
    pub(super) progress_at: u64,
    pub(super) summary: Summary,
    /// The run is over.
    pub(super) is_over: bool,
    pub(super) stacks: Vec<String>,
}

pub(super) enum Decision {
    /// This task, for that many scheduling points.
    Run(usize, u32),
    /// The run is over: why, if it did not end by itself.
    Stop(Option<String>),
}

impl State {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.random)
    }

    pub(super) fn new(plan: Plan) -> Self {
        Self {
            random: plan.seed,
            plan,
            tasks: Vec::new(),
            now: 0,
            progress_at: 0,
            summary: Summary::default(),
            is_over: false,
            stacks: Vec::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn add(&mut self, name: &str) -> usize {
        let weight = if self.plan.uneven { [1, 8, 64][self.below(3) as usize] } else { 1 };
        let name = format!("{}:{name}", self.tasks.len());
        self.tasks.push(Task { name, status: Status::Ready, timed_out: false, weight, gate: Arc::new(Gate::new()) });
        self.tasks.len() - 1
    }

    /// Makes up to `most` tasks that wait for this ready, chosen at random.
    pub(super) fn wake(&mut self, on: On, most: usize) {
        let waits = |task: &Task| matches!(task.status, Status::Waiting { on: own, .. } if own == on);
        let mut waiting: Vec<usize> = (0..self.tasks.len()).filter(|&id| waits(&self.tasks[id])).collect();
        for _ in 0..most {
            if waiting.is_empty() {
                return;
            }
            let chosen = if most < waiting.len() { self.below(waiting.len() as u64) as usize } else { 0 };
            self.tasks[waiting.swap_remove(chosen)].status = Status::Ready;
        }
    }

    pub(super) fn decide(&mut self, id: Option<usize>, yields: bool) -> Decision {
        self.now += DECISION;
        self.summary.decisions += 1;
        let is_alone = |state: &Self| {
            let mut ready = (0..state.tasks.len()).filter(|&other| state.tasks[other].status == Status::Ready);
            yields && ready.next() == id && ready.next().is_none()
        };
        // A task that yields until time has passed gets there in fewer decisions if it is the only one.
        let jump = self.plan.jump_one_in;
        if is_alone(self) && self.below(8) == 0 {
            self.jump(MAX_YIELD);
        } else if jump > 0 && self.below(u64::from(jump)) == 0 {
            let before = self.now;
            self.jump(u64::MAX);
            // Ready tasks could do nothing in that time, so no progress was possible.
            self.progress_at += self.now - before;
        }
        self.expire();
        while !self.tasks.iter().any(|task| task.status == Status::Ready) {
            if !self.jump(u64::MAX) {
                let why = "no task can go on".to_owned();
                let is_end = self.tasks.iter().all(|task| task.status == Status::Ended);
                self.summary.time = Duration::from_nanos(self.now);
                return Decision::Stop(if is_end { None } else { Some(why) });
            }
            self.expire();
        }
        if self.summary.decisions > self.plan.most_decisions {
            return Decision::Stop(Some("too many decisions".to_owned()));
        }
        if Duration::from_nanos(self.now - self.progress_at) > self.plan.patience {
            return Decision::Stop(Some("nothing has ended for too long".to_owned()));
        }
        let next = self.choose(if yields && !is_alone(self) { id } else { None });
        self.summary.trace = mixed(self.summary.trace ^ mixed(self.now) ^ next as u64);
        let points = self.below(2 * u64::from(self.plan.mean_slice)) as u32;
        Decision::Run(next, points)
    }

    /// Returns a ready task other than `not`.
    fn choose(&mut self, not: Option<usize>) -> usize {
        let may = |id: usize, task: &Task| task.status == Status::Ready && Some(id) != not;
        let weights = self.tasks.iter().enumerate().map(|(id, task)| if may(id, task) { task.weight } else { 0 });
        let total: u64 = weights.clone().sum();
        let weights: Vec<u64> = weights.collect();
        let mut point = self.below(total);
        weights
            .iter()
            .position(|&weight| {
                let is_here = point < weight;
                point = point.saturating_sub(weight);
                is_here
            })
            .expect("the point lies below the sum")
    }

    /// Ends waits whose time is over.
    fn expire(&mut self) {
        let now = self.now;
        for task in &mut self.tasks {
            if matches!(task.status, Status::Waiting { until: Some(until), .. } if until <= now) {
                (task.status, task.timed_out) = (Status::Ready, true);
            }
        }
    }

    /// Moves the time to the next deadline, but by no more than `most`; returns false if there is none.
    fn jump(&mut self, most: u64) -> bool {
        let deadline = |task: &Task| match task.status {
            Status::Waiting { until, .. } => until,
            Status::Ready | Status::Ended => None,
        };
        let Some(next) = self.tasks.iter().filter_map(deadline).min() else { return false };
        self.now = self.now.max(next.min(self.now.saturating_add(most)));
        true
    }
}

/// The finaliser of SplitMix64.
const fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
