//! The program `foreshore`.
//!
//! Exit status: 0 if all went well, 1 if a check of the run is false, 2 if the run was refused or failed.

#![forbid(unsafe_code)]

mod bar;
mod bench;
mod history;
mod lab;

use clap::{Parser, Subcommand};
use foreshore::Error;
use std::{ffi::OsString, process::ExitCode};

/// Foreshore, an embedded, multi-writer, ACID storage manager.
#[derive(Parser)]
#[command(name = "foreshore", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a workload, measure it, and check that nothing was lost
    Bench(Box<bench::Arguments>),
    /// Reproduce a figure of the papers, with our own designs beside theirs
    Lab(Box<lab::Arguments>),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Lab(arguments) => lab::run(&arguments),
        Verb::Other(words) => Err(unknown_verb(&words)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: a check is false");
            ExitCode::from(1)
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn unknown_verb(words: &[OsString]) -> Error {
    let verb = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    Error::InvalidOption { name: "verb", value: verb, expected: "bench, lab".to_owned() }
}
