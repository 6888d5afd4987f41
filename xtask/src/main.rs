//! Checks of the repository: `cargo xtask verify | fix | tidy | sabotage`.
//!
//! `verify` runs rustfmt, clippy and `tidy` and never writes. `fix` writes what can be derived: formatting, generated
//! documents, format hashes, and ratchet entries that shrank. `tidy` is the set of rules that no other tool knows: each
//! is a function from text to findings, tested on text that breaks it. `sabotage` runs the suites against planted defects.

#![forbid(unsafe_code)]

mod assertions;
mod generated;
mod imports;
mod layers;
mod length;
mod manifest;
mod marks;
mod sabotage;
mod source;
mod suites;
mod tree;
mod words;

use std::process::{Command, ExitCode};
use tree::{Finding, Tree};

const USAGE: &str = "usage: cargo xtask <command>

  verify   rustfmt --check, clippy -D warnings on all targets, tidy; writes nothing
  fix      rustfmt, generated documents, format hashes, ratchet entries that shrank
  tidy     layer edges, banned imports and words, lengths, assertions, ORDERING and WAIT comments, test files,
           documents in step
  sabotage [--seeds N] [--only NAME]
           runs the suite of each planted defect until it finds it; writes docs/sabotage.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => verify(),
        ["fix"] => fix(),
        ["tidy"] => Tree::read().and_then(|tree| tidy(&tree)),
        ["sabotage", ref arguments @ ..] => sabotage::run(arguments),
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
    tidy(&Tree::read()?)
}

fn fix() -> Result<(), String> {
    cargo(&["fmt", "--all"])?;
    let tree = Tree::read()?;
    tree.write(generated::LOCK_ORDER, &foreshore_sync::lock_order_markdown())?;
    tree.write(generated::FORMAT, &generated::with_hashes(tree.text(generated::FORMAT), &tree.formats()))?;
    tree.write(length::RATCHET, &length::shrunk(tree.text(length::RATCHET), &tree.sources()))?;
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
    }
    findings.extend(suites::check(tree.texts()));
    findings.extend(assertions::check(&sources));
    findings.extend(sabotage::check(tree.text(sabotage::LIST), tree.text(sabotage::DOCUMENT), tree.texts()));
    findings.extend(length::check(tree.text(length::RATCHET), &sources));
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
