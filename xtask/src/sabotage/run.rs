//! Running the suites, one defect after the other.
//!
//! What is known is kept in a file, so a run that is stopped goes on where it was. The document is written after each
//! defect; what this run has not come to keeps its row.

use super::{DOCUMENT, Defect, LIST, Verdict, Verdicts, document, parse, places, verdicts};
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Where the verdicts of this run are kept, below `target`.
const STATE: &str = "target/sabotage.md";
/// Seeds at most, unless the caller names a number.
const SEEDS: u64 = 1_000;

/// What was asked for.
#[derive(Debug)]
struct Asked {
    seeds: u64,
    only: Option<String>,
}

fn asked(arguments: &[&str]) -> Result<Asked, String> {
    let mut asked = Asked { seeds: SEEDS, only: None };
    for pair in arguments.chunks(2) {
        match *pair {
            ["--seeds", number] => asked.seeds = number.parse().map_err(|_| format!("{number}: not a number"))?,
            ["--only", name] => asked.only = Some(name.to_owned()),
            _ => return Err("usage: cargo xtask sabotage [--seeds N] [--only NAME]".to_owned()),
        }
    }
    Ok(asked)
}

/// Runs the suites that have no verdict in this run yet.
///
/// # Errors
/// Names the defects that no suite finds.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let asked = asked(arguments)?;
    let tree = Tree::read()?;
    let defects = parse(tree.text(LIST))?;
    let places = places(&tree, &defects);
    let state = Tree::root().join(STATE);
    let mut done = verdicts(&std::fs::read_to_string(&state).unwrap_or_default());
    if let Some(only) = &asked.only {
        done.remove(only);
        if !defects.iter().any(|defect| defect.name == *only) {
            return Err(format!("{LIST} does not list `{only}`"));
        }
    }
    let mut missed = Vec::new();
    for defect in &defects {
        if asked.only.as_ref().is_some_and(|only| *only != defect.name) {
            continue;
        }
        let known = done.get(&defect.name).filter(|verdict| verdict.suite == defect.suite);
        let verdict = match known {
            Some(known) if !known.failure.is_empty() || seeds_of(known) >= asked.seeds => known.clone(),
            known => judge(defect, known.map_or(0, seeds_of), asked.seeds)?,
        };
        println!("{}: {}, {}", defect.name, verdict.by, if verdict.failure.is_empty() { "not found" } else { "found" });
        if verdict.failure.is_empty() {
            missed.push(defect.name.clone());
        }
        done.insert(defect.name.clone(), verdict);
        keep(&state, &defects, &done, &places)?;
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("no suite finds: {}", missed.join("; "))) }
}

/// Writes what this run knows to its file, and to the document over what that has.
fn keep(state: &PathBuf, defects: &[Defect], done: &Verdicts, places: &BTreeMap<String, String>) -> Result<(), String> {
    let write =
        |path: &PathBuf, text: String| std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
    write(state, document(defects, done, places))?;
    let path = Tree::root().join(DOCUMENT);
    let mut all = verdicts(&std::fs::read_to_string(&path).unwrap_or_default());
    all.extend(done.clone());
    write(&path, document(defects, &all, places))
}

/// So many seeds, as a verdict has it.
fn seeds(count: u64) -> String {
    if count == 1 { "1 seed".to_owned() } else { format!("{count} seeds") }
}

/// How many seeds a verdict is about.
fn seeds_of(verdict: &Verdict) -> u64 {
    verdict.by.split_once(" seed").and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

/// Asks the suite of a defect, seeds from `from` up to `to`.
fn judge(Defect { name, suite, .. }: &Defect, from: u64, to: u64) -> Result<Verdict, String> {
    let verdict = |by: String, failure: String| Verdict { suite: suite.clone(), by, failure };
    match suite.split(' ').collect::<Vec<_>>()[..] {
        ["sim"] => Ok(match first_seed(name, from, to)? {
            Some(seed) => verdict(seeds(seed + 1), format!("seed {seed}")),
            None => verdict(seeds(to), String::new()),
        }),
        ["test", package, target, filter] => {
            let tests = Tests { kind: "sim", package, target, filter };
            if let Some(failed) = tests.failed("")? {
                return Err(format!("{failed} fails without a defect"));
            }
            let failed = tests.failed(name)?;
            Ok(verdict("its tests".to_owned(), failed.unwrap_or_default()))
        }
        [kind @ ("loom" | "shuttle"), package, filter] => {
            let tests = Tests { kind, package, target: "models", filter };
            let failed = tests.failed("")?;
            let failure = if failed.is_none() { format!("`{filter}`") } else { String::new() };
            Ok(verdict("its mutant".to_owned(), failure))
        }
        _ => Err(format!("{LIST}: `{suite}` is no suite")),
    }
}

/// The first seed that fails, of those from `from` up to `to`.
fn first_seed(name: &str, from: u64, to: u64) -> Result<Option<u64>, String> {
    let seeds = to.saturating_sub(from).to_string();
    let arguments = ["--first", "--mutant", name, "--from", &from.to_string(), "--seeds", &seeds];
    let mut command = cargo(&["run", "--quiet", "--package", "foreshore-sim", "--"]);
    let output = command.args(arguments).output().map_err(|e| format!("the seeds did not start: {e}"))?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(format!("the seeds did not run: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(failed_seed(&String::from_utf8_lossy(&output.stdout)))
}

/// The lowest seed that the output of the seeds calls failed.
fn failed_seed(output: &str) -> Option<u64> {
    let failed = output.lines().filter(|line| line.starts_with("FAIL "));
    failed.filter_map(|line| line.split("--seed ").nth(1)?.split([' ', ':']).next()?.parse().ok()).min()
}

/// Some tests of a package.
struct Tests<'a> {
    /// The cfg of their build, without `foreshore_`.
    kind: &'a str,
    package: &'a str,
    /// `lib`, or a test binary.
    target: &'a str,
    filter: &'a str,
}

impl Tests<'_> {
    /// The first test that fails with a defect in the engine.
    ///
    /// # Errors
    /// If they cannot be built, or there are none.
    fn failed(&self, mutant: &str) -> Result<Option<String>, String> {
        let Self { kind, package, target, filter } = *self;
        let folder = format!("target/{kind}");
        let profile = if kind == "sim" { &["--profile", "slow-test"][..] } else { &["--release"] };
        let mut command = cargo(&["test", "--quiet", "--target-dir", &folder, "--package", package]);
        command.args(profile);
        match target {
            "lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
        command.args(["--", filter]).env("RUSTFLAGS", format!("--cfg foreshore_{kind}"));
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("LOOM_MAX_PREEMPTIONS", "2");
        if !mutant.is_empty() {
            command.env("FORESHORE_MUTANT", mutant);
        }
        let output = command.output().map_err(|e| format!("the tests of {package} did not start: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !ran_any(&text) {
            return Err(format!("no test of {package} runs: {text}{}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok((!output.status.success()).then(|| failed_test(&text)))
    }
}

/// Whether a test has begun.
fn ran_any(output: &str) -> bool {
    let counts =
        output.lines().filter_map(|line| line.strip_prefix("running ")?.split(' ').next()?.parse::<u64>().ok());
    counts.sum::<u64>() > 0
}

/// The first test in the list of those that have failed.
fn failed_test(output: &str) -> String {
    let listed = output.rsplit("failures:\n").next().unwrap_or_default();
    let first = listed.lines().map(str::trim).find(|line| !line.is_empty());
    format!("`{}`", first.filter(|line| !line.contains(' ')).unwrap_or("the process ended"))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(Tree::root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_seed_that_failed_counts() {
        let line = |seed| format!("FAIL cargo run -p foreshore-sim -- --seed {seed} --mutant 'a': life 2: wrong\n");
        assert_eq!(failed_seed(&[line(31), line(7), "8 seeds in 2s, 2 failed\n".into()].concat()), Some(7));
        assert_eq!(failed_seed("8 seeds in 2s, 0 failed\n"), None);
    }

    #[test]
    fn a_run_goes_on_behind_the_seeds_of_the_last_one() {
        let about = |by: String| seeds_of(&Verdict { suite: "sim".into(), by, failure: String::new() });
        assert_eq!([about(seeds(1)), about(seeds(150)), about("its tests".into())], [1, 150, 0]);
    }

    #[test]
    fn the_first_test_that_failed_is_named() {
        let output = "running 2 tests\n.F\nfailures:\n\n---- a::b stdout ----\nno\n\nfailures:\n    a::b\n    a::c\n\ntest result: FAILED.\n";
        assert!(ran_any(output) && !ran_any("running 0 tests\n"));
        assert_eq!(failed_test(output), "`a::b`");
        assert_eq!(failed_test("running 1 test\n"), "`the process ended`");
    }
}
