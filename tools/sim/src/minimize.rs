//! Looks for the fewest parts of a seed that fail as the whole does.
//!
//! Parts are left out in halves, then in quarters, down to one at a time (delta debugging; Zeller and Hildebrandt, TSE
//! 2002). Lives come first, then sessions, their actions, and the operations of transactions.
//!
//! Fewer parts switch threads at other moments, so a choice may fail only under another schedule. Each pass tries one
//! schedule while that leaves parts out, and more of them once it does not. A run is given up when it takes several
//! times as long as the whole seed did.

use crate::Asked;
use crate::fleet::{self, Worker};
use foreshore_sim::engine::part::{self, Place};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Schedules under which a choice of parts is tried: of one pass after the other that leaves nothing out.
const SCHEDULES: [u64; 3] = [1, 6, 24];
/// Runs of one search, at most.
const RUNS: u32 = 6_000;
/// A run may take so many times as long as the whole seed, and the least time.
const SLOWER: u32 = 4;
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// A run that fails.
struct Failing {
    schedule: u64,
    parts: BTreeSet<Place>,
    why: String,
}

struct Search<'a> {
    program: &'a Path,
    asked: &'a Asked,
    seed: u64,
    worker: Option<Worker>,
    patience: Duration,
    runs: u32,
    /// Schedules and parts that have been tried. A pass that repeats a choice does not run it again.
    tried: HashSet<(u64, String)>,
    /// The smallest one so far.
    failing: Failing,
}

/// Shrinks a seed; false if it fails, which it should.
///
/// # Errors
/// If a process cannot be started, or answers what it should not.
pub(crate) fn run(program: &Path, asked: &Asked, seed: u64) -> Result<bool, String> {
    let failing = Failing { schedule: asked.schedule, parts: BTreeSet::new(), why: String::new() };
    let patience = fleet::patience(asked);
    let mut search = Search { program, asked, seed, worker: None, patience, runs: 0, tried: HashSet::new(), failing };
    let begun = Instant::now();
    let Some(failing) = search.try_run(asked.schedule, asked.only.as_deref())? else {
        println!("seed {seed} is well");
        return Ok(true);
    };
    search.patience = (begun.elapsed() * SLOWER).clamp(LEAST_PATIENCE, patience);
    search.failing = failing;
    for schedules in SCHEDULES {
        loop {
            let before = search.failing.parts.len();
            println!("{} parts, {} operations: {}", before, search.operations(), search.failing.why);
            for depth in 1..=4 {
                search.shrink(depth, schedules)?;
            }
            if search.failing.parts.len() == before || search.runs >= RUNS {
                break;
            }
        }
    }
    let Failing { schedule, parts, why } = &search.failing;
    let mutant = asked.mutant.iter().map(|name| format!(" --mutant '{name}'")).collect::<String>();
    println!("{} operations after {} runs: {why}", search.operations(), search.runs);
    println!("cargo run -p foreshore-sim -- --seed {seed} --schedule {schedule}{mutant} --only {}", part::list(parts));
    Ok(false)
}

impl Search<'_> {
    /// Calls of sessions that are left.
    fn operations(&self) -> usize {
        let parts = &self.failing.parts;
        parts.iter().filter(|place| place.depth() >= 3 && !part::has_parts(parts, place)).count()
    }

    /// Leaves parts of one depth out, more at a time first.
    fn shrink(&mut self, depth: usize, schedules: u64) -> Result<(), String> {
        let count = self.at(depth).len();
        let mut at_once = count.div_ceil(2).max(1);
        loop {
            let mut from = 0;
            loop {
                let places = self.at(depth);
                if from >= places.len() || self.runs >= RUNS {
                    break;
                }
                let chosen = &places[from..places.len().min(from + at_once)];
                let rest = self.failing.parts.iter().filter(|place| !chosen.iter().any(|one| place.is_in(one)));
                if !self.fails_with(rest.cloned().collect(), schedules)? {
                    from += at_once;
                }
            }
            if at_once == 1 {
                return Ok(());
            }
            at_once = at_once.div_ceil(2);
        }
    }

    fn at(&self, depth: usize) -> Vec<Place> {
        self.failing.parts.iter().filter(|place| place.depth() == depth).cloned().collect()
    }

    /// Whether these parts fail in the same way under one of so many schedules. They are the smallest then.
    fn fails_with(&mut self, parts: BTreeSet<Place>, schedules: u64) -> Result<bool, String> {
        let list = part::list(&parts);
        let first = self.failing.schedule;
        for schedule in (0..schedules).map(|other| first ^ other) {
            if !self.tried.insert((schedule, list.clone())) {
                continue;
            }
            if let Some(failing) = self.try_run(schedule, Some(&list))?.filter(|found| self.is_same(&found.why)) {
                self.failing = failing;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether it says the same as the failure that is shrunk, but for numbers.
    fn is_same(&self, why: &str) -> bool {
        kind(why) == kind(&self.failing.why)
    }

    fn try_run(&mut self, schedule: u64, only: Option<&str>) -> Result<Option<Failing>, String> {
        self.runs += 1;
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(self.program, self.asked, self.patience)?,
        };
        let parts = only.map(|only| format!(" {only}")).unwrap_or_default();
        match worker.run(&format!("{} {schedule}{parts}", self.seed)) {
            Ok(_) => {
                self.worker = Some(worker);
                Ok(None)
            }
            Err(failure) => {
                let list = failure.parts.as_deref().or(only).unwrap_or_default();
                let mut parts = BTreeSet::new();
                for place in part::places(list)? {
                    parts.extend(place.path());
                }
                Ok(Some(Failing { schedule, parts, why: failure.why }))
            }
        }
    }
}

/// The words that a failure begins with, without numbers and without the number of the life.
fn kind(why: &str) -> String {
    let why = why.strip_prefix("life ").and_then(|rest| rest.split_once(": ")).map_or(why, |(_, rest)| rest);
    why.chars().filter(|letter| !letter.is_ascii_digit()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn failures_are_the_same_but_for_numbers() {
        assert_eq!(
            kind("life 3: the rows are those of no prefix of 4"),
            kind("life 12: the rows are those of no prefix of 77")
        );
        assert_ne!(kind("life 3: the rows are those"), kind("life 3: a panic"));
    }
}
