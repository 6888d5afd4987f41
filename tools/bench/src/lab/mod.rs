//! The lab: experiments that reproduce the figures of the papers, and set our own designs beside theirs.
//!
//! | module | holds |
//! |---|---|
//! | `row`, `outcome` | what an experiment found: rows by agreed names, JSON, a table |
//! | `promise` | ratios that the project promises, beside those of the run |
//! | `chart` | figures as SVG |
//! | `page` | all figures on one page, each beside what its paper reports |
//! | `drive` | threads at work, and the window in which they are counted |
//! | `subject` | what is driven: logs without files, and the yardsticks |
//! | `repeat` | repeats, rotated so that what disturbs the machine meets all alike |
//! | `commits` | logs with files, and sessions that commit |
//! | `bank` | TPC-B on a whole database |
//! | `buffer_pool` | the pool over pages that need no disk |
//! | `open_loop` | commits that arrive at random times |
//! | one file per experiment | what varies, what is measured, what the paper says |
//!
//! An experiment is an `Experiment` and an entry in `EXPERIMENTS`. A name that is not there is refused with those that
//! are.

mod bank;
mod buffer_hits;
mod buffer_miss;
mod buffer_pool;
mod buffer_scale;
mod buffer_trace;
mod chart;
mod commits;
mod drive;
mod elr;
mod flush_pipelining;
mod group_timer;
mod growth;
mod log_insert;
mod log_size;
mod log_skew;
mod log_slots;
mod log_threads;
mod long_reader;
mod open_loop;
mod outcome;
mod page;
mod promise;
mod repeat;
mod row;
mod status;
mod subject;
mod turn;

pub use outcome::Outcome;
pub use promise::{Bound, Promise};
pub use row::Row;

use crate::{Progress, machine::Machine, units::invalid};
use chart::Panel;
use foreshore::{Device, Error, Result};
use foreshore_base::limits::MAX_PAGES;
use serde_json::{Map, Value};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// One figure: how it is measured, drawn and described.
trait Experiment: Sync {
    /// The name that users type.
    fn name(&self) -> &'static str;
    /// The figures that it reproduces.
    fn figure(&self) -> &'static str;
    /// What the paper reports.
    fn paper(&self) -> &'static str;
    /// What differs here.
    fn differs(&self) -> &'static str;
    /// Measures every row. What the rows share goes to the configuration.
    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>>;
    /// The figure.
    fn panels(&self, rows: &[Row]) -> Vec<Panel>;
    /// Ratios that the project promises, as far as the run has the rows for them.
    fn promises(&self, _: &[Row]) -> Vec<Promise> {
        Vec::new()
    }
    /// What else a reader looks for first.
    fn findings(&self, _: &[Row]) -> Vec<String> {
        Vec::new()
    }
}

const EXPERIMENTS: [&dyn Experiment; 15] = [
    &log_insert::LogInsert,
    &log_size::LogSize,
    &log_skew::LogSkew,
    &log_slots::LogSlots,
    &log_threads::LogThreads,
    &group_timer::GroupTimer,
    &elr::Elr,
    &flush_pipelining::FlushPipelining,
    &buffer_hits::BufferHits,
    &buffer_miss::BufferMiss,
    &buffer_scale::BufferScale,
    &buffer_trace::BufferTrace,
    &growth::GrowthLab,
    &status::StatusLab,
    &long_reader::LongReader,
];

/// The word for all experiments.
pub const ALL: &str = "all";

/// What every experiment listens to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Fewer points and shorter windows: at most three minutes an experiment.
    pub quick: bool,
    /// Buffers that fit the caches of a core, where an experiment has such a curve.
    pub l1: bool,
    /// The device of experiments that write.
    pub device: Device,
    /// Measured time per point; `None`: what the experiment chooses.
    pub secs: Option<Duration>,
    /// Repeats of each point, of which the median is reported; `None`: what the experiment chooses.
    pub repeat: Option<usize>,
    /// Worker threads; empty: what the experiment chooses.
    pub threads: Vec<usize>,
    /// Branches of experiments that run TPC-B; `None`: what the experiment chooses.
    pub scale: Option<u64>,
    /// Pages of experiments on the buffer pool, at least [`MIN_PAGES`]; `None`: what the experiment chooses.
    pub pages: Option<u64>,
    /// The trace of `buffer-trace`; `None`: a made-up one.
    pub trace: Option<PathBuf>,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let device = Device::Auto;
        Self {
            quick: false,
            l1: false,
            device,
            secs: None,
            repeat: None,
            threads: Vec::new(),
            scale: None,
            pages: None,
            trace: None,
            seed: 1,
        }
    }
}

/// Most worker threads, as many as a log has sessions by default.
const MAX_THREADS: usize = 1024;
/// The least pages of which the smallest share in memory is a pool.
pub const MIN_PAGES: u64 = 512;

impl Settings {
    fn check(&self) -> Result<()> {
        if self.secs.is_some_and(|secs| secs.is_zero()) {
            return Err(invalid("secs", "0", "a time above zero"));
        }
        if self.repeat == Some(0) {
            return Err(invalid("repeat", "0", "at least 1"));
        }
        if let Some(pages) = self.pages.filter(|pages| !(MIN_PAGES..=MAX_PAGES).contains(pages)) {
            return Err(invalid("pages", &pages.to_string(), &format!("{MIN_PAGES} to {MAX_PAGES}")));
        }
        match self.threads.iter().find(|threads| !(1..=MAX_THREADS).contains(*threads)) {
            Some(threads) => Err(invalid("threads", &threads.to_string(), &format!("1 to {MAX_THREADS}"))),
            None => Ok(()),
        }
    }
}

/// An experiment in progress.
struct Lab<'a> {
    settings: &'a Settings,
    progress: &'a dyn Progress,
    /// What all rows share.
    config: Map<String, Value>,
    /// The machine; with the device, if the experiment has one.
    machine: Machine,
}

impl Lab<'_> {
    /// Notes what all rows share.
    fn configure(&mut self, name: &str, value: impl Into<Value>) {
        self.config.insert(name.to_owned(), value.into());
    }

    /// `full`, or `quick` in a quick run.
    fn choose<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// The pages of a file: those asked for, or those of the experiment.
    fn pages(&self, full: u64, quick: u64) -> u64 {
        self.settings.pages.unwrap_or(self.choose(full, quick))
    }

    /// The thread counts to run: those asked for, or those of the experiment.
    fn threads(&self, full: &[usize], quick: &[usize]) -> Vec<usize> {
        let own = self.choose(full, quick);
        if self.settings.threads.is_empty() { own.to_vec() } else { self.settings.threads.clone() }
    }
}

/// Names of the experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name())
}

/// Runs `experiment`, or all of them, and writes `DIR/EXPERIMENT.json` and `.svg`, and for all an `index.html`. Calls
/// `done` as each ends.
///
/// # Errors
/// `InvalidOption` for an unknown name, with those that exist, and for settings out of range; what the log gives; `Io`
/// where `out` cannot be written.
pub fn run(
    experiment: &str,
    settings: &Settings,
    out: &Path,
    progress: &dyn Progress,
    done: &mut dyn FnMut(&Outcome) -> Result<()>,
) -> Result<()> {
    settings.check()?;
    let chosen: Vec<&dyn Experiment> = match EXPERIMENTS.iter().find(|known| known.name() == experiment) {
        Some(known) => vec![*known],
        None if experiment == ALL => EXPERIMENTS.to_vec(),
        None => return Err(unknown(experiment)),
    };
    fs::create_dir_all(out).map_err(|e| Error::io("create", out.to_owned(), e))?;
    let mut outcomes = Vec::new();
    for experiment in chosen {
        let outcome = run_one(experiment, settings, progress)?;
        save(out, &format!("{}.json", outcome.experiment), &outcome.json())?;
        save(out, &format!("{}.svg", outcome.experiment), outcome.svg())?;
        done(&outcome)?;
        outcomes.push(outcome);
    }
    if experiment == ALL { save(out, "index.html", &page::page(&outcomes)) } else { Ok(()) }
}

/// The refusal of a name.
fn unknown(experiment: &str) -> Error {
    let exist: Vec<&str> = names().chain([ALL]).collect();
    invalid("experiment", experiment, &exist.join(", "))
}

fn run_one(experiment: &dyn Experiment, settings: &Settings, progress: &dyn Progress) -> Result<Outcome> {
    let mut lab = Lab { settings, progress, config: Map::new(), machine: Machine::without_device()? };
    lab.configure("quick", settings.quick);
    lab.configure("seed", settings.seed);
    let measured = experiment.measure(&mut lab);
    progress.end();
    let rows = measured?;
    let Lab { config, machine, .. } = lab;
    Ok(Outcome::new(experiment, config, machine, rows))
}

fn save(out: &Path, name: &str, text: &str) -> Result<()> {
    let path = out.join(name);
    fs::write(&path, text).map_err(|e| Error::io("write", path, e))
}

#[cfg(test)]
mod tests;
