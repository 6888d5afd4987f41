//! TATP: the home location register of a mobile network.
//!
//! | table | key | value | rows at scale X |
//! |---|---|---|---|
//! | `subscriber` | `s_id` | number, bits, hex digits, bytes, two locations | X |
//! | `access_info` | `s_id`, `ai_type` | four data fields | 1 to 4 for each subscriber |
//! | `special_facility` | `s_id`, `sf_type` | whether it is active, and three data fields | 1 to 4 for each subscriber |
//! | `call_forwarding` | `s_id`, `sf_type`, `start_time` | end time, number | 0 to 3 for each facility |
//! | `bench` | workload | scale | 1 |
//!
//! The index `by sub_nbr` finds subscribers by their number. Seven kinds of transactions make the mix: 80 % read, 16 %
//! update, 2 % insert and 2 % delete. `tatp-update-location` runs one kind alone. A transaction that finds no row, or
//! one where there must be none, commits too and counts: the specification allows that to each kind but two.
//!
//! Source: Telecommunication Application Transaction Processing Benchmark, description, version 1.0, March 2009.

mod check;
mod draw;
mod population;
mod tables;
mod transactions;

use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::report::Kind;
use crate::{Config, Progress};
use draw::{Draw, Input, MIX, UPDATE_LOCATION};
use foreshore::{Db, Result, Transaction};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use transactions::Effect;

const NAME: &str = "tatp";

/// The workload at its scale.
#[derive(Debug)]
pub(super) struct Tatp {
    seed: u64,
    skew: f64,
    subscribers: u32,
    /// The only kind of transactions, by its place in the mix.
    only: Option<usize>,
    counts: Arc<Mutex<Counts>>,
}

/// What the workers of a row have done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Transactions, and those that succeeded, in the order of the mix.
    kinds: [(u64, u64); MIX.len()],
    /// What they added to the sum that an audit counts.
    change: u64,
}

impl Tatp {
    /// The whole mix.
    pub(super) fn new(config: &Config) -> Self {
        // The scale is checked before.
        let subscribers = u32::try_from(config.scale).unwrap_or(u32::MAX);
        Self { seed: config.seed, skew: config.records.skew, subscribers, only: None, counts: Arc::default() }
    }

    /// `UPDATE_LOCATION` alone.
    pub(super) fn update_location(config: &Config) -> Self {
        let only = MIX.iter().position(|&(name, _)| name == UPDATE_LOCATION);
        Self { only, ..Self::new(config) }
    }
}

impl Work for Tatp {
    fn checks(&self) -> [&'static str; 2] {
        ["rows", "changes"]
    }

    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        population::load(db, self.subscribers, self.seed, progress)?;
        mark::set(db, NAME, u64::from(self.subscribers))
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("scale", u64::from(self.subscribers)))
    }

    fn read_in(&self, db: &Db) -> Result<()> {
        check::read_in(db)
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        check::audit(db, self.subscribers)
    }

    fn count_after(&self, before: u64, _: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        before.wrapping_add(std::mem::take(&mut counts.change))
    }

    fn take_kinds(&self) -> Vec<Kind> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = std::mem::take(&mut counts.kinds);
        let named = MIX.iter().zip(kinds);
        named.map(|(&(kind, _), (transactions, succeeded))| Kind { kind, transactions, succeeded }).collect()
    }

    fn check_kinds(&self, kinds: &[Kind]) -> Vec<(&'static str, bool)> {
        // With skew a few subscribers decide.
        if self.skew > 0.0 {
            return Vec::new();
        }
        vec![("success_ratios", check::succeed_as_expected(kinds, self.subscribers))]
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        let draw = Draw::new(self.seed, worker.stream(), self.subscribers, self.skew);
        let (only, shared) = (self.only, Arc::clone(&self.counts));
        Box::new(Calls { draw, only, next: None, effect: Effect::default(), counts: Counts::default(), shared })
    }
}

/// The transactions of one worker.
struct Calls {
    draw: Draw,
    only: Option<usize>,
    /// What was drawn, and its place in the mix.
    next: Option<(usize, Input)>,
    /// What it did when it was applied last.
    effect: Effect,
    counts: Counts,
    /// Gets the counts when the worker ends.
    shared: Arc<Mutex<Counts>>,
}

impl Transactions for Calls {
    fn draw(&mut self) {
        self.next = Some(match self.only {
            Some(kind) => (kind, self.draw.input(kind)),
            None => self.draw.any(),
        });
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        let (_, input) = self.next.expect("an input is drawn before it is applied");
        self.effect = transactions::apply(tx, input)?;
        Ok(End::Commit)
    }

    fn ended(&mut self, _: End) {
        let (kind, _) = self.next.expect("a transaction ends after it was applied");
        self.counts.kinds[kind].0 += 1;
        self.counts.kinds[kind].1 += u64::from(self.effect.has_succeeded);
        self.counts.change = self.counts.change.wrapping_add(self.effect.change);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, own) in shared.kinds.iter_mut().zip(self.counts.kinds) {
            *sum = (sum.0 + own.0, sum.1 + own.1);
        }
        shared.change = shared.change.wrapping_add(self.counts.change);
    }
}

#[cfg(test)]
mod tests;
