//! Compares Foreshore with other embedded engines: the same workloads, the same checks, each engine at its own best
//! documented settings. `README.md` of this folder says what each setting is and how to read a row.
//!
//! | module | holds |
//! |---|---|
//! | `cli` | options |
//! | `workload` | tables, rows and inputs |
//! | `tatp`, `ycsb` | the workloads that are written once for all engines |
//! | `engine`, `engines` | the trait, and one file an engine |
//! | `drive` | the worker threads of a row |
//! | `verify` | the invariants |
//! | `spec` | what a process is to do |
//! | `load` | what is in the tables before |
//! | `row` | one row, in a process of its own |
//! | `rounds` | rows in rotated order, processes, copies of loaded databases |
//! | `report` | medians, table, JSON |

mod cli;
mod drive;
mod engine;
mod engines;
mod error;
mod load;
mod proc;
mod random;
mod report;
mod rounds;
mod row;
mod spec;
mod tatp;
mod verify;
mod workload;
mod ycsb;

use crate::{
    cli::Cli,
    error::{Error, Result},
    spec::Spec,
};
use clap::Parser as _;
use std::{fs::File, io::Write as _, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1..).unwrap_or_default() {
        [verb, spec] if verb == rounds::LOAD => spec_of(spec).and_then(|spec| row::load(&spec)).map(|()| true),
        [verb, spec] if verb == rounds::MEASURE => spec_of(spec).and_then(|spec| measure(&spec)),
        _ => compare(Cli::parse()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::from(2)
        }
    }
}

fn spec_of(text: &str) -> Result<Spec> {
    serde_json::from_str(text).map_err(|error| Error::Child { row: text.to_owned(), cause: error.to_string() })
}

/// Measures the row of this process and prints it. A failed check is part of the row.
fn measure(spec: &Spec) -> Result<bool> {
    let row = row::measure(spec)?;
    let text = serde_json::to_string(&row);
    println!("{}", text.map_err(|error| Error::Child { row: spec.title(), cause: error.to_string() })?);
    Ok(true)
}

/// Runs a comparison, prints it, and returns whether all checks hold.
fn compare(mut cli: Cli) -> Result<bool> {
    let workload = cli.checked()?;
    // Opened first: a report that cannot be written would be lost.
    let file = match cli.json.as_deref() {
        Some(path) if path != Path::new("-") => Some(File::create(path).map_err(Error::io("create", path))?),
        _ => None,
    };
    let report = rounds::run(&cli, workload)?;
    let json =
        || report.json().map_err(|error| Error::Child { row: "the report".to_owned(), cause: error.to_string() });
    match (cli.json.as_deref(), file) {
        (Some(path), Some(mut file)) => {
            print!("{}", report.table());
            writeln!(file, "{}", json()?).map_err(Error::io("write", path))?;
        }
        (Some(_), None) => println!("{}", json()?),
        (None, _) => print!("{}", report.table()),
    }
    Ok(report.passed())
}
