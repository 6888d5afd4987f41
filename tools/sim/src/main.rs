//! Runs seeds of the whole engine: `cargo run -p foreshore-sim -- --seeds 20000`.
//!
//! The program is built twice. The ordinary build is the fleet, which builds the other one, with `--cfg
//! foreshore_sim`, and keeps some processes of it at work. That one runs the seeds.

#![forbid(unsafe_code)]

mod fleet;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
foreshore-sim --seeds N [--from S] [--jobs J] [--state FILE]   runs N seeds; FILE remembers how far it came
foreshore-sim --seed S                                         runs one seed and says what happens
--mutant NAME                                                  switches the line of the engine with this name off";

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    seed: Option<u64>,
    seeds: u64,
    from: u64,
    jobs: Option<usize>,
    state: Option<PathBuf>,
    is_worker: bool,
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
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
        match name.as_str() {
            "--seed" => asked.seed = Some(number()?),
            "--seeds" => asked.seeds = number()?,
            "--from" => asked.from = number()?,
            "--jobs" => asked.jobs = Some(number()?.max(1) as usize),
            "--mutant" => asked.mutant = Some(value),
            "--state" => asked.state = Some(value.into()),
            _ => return Err(format!("{name} is not known")),
        }
    }
    if asked.seed.is_none() && asked.seeds == 0 && !asked.is_worker {
        return Err("what should run?".to_owned());
    }
    Ok(asked)
}

fn main() -> ExitCode {
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
    let program = fleet::build()?;
    if asked.is_worker {
        return Err("only the build with --cfg foreshore_sim has workers".to_owned());
    }
    if let Some(seed) = asked.seed {
        let mut command = std::process::Command::new(program);
        command.arg("--seed").arg(seed.to_string());
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
        return Ok(match foreshore_sim::engine::run(seed, true) {
            Ok(report) => {
                println!("seed {seed} is well: {report:?}");
                true
            }
            Err(why) => {
                println!("seed {seed}: {why}");
                false
            }
        });
    }
    if !asked.is_worker {
        return fleet::run(&std::env::current_exe().map_err(|error| error.to_string())?, asked);
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let seed: u64 = line.parse().map_err(|_| format!("{line}: not a seed"))?;
        match foreshore_sim::engine::run(seed, false) {
            Ok(report) => {
                let foreshore_sim::engine::Report { summary, txns, commits, starts, losses, nested, stopped } = report;
                println!("ok {txns} {commits} {starts} {losses} {nested} {stopped} trace {:x}", summary.trace);
            }
            Err(why) => {
                println!("FAIL {}", why.replace('\n', " "));
                // Its threads are left where they are: the next seed has a process without them.
                return Ok(false);
            }
        }
    }
    Ok(true)
}
