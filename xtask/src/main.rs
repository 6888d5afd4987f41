//! Checks of the repository: `cargo xtask verify | fix | tidy | counts | sample | sabotage | coverage`.
//!
//! `verify` runs rustfmt, clippy and `tidy` and never writes. `fix` writes what can be derived: formatting, generated
//! documents, format hashes, and ratchet entries that shrank. `tidy` is the set of rules that no other tool knows: each
//! is a function from text to findings, tested on text that breaks it. Rules that came after the code count what broke
//! them, under the ratchet (`ratchet.rs`). `sabotage` runs the suites against planted defects, and
//! `coverage` measures which lines the tests run.

#![forbid(unsafe_code)]

mod assertions;
mod coverage;
mod cycles;
mod examples;
mod generated;
mod imports;
mod layers;
mod length;
mod links;
mod manifest;
mod marks;
mod modules;
mod objects;
mod prose;
mod ratchet;
mod sabotage;
mod sample;
mod source;
mod suites;
mod tree;
mod uses;
mod words;

use ratchet::{Amount, RATCHET};
use source::Source;
use std::process::{Command, ExitCode};
use tree::{Finding, Tree};

const USAGE: &str = "usage: cargo xtask <command>

  verify   rustfmt --check, clippy -D warnings on all targets, tidy with a tight ratchet; writes nothing
  fix      rustfmt, generated documents, format hashes, ratchet entries that shrank
  tidy     layer edges, banned imports and words, assertions, ORDERING and WAIT comments, test files, links,
           documents in step; under the ratchet lengths, cycles of modules, wide objects, words of comments,
           missing examples
  counts [RULE [PLACE]]
           what the ratchet counts today, or each finding of a rule and a place
  sample --seed TEXT [--count N]
           files of the engine for a reader, drawn by the seed, 8 by default
  sabotage [--seeds N] [--only NAME]
           runs the suite of each planted defect until it finds it; writes docs/sabotage.md
  coverage [--write] [REPORT]
           runs the tests under `cargo llvm-cov`, or reads its LCOV report; fails if a layer is below its bound;
           writes docs/coverage.md if asked to";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => verify(),
        ["fix"] => fix(),
        ["tidy"] => Tree::read().and_then(|tree| tidy(&tree)),
        ["counts"] => Tree::read().map(|tree| print!("{}", ratchet::listed(&amounts(&tree, &tree.sources())))),
        ["counts", rule] => print_counts(rule, ""),
        ["counts", rule, place] => print_counts(rule, place),
        ["sample", ref arguments @ ..] => sample::run(arguments),
        ["sabotage", ref arguments @ ..] => sabotage::run(arguments),
        ["coverage", ref arguments @ ..] => coverage::run(arguments),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn verify() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    let tree = Tree::read()?;
    tidy(&tree)?;
    match ratchet::loose(tree.text(RATCHET), &amounts(&tree, &tree.sources())) {
        0 => Ok(()),
        loose => Err(format!("{RATCHET}: {loose} entries can be lowered: run `cargo xtask fix`")),
    }
}

fn fix() -> Result<(), String> {
    cargo(&["fmt", "--all"])?;
    let tree = Tree::read()?;
    tree.write(generated::LOCK_ORDER, &foreshore_sync::lock_order_markdown())?;
    tree.write(generated::FORMAT, &generated::with_hashes(tree.text(generated::FORMAT), &tree.formats()))?;
    // Formatting may have changed what is counted.
    let tree = Tree::read()?;
    tree.write(RATCHET, &ratchet::shrunk(tree.text(RATCHET), &amounts(&tree, &tree.sources())))
}

/// What the rules under the ratchet find.
fn amounts(tree: &Tree, sources: &[Source]) -> Vec<Amount> {
    let prose = prose::amounts(sources, tree.texts());
    let examples = examples::amounts(sources);
    [length::amounts(sources), cycles::amounts(sources), objects::amounts(sources), examples, prose]
        .into_iter()
        .flatten()
        .collect()
}

fn print_counts(rule: &str, place: &str) -> Result<(), String> {
    let tree = Tree::read()?;
    let amounts = amounts(&tree, &tree.sources());
    for amount in amounts.iter().filter(|amount| amount.rule == rule && amount.place.starts_with(place)) {
        amount.found.iter().for_each(|finding| println!("{finding}"));
        println!("{rule} {} {}", amount.place, amount.count);
    }
    Ok(())
}

fn tidy(tree: &Tree) -> Result<(), String> {
    let sources = tree.sources();
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(layers::check(&tree.manifests()));
    findings.extend(imports::check_roots(&sources));
    for source in &sources {
        findings.extend(imports::check(source));
        findings.extend(marks::check(source));
        findings.extend(length::check(source));
    }
    findings.extend(suites::check(tree.texts()));
    findings.extend(links::check(tree.texts()));
    findings.extend(assertions::check(&sources));
    findings.extend(sabotage::check(tree.text(sabotage::LIST), tree.text(sabotage::DOCUMENT), tree.texts()));
    findings.extend(ratchet::check(tree.text(RATCHET), &amounts(tree, &sources)));
    for (path, text) in tree.texts() {
        findings.extend(words::check(path, text));
    }
    findings.extend(generated::check_hashes(tree.text(generated::FORMAT), &tree.formats()));
    findings
        .extend(generated::check_lock_order(tree.text(generated::LOCK_ORDER), &foreshore_sync::lock_order_markdown()));
    if findings.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    Err(format!("{}\ntidy: {} findings", list.join("\n"), findings.len()))
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let shown = arguments.join(" ");
    let status = Command::new(program)
        .args(arguments)
        .current_dir(Tree::root())
        .status()
        .map_err(|e| format!("cargo {shown} did not start: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {shown} failed")) }
}
