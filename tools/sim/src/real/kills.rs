//! SIGKILL at a pass of a named point, by the process itself, or at any moment, by its parent.
//!
//! A round for a point of a restart kills a first process at work, and a second one in its restart. The number of the
//! pass at which it is killed is drawn below the most passes seen in a process. A process that ends before is a miss,
//! and is checked like the others.

use super::asked::Asked;
use super::child::Order;
use super::ledger::{Heard, Ledger};
use super::mounts::scratch;
use super::plan::{SHRINKS_EVERY, options};
use super::points::{POINTS, Phase};
use super::process::{Ended, Running, own_program};
use super::totals::Totals;
use crate::random::{Random, mixed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How long a process works that is to pass a point, in milliseconds.
const SHIFT: u64 = 1500;
/// Rounds on one directory.
const ROUNDS_OF_A_DIRECTORY: u64 = 40;
/// Misses in a row after which a point counts as one that nothing passes.
const MOST_MISSES: u64 = 30;
/// First bound of the passes drawn.
const FIRST_BOUND: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(asked: &Asked, totals: &mut Totals) -> Result<(), String> {
    if !cfg!(debug_assertions) {
        return Err("the points are in builds with debug assertions: run without --release".to_owned());
    }
    let wanted = match &asked.point {
        Some(point) => {
            let (name, pass) = point.split_once('=').unwrap_or((point, ""));
            let points: Vec<_> = POINTS.iter().copied().filter(|&(other, _)| other == name).collect();
            if points.is_empty() {
                return Err(format!("{name}: no such point, there are {:?}", POINTS.map(|(name, _)| name)));
            }
            let pass = if pass.is_empty() { None } else { Some(pass.parse().map_err(|_| "a pass is a number")?) };
            points.into_iter().map(|(name, phase)| (name, phase, pass)).collect()
        }
        None => POINTS.map(|(name, phase)| (name, phase, None)).to_vec(),
    };
    let each = asked.each.unwrap_or(if asked.point.is_some() { 1 } else { 2 });
    let any = asked.any.unwrap_or(if asked.point.is_some() { 0 } else { 20 });
    let mut kills = Kills { program: own_program()?, base: scratch("kills")?, bed: None, totals, beds: 0 };
    // Point by point in turn, so that each directory meets many of them.
    let mut misses: BTreeMap<usize, u64> = BTreeMap::new();
    let mut bounds: BTreeMap<usize, u64> = BTreeMap::new();
    let mut hits = vec![0; wanted.len()];
    let mut round = 0;
    while let Some(least) = hits.iter().copied().filter(|&hits| hits < each).min() {
        for (at, &(name, phase, fixed)) in wanted.iter().enumerate() {
            if hits[at] != least {
                continue;
            }
            let seed = seed_for(asked.seed + round, phase);
            round += 1;
            let bound = bounds.entry(at).or_insert(FIRST_BOUND);
            let pass = fixed.unwrap_or_else(|| drawn_pass(seed, *bound));
            match kills.at_point(seed, name, phase, pass) {
                Shot::Hit => (hits[at], _) = (hits[at] + 1, misses.remove(&at)),
                Shot::Missed(passes) => {
                    *bound = passes.max(1).min(*bound);
                    let misses = misses.entry(at).or_default();
                    *misses += 1;
                    if *misses == MOST_MISSES {
                        let why = format!("{MOST_MISSES} processes in a row have not passed it");
                        kills.totals.round(Err(why), &format!("--seed {seed} --point '{name}'"));
                        hits[at] = each;
                    }
                }
                // It is said, and the round after it has another seed.
                Shot::Failed => hits[at] += 1,
            }
        }
    }
    (0..any).for_each(|n| kills.at_any_moment(asked.seed + round + n));
    if kills.totals.is_well() {
        let _ = std::fs::remove_dir_all(&kills.base);
    }
    Ok(())
}

/// A seed whose process shrinks the data file, where the phase needs that.
const fn seed_for(seed: u64, phase: Phase) -> u64 {
    match phase {
        Phase::Shrink => seed.next_multiple_of(SHRINKS_EVERY),
        _ => seed,
    }
}

/// Small passes as often as large ones.
fn drawn_pass(seed: u64, bound: u64) -> u64 {
    let mut random = Random::new(mixed(seed));
    let magnitude = random.below(u64::from(bound.ilog2()) + 1);
    (1 + random.below(2 << magnitude)).min(bound)
}

/// How a round ended.
enum Shot {
    /// The process was killed at the pass.
    Hit,
    /// It has ended before, after so many passes.
    Missed(u64),
    Failed,
}

/// A directory and what it must hold.
struct Bed {
    dir: PathBuf,
    ledger: Ledger,
    rounds: u64,
}

struct Kills<'a> {
    program: PathBuf,
    base: PathBuf,
    bed: Option<Bed>,
    beds: u64,
    totals: &'a mut Totals,
}

impl Kills<'_> {
    /// A directory to go on with, or a new one.
    fn take_bed(&mut self, is_new: bool) -> Bed {
        if let Some(bed) = self.bed.take_if(|bed| !is_new && bed.rounds < ROUNDS_OF_A_DIRECTORY) {
            return bed;
        }
        self.beds += 1;
        let dir = self.base.join(self.beds.to_string());
        Bed { dir, ledger: Ledger::default(), rounds: 0 }
    }

    fn at_point(&mut self, seed: u64, name: &str, phase: Phase, pass: u64) -> Shot {
        let mut bed = self.take_bed(matches!(phase, Phase::Creation | Phase::Growth));
        let shot = self.shoot(&mut bed, seed, name, phase, pass);
        let (shot, outcome) = match shot {
            Ok(shot) => (shot, Ok(())),
            Err(why) => (Shot::Failed, Err(format!("{why}; kept: {}", bed.dir.display()))),
        };
        if matches!(shot, Shot::Hit) {
            self.totals.count(name);
        }
        if self.totals.round(outcome, &format!("--seed {seed} --point '{name}={pass}'")) {
            bed.rounds += 1;
            self.put_back(bed);
        }
        shot
    }

    /// Keeps the directory for the next round; a full one goes.
    fn put_back(&mut self, bed: Bed) {
        if let Some(other) = self.bed.replace(bed) {
            let _ = std::fs::remove_dir_all(other.dir);
        }
        if let Some(bed) = self.bed.take_if(|bed| bed.rounds >= ROUNDS_OF_A_DIRECTORY) {
            let _ = std::fs::remove_dir_all(bed.dir);
        }
    }

    fn shoot(&mut self, bed: &mut Bed, seed: u64, name: &str, phase: Phase, pass: u64) -> Result<Shot, String> {
        let mut heard = Heard::default();
        if phase == Phase::Restart {
            heard = self.kill_at_work(&bed.dir, seed)?.heard;
        }
        let millis = match phase {
            Phase::Work | Phase::Growth | Phase::Shrink => SHIFT,
            Phase::End => 60,
            Phase::Restart | Phase::Creation => 0,
        };
        let kill = Some((name.to_owned(), pass));
        let order = Order { dir: bed.dir.clone(), seed, millis, kill, ..Order::default() };
        let ended = Running::start(&self.program, &[], &order)?.wait(PATIENCE)?;
        ended.expect_no_panic()?;
        if ended.is_refused() {
            return Err(format!("no fault, but the engine stopped: {}", ended.last_words()));
        }
        // The second process of a restart acknowledges nothing.
        let heard = if phase == Phase::Restart { heard } else { ended.heard.clone() };
        self.totals.commits += heard.commits;
        bed.ledger.verify_files(&options(seed), &bed.dir, &heard, seed)?;
        match ended.is_killed() {
            true => Ok(Shot::Hit),
            false => Ok(Shot::Missed(passes(&ended))),
        }
    }

    /// Lets a process work for a while, and kills it.
    fn kill_at_work(&self, dir: &Path, seed: u64) -> Result<Ended, String> {
        let order = Order { dir: dir.to_owned(), seed, millis: 60_000, ..Order::default() };
        let mut running = Running::start(&self.program, &[], &order)?;
        let has_committed = running.wait_for_commit(PATIENCE);
        thread::sleep(Duration::from_millis(Random::new(seed).below(120)));
        running.kill();
        let ended = running.wait(PATIENCE)?;
        if !has_committed || !ended.is_killed() {
            return Err(format!("the process ended by itself, {}: {}", ended.status, ended.last_words()));
        }
        Ok(ended)
    }

    fn at_any_moment(&mut self, seed: u64) {
        let mut bed = self.take_bed(false);
        let outcome = self.kill_at_work(&bed.dir, seed).and_then(|ended| {
            self.totals.commits += ended.heard.commits;
            bed.ledger.verify_files(&options(seed), &bed.dir, &ended.heard, seed)
        });
        let outcome = outcome.map_err(|why| format!("{why}; kept: {}", bed.dir.display()));
        self.totals.count("any moment");
        if self.totals.round(outcome, &format!("--seed {seed} --each 0 --any 1")) {
            bed.rounds += 1;
            self.put_back(bed);
        }
    }
}

/// How often a process that ended in order has passed its point.
fn passes(ended: &Ended) -> u64 {
    ended.said.lines().find_map(|line| line.strip_prefix("passes\t")?.parse().ok()).unwrap_or(0)
}
