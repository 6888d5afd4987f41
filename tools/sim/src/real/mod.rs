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

use ledger::{Heard, Ledger};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
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

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    seed: u64,
    count: Option<u64>,
    each: Option<u64>,
    any: Option<u64>,
    point: Option<String>,
    fs: Option<Vec<String>>,
    call: Option<String>,
}

impl Asked {
    fn parse(args: &[String], seed: u64) -> Result<Self, String> {
        let mut asked = Self { seed, ..Self::default() };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--seed" => asked.seed = number()?,
                "--count" => asked.count = Some(number()?),
                "--each" => asked.each = Some(number()?),
                "--any" => asked.any = Some(number()?),
                "--point" => asked.point = Some(value.clone()),
                "--fs" => asked.fs = Some(value.split(',').map(str::to_owned).collect()),
                "--call" => asked.call = Some(value.clone()),
                _ => return Err(format!("{name} is not known")),
            }
        }
        Ok(asked)
    }

    /// The file systems asked for, or all of `usual`.
    fn kinds(&self, usual: &[&str]) -> Vec<String> {
        self.fs.clone().unwrap_or_else(|| usual.iter().map(|&kind| kind.to_owned()).collect())
    }
}

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

/// A new, empty folder for what a verb works on.
fn scratch(name: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/real");
    let folder = folder.join(format!("{name}-{}", std::process::id()));
    let made = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
    made.map_err(|error| format!("{}: {error}", folder.display()))
}

/// This program.
fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

/// Opens the directory in this process and compares it with what its writers heard.
fn verify(
    options: &foreshore::Options,
    dir: &Path,
    ledger: &mut Ledger,
    heard: &Heard,
    seed: u64,
) -> Result<(), String> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let db = options.open(dir).map_err(|error| format!("open: {error}"))?;
        ledger.verify(&db, heard, seed)?;
        db.close(std::time::Duration::ZERO).map_err(|error| format!("close: {error}"))
    }));
    checked.unwrap_or_else(|_| Err("the check has panicked".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_by_name() {
        let args = ["--fs", "ext4,xfs", "--count", "3", "--seed", "9"].map(str::to_owned);
        let asked = Asked::parse(&args, 1).unwrap();
        assert_eq!((asked.seed, asked.count), (9, Some(3)));
        assert_eq!(asked.kinds(&["btrfs"]), ["ext4", "xfs"]);
        assert_eq!(Asked::default().kinds(&["btrfs"]), ["btrfs"]);
        assert!(Asked::parse(&args[..1], 1).is_err());
        assert!(Asked::parse(&["--seed".to_owned(), "x".to_owned()], 1).is_err());
    }
}
