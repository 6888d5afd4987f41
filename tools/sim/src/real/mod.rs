//! Real faults on a real machine: `cargo run -p foreshore-sim -- real <verb> …`, with `--release` for all but `kills`.
//!
//! A child process works on a directory and reports each commit to its parent (`child`, `work`). The parent kills it,
//! or breaks the layer below it, opens the directory, and looks for every commit that was acknowledged (`ledger`). The
//! rows of a transaction follow from its thread and number (`plan`), so all rows are compared. A transaction that was
//! not acknowledged must be there whole or not at all.
//!
//! | verb | fault |
//! |---|---|
//! | `kills` | SIGKILL at each of the named points of the engine, in recovery too, or at any moment |
//! | `cuts` | a file system, or the medium below it, that is shut down with all that was not synced |
//! | `write_back` | a write-back that fails because the medium has no space |
//! | `full` | a small file system that is full |
//! | `calls` | a system call that fails |
//!
//! A fault that the machine cannot make is skipped, with the reason. The engine is the one of an ordinary build. The
//! points of `kills` are in builds with debug assertions alone.

mod asked;
mod calls;
mod child;
mod cuts;
mod full;
mod kills;
mod ledger;
mod mounts;
mod plan;
mod points;
mod process;
mod totals;
mod work;
mod write_back;

use asked::Asked;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use totals::Totals;

const USAGE: &str = "\
real kills       [--each N] [--any N] [--point NAME[=PASS]]   N kills at each point, or at this one; N at any moment
real cuts        [--fs ext4,xfs,btrfs] [--count N]            N power cuts of each file system
real write-back  [--count N]                                  N write-backs that fail
real full        [--fs tmpfs,ext4,xfs,btrfs] [--count N]      N opens of each full file system
real calls       [--count N] [--call NAME=ERROR@N]            N rounds of failing calls, or of this one
--seed S decides what is drawn";

/// Does what was asked for and counts it.
type Verb = fn(&Asked, &mut Totals) -> Result<(), String>;

/// Runs a verb with its arguments.
#[must_use]
pub fn run(args: &[String]) -> ExitCode {
    let Some((verb, rest)) = args.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if verb == "child" {
        return child::run(rest);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let verbs: [(&str, Verb); 5] = [
        ("kills", kills::run),
        ("cuts", cuts::run),
        ("write-back", write_back::run),
        ("full", full::run),
        ("calls", calls::run),
    ];
    let found = verbs.iter().find(|(name, _)| name == verb);
    let asked = Asked::parse(rest, now).and_then(|asked| Ok((asked, found.ok_or("no such verb")?)));
    let (asked, (name, run)) = match asked {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut totals = Totals::new(name, asked.seed);
    let done = run(&asked, &mut totals);
    println!("{}", totals.json());
    match done {
        Ok(()) if totals.is_well() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::from(2)
        }
    }
}
