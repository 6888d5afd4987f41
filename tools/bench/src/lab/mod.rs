//! The lab: experiments that reproduce the figures of the papers, and set our own designs beside theirs.
//!
//! | module | holds |
//! |---|---|
//! | `experiment` | what an experiment is to the lab, and what it listens to |
//! | `row`, `outcome` | what an experiment found: rows by agreed names, JSON, a table |
//! | `promise` | ratios that the project promises, beside those of the run |
//! | `chart` | figures as SVG |
//! | `page` | all figures on one page, each beside what its paper reports |
//! | `model` | contended read-modify-writes on more cores than there are |
//! | `drive` | threads at work, and the window in which they are counted |
//! | `subject` | what is driven: logs without files, and the yardsticks |
//! | `repeat` | repeats, rotated so that what disturbs the machine meets all alike |
//! | `commits` | logs with files, and sessions that commit |
//! | `bank` | TPC-B or another workload on a whole database |
//! | `ladder` | the steps of Aether, from a log that each commit waits for to the engine's own |
//! | `crashed` | databases as a crash leaves them |
//! | `buffer_pool` | the pool over pages that need no disk |
//! | `open_loop` | commits that arrive at random times |
//! | one file per experiment | what varies, what is measured, what the paper says |
//!
//! An experiment is an `Experiment` and an entry in `EXPERIMENTS`. A name that is not there is refused with those that
//! are.

mod bank;
mod breakdown;
mod buffer_hits;
mod buffer_miss;
mod buffer_pool;
mod buffer_scale;
mod buffer_trace;
mod chart;
mod commit_ladder;
mod commits;
mod crashed;
mod drive;
mod elr;
mod experiment;
mod flush_pipelining;
mod flush_time;
mod group_timer;
mod growth;
mod insert_ladder;
mod ladder;
mod log_insert;
mod log_size;
mod log_skew;
mod log_slots;
mod log_threads;
mod long_reader;
mod model;
mod open_loop;
mod outcome;
mod page;
mod promise;
mod recovery;
mod repeat;
mod row;
mod status;
mod subject;
mod tpcc_threads;
mod turn;

use experiment::{Experiment, Lab};
pub use experiment::{MIN_PAGES, Settings};
pub use outcome::Outcome;
pub use promise::{Bound, Promise};
pub use row::Row;

use crate::{Progress, machine::Machine, units::invalid};
use foreshore::{Error, Result};
use outcome::Saved;
use serde_json::Map;
use std::{fs, io, path::Path};

const EXPERIMENTS: [&dyn Experiment; 21] = [
    &log_insert::LogInsert,
    &log_size::LogSize,
    &log_skew::LogSkew,
    &log_slots::LogSlots,
    &log_threads::LogThreads,
    &group_timer::GroupTimer,
    &flush_time::FlushTime,
    &elr::Elr,
    &flush_pipelining::FlushPipelining,
    &commit_ladder::CommitLadder,
    &breakdown::BreakdownLab,
    &insert_ladder::InsertLadder,
    &tpcc_threads::TpccThreads,
    &buffer_hits::BufferHits,
    &buffer_miss::BufferMiss,
    &buffer_scale::BufferScale,
    &buffer_trace::BufferTrace,
    &growth::GrowthLab,
    &status::StatusLab,
    &long_reader::LongReader,
    &recovery::Recovery,
];

/// The word for all experiments.
pub const ALL: &str = "all";

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
    if experiment == ALL { save(out, PAGE, &page::page(&outcomes, None)) } else { Ok(()) }
}

const PAGE: &str = "index.html";

/// Writes `DIR/index.html` from those `DIR/EXPERIMENT.json` that exist, as [`run`] writes it after all experiments.
/// `note` says in its head where the runs come from.
///
/// # Errors
/// `InvalidOption` if there is none, or a file is not what its experiment writes; `Io` if a file cannot be read or
/// written.
pub fn page(dir: &Path, note: Option<&str>) -> Result<()> {
    let mut outcomes = Vec::new();
    for experiment in EXPERIMENTS {
        let path = dir.join(format!("{}.json", experiment.name()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::io("read", path, e)),
        };
        let refused = |why: &str| invalid("results", &path.to_string_lossy(), why);
        let saved: Saved = serde_json::from_str(&text).map_err(|e| refused(&format!("JSON of lab ({e})")))?;
        if saved.experiment != experiment.name() {
            return Err(refused(&format!("JSON of lab {}", experiment.name())));
        }
        outcomes.push(Outcome::new(experiment, saved.config, saved.machine, saved.rows));
    }
    if outcomes.is_empty() {
        return Err(invalid("results", &dir.to_string_lossy(), "a folder with EXPERIMENT.json of lab"));
    }
    save(dir, PAGE, &page::page(&outcomes, note))
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
    lab.configure("version", env!("CARGO_PKG_VERSION"));
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
