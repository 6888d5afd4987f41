//! Runs seeds of the whole engine: `cargo run -p foreshore-sim -- --seeds 20000`.
//!
//! The program is built twice. The ordinary build is the fleet, which builds the other one, with `--cfg
//! foreshore_sim`, and keeps some processes of it at work. That one runs the seeds.

#![forbid(unsafe_code)]

mod fleet;
#[cfg_attr(foreshore_sim, expect(dead_code, reason = "only the ordinary build shrinks"))]
mod minimize;

#[cfg(foreshore_sim)]
use foreshore_sim::engine::{self, Wanted, part};
#[cfg(foreshore_sim)]
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// One in so many seeds is run twice.
#[cfg(foreshore_sim)]
const REPEATED_ONE_IN: u64 = 20;

const USAGE: &str = "\
foreshore-sim --seeds N [--from S] [--jobs J] [--state FILE]   runs N seeds; FILE remembers how far it came
foreshore-sim --seed S [--schedule N] [--only PARTS]           runs one seed, or parts of it, and says what happens
foreshore-sim --shrink S                                       looks for the fewest parts of a seed that fail as it does
--mutant NAME                                                  switches the line of the engine with this name off
--first                                                        ends with the first seed that fails
foreshore-sim real VERB …                                      real faults; without a verb it lists them";

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    seed: Option<u64>,
    schedule: u64,
    /// The parts of the seed that run.
    only: Option<String>,
    /// The seed to shrink.
    shrink: Option<u64>,
    seeds: u64,
    from: u64,
    jobs: Option<usize>,
    state: Option<PathBuf>,
    is_worker: bool,
    /// Whether no seed is begun after one that has failed.
    is_first: bool,
    /// A line of the engine to switch off, by its name: a defect that the seeds should find.
    mutant: Option<String>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    while let Some(name) = args.next() {
        if name == "--worker" {
            asked.is_worker = true;
            continue;
        }
        if name == "--first" {
            asked.is_first = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
        match name.as_str() {
            "--seed" => asked.seed = Some(number()?),
            "--schedule" => asked.schedule = number()?,
            "--shrink" => asked.shrink = Some(number()?),
            "--only" => asked.only = Some(value),
            "--seeds" => asked.seeds = number()?,
            "--from" => asked.from = number()?,
            "--jobs" => asked.jobs = Some(number()?.max(1) as usize),
            "--mutant" => asked.mutant = Some(value),
            "--state" => asked.state = Some(value.into()),
            _ => return Err(format!("{name} is not known")),
        }
    }
    if asked.seed.is_none() && asked.shrink.is_none() && asked.seeds == 0 && !asked.is_worker {
        return Err("what should run?".to_owned());
    }
    Ok(asked)
}

fn main() -> ExitCode {
    #[cfg(not(foreshore_sim))]
    if std::env::args().nth(1).is_some_and(|verb| verb == "real") {
        return foreshore_sim::real::run(&std::env::args().skip(2).collect::<Vec<_>>());
    }
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// The fleet: true if all seeds are well.
#[cfg(not(foreshore_sim))]
fn run(asked: &Asked) -> Result<bool, String> {
    let program = foreshore_sim::build::build()?;
    if asked.is_worker {
        return Err("only the build with --cfg foreshore_sim has workers".to_owned());
    }
    if let Some(seed) = asked.shrink {
        return minimize::run(&program, asked, seed);
    }
    if let Some(seed) = asked.seed {
        let mut command = std::process::Command::new(program);
        command.arg("--seed").arg(seed.to_string()).arg("--schedule").arg(asked.schedule.to_string());
        asked.only.iter().for_each(|only| _ = command.arg("--only").arg(only));
        asked.mutant.iter().for_each(|name| _ = command.arg("--mutant").arg(name));
        let status = command.status();
        return status.map(|status| status.success()).map_err(|error| error.to_string());
    }
    fleet::run(&program, asked)
}

/// The one that runs seeds: true if all are well.
#[cfg(foreshore_sim)]
fn run(asked: &Asked) -> Result<bool, String> {
    use std::io::BufRead;
    if let Some(name) = &asked.mutant {
        foreshore_sync::model::plant(name.clone());
    }
    if let Some(seed) = asked.seed {
        let only = asked.only.as_deref().map(part::places).transpose()?;
        return Ok(match engine::run(Wanted { seed, schedule: asked.schedule, only, is_verbose: true }) {
            Ok(report) => {
                println!("seed {seed} is well: {report:?}");
                true
            }
            Err(failure) => {
                println!("seed {seed}: {}", failure.why);
                false
            }
        });
    }
    if !asked.is_worker {
        return fleet::run(&std::env::current_exe().map_err(|error| error.to_string())?, asked);
    }
    for line in std::io::stdin().lock().lines() {
        match run_and_repeat(wanted(&line.map_err(|error| error.to_string())?)?) {
            Ok(report) => {
                let engine::Report { summary, txns, commits, starts, losses, nested, waiting, stopped, restores } =
                    report;
                let counts = format!("{txns} {commits} {starts} {losses} {nested} {waiting} {stopped} {restores}");
                println!("ok {counts} trace {:x}", summary.trace);
            }
            Err(failure) => {
                println!("FAIL {} parts {}", part::list(&failure.parts), failure.why.replace('\n', " "));
                // Its threads are left where they are: the next seed has a process without them.
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Runs a seed, and one in so many a second time, which must be the same.
#[cfg(foreshore_sim)]
fn run_and_repeat(wanted: Wanted) -> Result<engine::Report, engine::Failure> {
    let report = engine::run(wanted.clone())?;
    if !wanted.seed.is_multiple_of(REPEATED_ONE_IN) || wanted.only.is_some() {
        return Ok(report);
    }
    let again = engine::run(wanted)?.summary.trace;
    let first = report.summary.trace;
    if again != first {
        let why = format!("it was not the same again: its trace was {first:x}, and is {again:x}");
        return Err(engine::Failure { why, parts: BTreeSet::new() });
    }
    Ok(report)
}

/// The run that a line asks for: `SEED`, or `SEED SCHEDULE PARTS`.
#[cfg(foreshore_sim)]
fn wanted(line: &str) -> Result<Wanted, String> {
    let mut words = line.split(' ');
    let mut number = || words.next().map(|word| word.parse::<u64>().map_err(|_| format!("{line}: not a run")));
    let seed = number().unwrap_or_else(|| Err("an empty line".to_owned()))?;
    let schedule = number().unwrap_or(Ok(0))?;
    Ok(Wanted { seed, schedule, only: words.next().map(part::places).transpose()?, is_verbose: false })
}
